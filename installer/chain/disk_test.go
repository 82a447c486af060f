package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

// disk is a conf directory on a real disk: what chain says of a directory is held against what
// libcni makes of it.
type disk struct {
	t    testing.TB
	path string
}

func newDisk(t testing.TB, d Dir) disk {
	t.Helper()
	k := disk{t, t.TempDir()}
	for _, f := range d {
		if f.Err != nil {
			continue // root reads everything
		}
		name := filepath.Join(k.path, f.Name)
		if f.Mode.IsDir() {
			k.must(os.MkdirAll(name, f.Mode.Perm()))
			continue
		}
		k.must(os.MkdirAll(filepath.Dir(name), 0o755))
		k.must(os.WriteFile(name, f.Data, f.Mode.Perm()))
	}
	return k
}

func (k disk) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// read is what the caller of this package does.
func (k disk) read() Dir {
	k.t.Helper()
	var d Dir
	k.must(filepath.WalkDir(k.path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == k.path {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(k.path, path)
		f := File{Name: name, Mode: info.Mode()}
		if err == nil && !entry.IsDir() {
			f.Data, err = os.ReadFile(path)
		}
		d = append(d, f)
		return err
	}))
	return d.tree().dir()
}

func (k disk) do(s Step) {
	k.t.Helper()
	name := filepath.Join(k.path, s.Name)
	switch s.Op {
	case Write:
		k.must(os.WriteFile(name+".temp", s.Data, s.Mode.Perm()))
		k.must(os.Chmod(name+".temp", s.Mode.Perm()))
		k.must(os.Rename(name+".temp", name))
	case Rename:
		k.must(os.Rename(name, filepath.Join(k.path, s.To)))
	case Remove:
		k.must(os.Remove(name))
	case MakeDir:
		k.must(os.Mkdir(name, s.Mode.Perm()))
	case RemoveDir:
		k.must(os.Remove(name))
	default:
		k.t.Fatalf("step %q", s.Op)
	}
}

// loaded is the chain that a runtime has.
type loaded struct {
	Name, Version string
	Plugins       []any // without ours
	Ours          int
}

// load does what containerd does, with the generation of libcni that merges drop-ins or the one
// that knows none.
func (k disk) load(dropIns bool) (loaded, error) {
	k.t.Helper()
	files, err := libcni.ConfFiles(k.path, []string{".conf", ".conflist", ".json"})
	k.must(err)
	if len(files) == 0 {
		return loaded{}, errors.New("no network")
	}
	slices.Sort(files)
	var list *libcni.NetworkConfigList
	if dropIns && isList(files[0]) {
		list, err = libcni.NetworkConfFromFile(files[0])
	} else {
		var data []byte
		data, err = os.ReadFile(files[0])
		k.must(err)
		list, err = fromBytes(files[0], data)
	}
	if err != nil {
		return loaded{}, err
	}
	return toLoaded(k.t, list), nil
}

func fromBytes(name string, data []byte) (*libcni.NetworkConfigList, error) {
	if isList(name) {
		return libcni.NetworkConfFromBytes(data)
	}
	conf, err := libcni.NetworkPluginConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf) //nolint:staticcheck // containerd still does
}

// load is the same without a disk, for tests that load many thousand times.
func (d Dir) load(t testing.TB) (loaded, error) {
	t.Helper()
	f, err := d.tree().primary()
	if err != nil {
		return loaded{}, err
	}
	list, err := fromBytes(f.Name, f.Data)
	if err != nil {
		return loaded{}, err
	}
	merges := isList(f.Name) && !list.LoadOnlyInlinedPlugins
	for _, f := range d.tree().dir() {
		if !merges || filepath.Dir(f.Name) != list.Name || filepath.Ext(f.Name) != ".conf" {
			continue
		}
		p, err := libcni.NetworkPluginConfFromBytes(f.Data)
		if err != nil {
			return loaded{}, err
		}
		list.Plugins = append(list.Plugins, p)
	}
	return toLoaded(t, list), nil
}

func toLoaded(t testing.TB, list *libcni.NetworkConfigList) loaded {
	l := loaded{Name: list.Name, Version: list.CNIVersion}
	for _, p := range list.Plugins {
		if p.Network.Type == names.Plugin {
			l.Ours++
			continue
		}
		l.Plugins = append(l.Plugins, decoded(t, p.Bytes))
	}
	return l
}

func decoded(t testing.TB, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

// text is a directory in a form that reads well in a difference.
func (d Dir) text() []string {
	var lines []string
	for _, f := range d.tree().dir() {
		lines = append(lines, f.Mode.String()+" "+f.Name)
		for line := range strings.SplitSeq(string(f.Data), "\n") {
			lines = append(lines, "    "+line)
		}
	}
	return lines
}
