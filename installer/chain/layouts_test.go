package chain

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write what is there instead of comparing with it")

// The entries of the tests: one, and a later one.
const (
	ourEntry   = `{"type":"sidecar-cni","capabilities":{"io.kubernetes.cri.pod-annotations":true,"dns":true},"backend":"nftables"}`
	laterEntry = `{"type":"sidecar-cni","capabilities":{"io.kubernetes.cri.pod-annotations":true,"dns":true},"backend":"iptables-nft"}`
)

func spec(way Way) Spec { return Spec{Way: way, LoadsDropIns: true, Entry: []byte(ourEntry)} }

// layout is a conf directory as a network plugin leaves it.
type layout struct {
	name, file string
	about      []byte
	before     Dir
}

// layouts reads testdata: under before/ the directory; a name that ends with a slash is an empty
// sub-directory, one with "(unreadable)" after it cannot be read. What follows is written by
// TestLayouts.
func layouts(t testing.TB) []layout {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("layouts: %v, %v", files, err)
	}
	var all []layout
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		l := layout{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), file: file,
			about: archive.Comment}
		for _, f := range archive.Files {
			if name, ok := strings.CutPrefix(f.Name, "before/"); ok {
				l.before = append(l.before, toFile(name, f.Data))
			}
		}
		l.before = l.before.tree().dir()
		all = append(all, l)
	}
	return all
}

func toFile(name string, data []byte) File {
	if name, ok := strings.CutSuffix(name, " (unreadable)"); ok {
		return File{Name: name, Mode: 0o600, Err: fs.ErrPermission}
	}
	if name, ok := strings.CutSuffix(name, "/"); ok {
		return File{Name: name, Mode: fs.ModeDir | 0o755}
	}
	return File{Name: name, Mode: 0o644, Data: data}
}

func fromFile(f File, data []byte) txtar.File {
	name := f.Name
	if f.Err != nil {
		name += " (unreadable)"
	}
	if f.Mode.IsDir() {
		name += "/"
	}
	return txtar.File{Name: name, Data: data}
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	for _, l := range layouts(t) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			a := &txtar.Archive{Comment: l.about}
			add := func(dir string, f File) {
				file := fromFile(f, f.Data)
				file.Name = dir + "/" + file.Name
				a.Files = append(a.Files, file)
			}
			for _, f := range l.before {
				add("before", f)
			}
			a.Files = append(a.Files, txtar.File{Name: "auto", Data: l.auto()})
			for _, way := range []Way{Inline, DropIn, Owned} {
				plan, err := Install(l.before, spec(way))
				a.Files = append(a.Files, txtar.File{Name: string(way), Data: told(plan, err)})
				after := l.before.After(plan.Steps...)
				for _, f := range after {
					if was, ok := l.before.tree()[f.Name]; !ok || !was.equal(f) {
						add(string(way), f)
					}
				}
				l.wantSettled(t, after, spec(way))
			}
			golden(t, l.file, txtar.Format(a))
		})
	}
}

// auto tells which way it is without configuration, and what Evaluate says before anything is done.
func (l layout) auto() []byte {
	var b bytes.Buffer
	for _, dropIns := range []bool{true, false} {
		w := spec(Auto)
		w.LoadsDropIns = dropIns
		plan, err := Install(l.before, w)
		fmt.Fprintf(&b, "with drop-ins %v: ", dropIns)
		if err != nil {
			fmt.Fprintf(&b, "%s", told(plan, err))
		} else {
			fmt.Fprintf(&b, "%s of %s\n", plan.Way, plan.Network)
		}
	}
	s := Evaluate(l.before, spec(Auto))
	fmt.Fprintf(&b, "state: %s: %s\n", s.Reason, s.Text)
	return b.Bytes()
}

func told(p Plan, err error) []byte {
	var b bytes.Buffer
	if r, ok := errors.AsType[*Refusal](err); ok {
		fmt.Fprintf(&b, "refused, %s: %s\n", r.Reason, r.Text)
	} else if err != nil {
		fmt.Fprintf(&b, "error without a reason: %v\n", err)
	}
	for _, s := range p.Steps {
		fmt.Fprintln(&b, s)
	}
	return b.Bytes()
}

// wantSettled holds that a second pass has nothing to do, and that uninstalling gives the directory
// back.
func (l layout) wantSettled(t *testing.T, after Dir, w Spec) {
	t.Helper()
	again, err := Install(after, w)
	if len(again.Steps) != 0 {
		t.Errorf("%s: a second pass does\n%s", w.Way, told(again, err))
	}
	if s := Evaluate(after, w); s.Effective != (err == nil) {
		t.Errorf("%s: %+v, but a pass says %v", w.Way, s, err)
	}
	out, err := Uninstall(after, Spec{})
	if err != nil && !slices.Contains([]string{"unreadable", "truncated"}, l.name) {
		t.Errorf("%s: uninstall: %v", w.Way, err)
	}
	if diff := cmp.Diff(l.before.text(), after.After(out.Steps...).text()); diff != "" {
		t.Errorf("%s: uninstalling changes the directory (-before +after)\n%s", w.Way, diff)
	}
}

func golden(t *testing.T, file string, text []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"),
		strings.Split(string(text), "\n")); diff != "" {
		t.Errorf("%s (-is +should be); if it should, run go test . -run '^TestLayouts$' -update\n%s", file, diff)
	}
}
