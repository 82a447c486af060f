package chain

import (
	"bytes"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// File is a file of a conf directory, or a sub-directory, as it was found.
type File struct {
	Name string      // relative, with a slash for a drop-in: "cbr0/99-sidecar-cni.conf"
	Data []byte      // nil for a sub-directory, and if there is an Err
	Mode fs.FileMode // with fs.ModeDir for a sub-directory
	Err  error       // why it could not be read
}

// Dir is a conf directory at one moment: everything directly in it, as libcni sees it (a link is
// what it leads to), and what is directly in its sub-directories. What is in files that do not end
// with .conf, .conflist, .json or .sidecar-cni-saved does not matter; that they are there does.
type Dir []File

// The names that are ours in a conf directory, beside StandaloneName.
const (
	// ownedName sorts before what CNIs call their files.
	ownedName = "00-sidecar-cni.conflist"
	// DropInName is ours in a network's sub-directory: libcni merges drop-ins in the order of their
	// names, and ours wants to be the last.
	DropInName = "99-sidecar-cni.conf"
	// SavedSuffix is for a file that is wrapped: no runtime takes it for a network.
	SavedSuffix = ".sidecar-cni-saved"
)

// After returns the directory as the steps leave it.
func (d Dir) After(steps ...Step) Dir {
	t := d.tree()
	for _, s := range steps {
		switch s.Op {
		case Write:
			t[s.Name] = File{Name: s.Name, Data: s.Data, Mode: s.Mode}
		case Rename:
			f := t[s.Name]
			f.Name = s.To
			delete(t, s.Name)
			t[s.To] = f
		case Remove, RemoveDir:
			delete(t, s.Name)
		case MakeDir:
			t[s.Name] = File{Name: s.Name, Mode: s.Mode}
		}
	}
	return t.dir()
}

// tree is a directory by name.
type tree map[string]File

func (d Dir) tree() tree {
	t := make(tree, len(d))
	for _, f := range d {
		t[f.Name] = f
	}
	return t
}

func (t tree) dir() Dir {
	var d Dir
	for _, name := range t.names() {
		d = append(d, t[name])
	}
	return d
}

func (t tree) names() []string { return slices.Sorted(maps.Keys(t)) }

func (t tree) has(name string) bool {
	_, ok := t[name]
	return ok
}

// confs are the files that the runtime takes for networks, in its order.
func (t tree) confs() []string {
	var confs []string
	for _, name := range t.names() {
		if isConf(name) && !t[name].Mode.IsDir() {
			confs = append(confs, name)
		}
	}
	return confs
}

func isConf(name string) bool {
	return !strings.Contains(name, "/") && (isList(name) || isSingle(name))
}

func isList(name string) bool { return path.Ext(name) == ".conflist" }

func isSingle(name string) bool { return path.Ext(name) == ".conf" || path.Ext(name) == ".json" }

func isDropInOfOurs(name string) bool {
	dir, base := path.Split(name)
	return dir != "" && base == DropInName
}

// dropIns are the files that libcni merges into a network, in its order.
func (t tree) dropIns(network string) []string {
	var dropIns []string
	for _, name := range t.names() {
		if path.Dir(name) == network && path.Ext(name) == ".conf" && !t[name].Mode.IsDir() {
			dropIns = append(dropIns, name)
		}
	}
	return dropIns
}

// inside reports whether anything is known to be in a sub-directory.
func (t tree) inside(dir string) bool {
	for name := range t {
		if path.Dir(name) == dir {
			return true
		}
	}
	return false
}

// primary returns the file that containerd loads: the first by name. One that does not parse is not
// passed over, since containerd stops at it; see Spec.SkipsBroken.
func (t tree) primary() (File, error) {
	confs := t.confs()
	if len(confs) == 0 {
		return File{}, refuse(NoNetwork, "", "no file is a network: waiting for the network "+
			"plugin to write one")
	}
	return t[confs[0]], nil
}

func (f File) equal(g File) bool {
	return f.Mode.IsDir() == g.Mode.IsDir() && bytes.Equal(f.Data, g.Data)
}
