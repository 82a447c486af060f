package chain

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// Plan is what has to be done to a directory. Without steps nothing has to be.
type Plan struct {
	Way     Way    // never Auto; "" if no network is joined
	Primary string // the file whose network is joined; empty if there is none, and left-overs go
	Network string // its name; empty if there is none
	Steps   []Step // in this order: what brings us in first
}

// Step is one change of a directory. Each is atomic.
type Step struct {
	Op   Op          // which of the other fields count
	Name string      // as File's; of a Rename the old one
	To   string      // of a Rename; what is there is replaced
	Data []byte      // of a Write
	Mode fs.FileMode // of a Write and a MakeDir
	Why  string      // in words, for logs and previews
}

// Op is the kind of a step.
type Op string

// The kinds of steps. RemoveDir is for an empty directory: one that is not empty stays, and that is
// no error.
const (
	Write     Op = "write"
	Rename    Op = "rename"
	Remove    Op = "remove"
	MakeDir   Op = "make directory"
	RemoveDir Op = "remove directory"
)

func (s Step) String() string {
	what := s.Name
	if s.Op == Rename {
		what += " to " + s.To
	}
	return fmt.Sprintf("%s %s: %s", s.Op, what, s.Why)
}

// difference returns the steps from one directory to another: what brings us in first, what takes
// us out last.
func difference(from, to tree) []Step {
	var dirs, in, renames, out, removes, removedDirs []Step
	for _, name := range to.names() {
		f, was := to[name], from[name]
		switch {
		case from.has(name) && was.equal(f):
		case renamed(from, to, name) != "":
			renames = append(renames, Step{Op: Rename, Name: renamed(from, to, name), To: name})
		case f.Mode.IsDir():
			dirs = append(dirs, Step{Op: MakeDir, Name: name, Mode: f.Mode})
		case f.carriesUs():
			in = append(in, Step{Op: Write, Name: name, Data: f.Data, Mode: f.Mode.Perm()})
		default:
			out = append(out, Step{Op: Write, Name: name, Data: f.Data, Mode: f.Mode.Perm()})
		}
	}
	for _, name := range from.names() {
		switch {
		case to.has(name) || moved(renames, name):
		case from[name].Mode.IsDir():
			removedDirs = append(removedDirs, Step{Op: RemoveDir, Name: name})
		default:
			removes = append(removes, Step{Op: Remove, Name: name})
		}
	}
	steps := slices.Concat(dirs, in, renames, out, removes, removedDirs)
	for i, s := range steps {
		steps[i].Why = s.why()
	}
	return steps
}

// renamed returns the name that a file of the new directory has in the old one: wrapping and
// unwrapping move the original.
func renamed(from, to tree, name string) string {
	other := name + SavedSuffix
	if original, ok := strings.CutSuffix(name, SavedSuffix); ok {
		other = original
	}
	if from.has(other) && !to.has(other) && from[other].equal(to[name]) {
		return other
	}
	return ""
}

func moved(renames []Step, name string) bool {
	return slices.ContainsFunc(renames, func(s Step) bool { return s.Name == name })
}

// why says what a step is for. It goes by names and contents.
func (s Step) why() string {
	f := File{Name: s.Name, Data: s.Data}
	dir := path.Dir(s.Name)
	switch {
	case s.Op == MakeDir:
		return "for the drop-ins of the network " + s.Name
	case s.Op == RemoveDir:
		return "it was for a drop-in of ours, and is empty"
	case s.Op == Rename && strings.HasSuffix(s.To, SavedSuffix):
		return wrapName(s.Name) + " wraps it"
	case s.Op == Rename:
		return "it is no longer wrapped"
	case s.Op == Remove && strings.HasSuffix(s.Name, SavedSuffix):
		return "what it was saved for has been replaced by another writer"
	case s.Op == Remove:
		return "it was written by us and is no longer needed"
	case s.Name == ownedName:
		return "a copy of the primary, and our entry"
	case isDropInOfOurs(s.Name):
		return "our entry, which the runtime merges into the network " + dir
	case wrapped(s.Data) != "":
		return "a list of the plugin of " + wrapped(s.Data) + ", and our entry"
	case f.carriesUs():
		return "our entry, the last of the chain"
	default:
		return "our entry is taken out"
	}
}

// check refuses to write what libcni cannot load. Nothing that Install and Uninstall make should
// ever get here.
func (p Plan) check() error {
	for _, s := range p.Steps {
		if s.Op != Write {
			continue
		}
		var err error
		if isList(s.Name) {
			_, err = libcni.NetworkConfFromBytes(s.Data)
		} else {
			_, err = libcni.NetworkPluginConfFromBytes(s.Data)
		}
		if err != nil {
			return refuse(Broken, s.Name, "write %s: libcni could not load it: %v", s.Name, err)
		}
	}
	return nil
}
