package node_test

import (
	std "cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// calls are those with which a pass changes the disk, by strace's names; a question mark is for
// what an architecture lacks.
var calls = []string{"openat", "write", "fchmod", "fsync", "?rename,renameat,?renameat2",
	"unlinkat", "mkdirat", "?rmdir", "fchmodat"}

// TestKilledBeforeAnyCall has strace kill a pass before each of its system calls that change the
// disk. What is left, real libcni loads, with us or without; the next pass ends where an
// undisturbed one would have, and nothing temporary stays.
func TestKilledBeforeAnyCall(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name   string
		before files
		ways   []string // passes that come before
		way    string
	}{
		{"inline", withList, nil, "inline"},
		{"inline, wrapping", withSingle, nil, "inline"},
		{"dropin", withList, nil, "dropin"},
		{"owned", withList, nil, "owned"},
		{"from inline to dropin", withList, []string{"inline"}, "dropin"},
		{"from dropin to inline", withList, []string{"dropin"}, "inline"},
		{"out of inline", withList, []string{"inline"}, "out"},
		{"out of inline, unwrapping", withSingle, []string{"inline"}, "out"},
		{"out of dropin", withList, []string{"dropin"}, "out"},
		{"out of owned", withList, []string{"owned"}, "out"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			begin := func() string {
				conf := lay(t, t.TempDir(), row.before)
				for _, way := range row.ways {
					must(t, pass(conf, way))
				}
				return conf.Path
			}
			undisturbed := begin()
			original, err := load(t, undisturbed)
			must(t, err)
			original.Ours = 0
			must(t, carry([]string{undisturbed, row.way}))
			k := killing{way: row.way, original: original, goal: tree(t, undisturbed)}
			reached := map[string]bool{}
			for _, call := range calls {
				for nth := 1; k.before(t, begin(), call, nth); nth++ {
					reached[call] = true
				}
			}
			if !reached["fsync"] {
				t.Errorf("killed before %v only", reached)
			}
		})
	}
}

type killing struct {
	way      string
	original loaded
	goal     map[string]string
}

// before reports whether a pass had an nth call of a kind, before which it was killed.
func (k killing) before(t *testing.T, dir, call string, nth int) bool {
	t.Helper()
	cmd := child(t, []string{"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call,
		"-e", "inject=" + call + ":signal=SIGKILL:when=" + strconv.Itoa(nth)}, "carry", dir, k.way)
	out, err := cmd.CombinedOutput()
	if err == nil {
		if diff := cmp.Diff(k.goal, tree(t, dir)); diff != "" {
			t.Errorf("not killed, and the directory is another one (-undisturbed +this)\n%s", diff)
		}
		return false
	}
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || !killed(ended) {
		t.Fatalf("%s %d: %v: %s", call, nth, err, out)
	}
	left := tree(t, dir)
	got, err := load(t, dir)
	got.Ours = 0
	if diff := cmp.Diff(k.original, got); diff != "" || err != nil {
		t.Errorf("killed before %s %d, the runtime loads: %v (-before +after)\n%s\nfrom %q", call,
			nth, err, diff, left)
	}
	conf := confOf(dir)
	must(t, conf.Sweep())
	must(t, pass(conf, k.way))
	if diff := cmp.Diff(k.goal, tree(t, dir)); diff != "" {
		t.Errorf("killed before %s %d, the next pass ends elsewhere (-undisturbed "+
			"+next)\n%s\nfrom %q", call, nth, diff, left)
	}
	return true
}

func killed(ended *exec.ExitError) bool {
	status, ok := ended.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// A pass that is killed leaves its temporary files, and no others: the test above would not see
// what Sweep overlooks.
func TestKilledPassLeavesOneTemporaryFile(t *testing.T) {
	t.Parallel()
	conf := lay(t, t.TempDir(), withList)
	was := tree(t, conf.Path)
	cmd := child(t, []string{"strace", "-f", "-qq", "-o", "/dev/null", "-e",
		"inject=fsync:signal=SIGKILL:when=1"}, "carry", conf.Path, "inline")
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("not killed: %s", out)
	}
	now := tree(t, conf.Path)
	left := temps(now)
	for _, name := range left {
		delete(now, name)
	}
	if diff := cmp.Diff(was, now); diff != "" || len(left) != 1 {
		t.Errorf("temporary files %q, others (-before +after):\n%s", left, diff)
	}
	if d, err := conf.Read(); err != nil ||
		slices.ContainsFunc(seen(d),
			func(s string) bool { return len(temps(map[string]string{s: ""})) > 0 }) {
		t.Errorf("read: %q, %v", seen(d), err)
	}
}

// What SIGKILL cannot show: a loss of power undoes nothing that is reported as done, and no name
// ever leads to less than all of its bytes.
func TestEveryStepIsSynced(t *testing.T) {
	t.Parallel()
	const list, single = "10-pods.conflist", "10-pods.conf"
	write := func(name string) []string {
		return []string{"openat TEMP", "write TEMP", "fchmod TEMP", "fsync TEMP",
			"rename TEMP " + name, "fsync ."}
	}
	for _, row := range []struct {
		way    string
		before files
		want   []string
	}{
		{"inline", files{list: listConf}, write(list)},
		{"inline", files{single: singleConf},
			slices.Concat(write(list),
				[]string{"rename " + single + " " + single + ".sidecar-cni-saved", "fsync ."})},
		{"dropin", files{list: listConf},
			slices.Concat([]string{"mkdirat pods", "fchmodat pods", "fsync ."},
				[]string{"openat TEMP", "write TEMP", "fchmod TEMP", "fsync TEMP",
					"rename TEMP pods/99-sidecar-cni.conf", "fsync pods"})},
		{"out", files{list: listConf, "pods/99-sidecar-cni.conf": entry},
			[]string{"unlinkat pods/99-sidecar-cni.conf", "fsync pods", "unlinkat pods",
				"fsync ."}},
	} {
		t.Run(row.way, func(t *testing.T) {
			t.Parallel()
			conf := lay(t, t.TempDir(), row.before)
			log := filepath.Join(t.TempDir(), "log")
			cmd := child(t, []string{"strace", "-f", "-qq", "-y", "-s", "0", "-o", log, "-e",
				"trace=" + strings.Join(calls, ",")}, "carry", conf.Path, row.way)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			data, err := os.ReadFile(log)
			must(t, err)
			if diff := cmp.Diff(row.want, traced(string(data), conf.Path)); diff != "" {
				t.Errorf("calls (-want +got):\n%s\n%s", diff, data)
			}
		})
	}
}

// traced shortens the calls that change something in a directory.
func traced(log, dir string) []string {
	var all []string
	for line := range strings.Lines(log) {
		if !strings.Contains(line, dir) ||
			strings.Contains(line, "openat") && !strings.Contains(line, "O_CREAT") {
			continue
		}
		_, line, _ = strings.Cut(line, " ") // the process
		line = strings.TrimSpace(line)
		line, _, _ = strings.Cut(line, ") = ")
		call, args, _ := strings.Cut(line, "(")
		call = strings.TrimSuffix(call, "at2")
		if call = strings.TrimSuffix(call, "2"); strings.HasPrefix(call, "rename") {
			call = "rename"
		}
		for _, path := range regexp.MustCompile(regexp.QuoteMeta(dir)+`[^">]*`).FindAllString(args,
			-1) {
			if strings.HasSuffix(path, ".sidecar-cni-tmp") {
				call += " TEMP"
			} else {
				call += " " + strings.TrimPrefix(std.Or(strings.TrimPrefix(path, dir), "."), "/")
			}
		}
		all = append(all, call)
	}
	return all
}
