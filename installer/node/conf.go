package node

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
)

// biggestConf is far more than any configuration has. Whoever puts more into a file shall not fill
// our memory.
const biggestConf = 4 << 20

// readable are the endings of files whose contents matter to package chain.
var readable = []string{".conf", ".conflist", ".json", chain.SavedSuffix}

// Conf is a conf directory: the runtime's, or that of Multus.
type Conf struct {
	Path string // as this program sees it
}

// Read returns everything that is directly in the directory, and directly in its sub-directories,
// but what is ours beside the chain: the credentials and the temporary files. A file or
// sub-directory that cannot be read says why. If the directory itself cannot be read, or has been
// deleted on the node since it was mounted, that is the error.
func (c Conf) Read() (chain.Dir, error) {
	all, err := list(c.Path)
	if err != nil {
		return nil, fmt.Errorf("read conf directory %s: %w", c.Path, err)
	}
	var d chain.Dir
	for _, name := range all {
		if name == names.CredentialsDir { // which has nothing to do with the chain
			continue
		}
		f, there := c.look(name)
		if !there {
			continue
		}
		var inside []string
		if f.Mode.IsDir() {
			inside, f.Err = list(c.at(name))
		}
		d = append(d, f)
		for _, one := range inside {
			if f, there := c.look(path.Join(name, one)); there {
				d = append(d, f)
			}
		}
	}
	return d, nil
}

func (c Conf) at(name string) string { return filepath.Join(c.Path, name) }

// list returns the names in a directory, without those of temporary files.
func list(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, outOfReach(dir, err)
	}
	defer f.Close()
	if err := unlinked(f); err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, unnamed(err)
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, isTemp), nil
}

// ErrDeleted is of a directory that nobody can reach by its name any more. To a container that it
// was mounted into it looks empty, and stays so.
var ErrDeleted = fmt.Errorf("it was deleted on the node after it was mounted: the agent has to "+
	"be started anew: %w", fs.ErrNotExist)

// unlinked is ErrDeleted if an open directory is such a one.
func unlinked(dir *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return err
	}
	if stat.Nlink == 0 {
		return ErrDeleted
	}
	return nil
}

// Deleted is ErrDeleted of a directory if it, or the parent that was mounted in its place, was
// deleted on the node. It is nil of one that is merely missing, which whoever deleted it can make
// again, and of one that is there.
func Deleted(dir string) error {
	f, err := os.Open(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		f, err = os.Open(dir)
	}
	if err != nil {
		return nil
	}
	defer f.Close()
	return unlinked(f)
}

// outOfReach explains an error about a directory as well as it can: it was deleted, leads out of
// what is mounted, or belongs to somebody else.
func outOfReach(dir string, err error) error {
	return cmp.Or(Deleted(dir), missingLink(dir), foreignDir(dir, err), unnamed(err))
}

// missingLink explains a directory that is a link out of what is mounted here.
func missingLink(dir string) error {
	to, notLink := os.Readlink(dir)
	if notLink != nil {
		return nil //nolint:nilerr // whoever could not reach it says why
	}
	return fmt.Errorf("it is a link to %s, which is not there or not mounted into the agent's "+
		"pod: set the chart's mountParents to false, "+
		"so that the directory itself is mounted: %w", to, fs.ErrNotExist)
}

// foreignDir explains a directory that belongs to somebody else and may not be used for that
// reason.
func foreignDir(dir string, err error) error {
	var stat unix.Stat_t
	if !errors.Is(err, fs.ErrPermission) || unix.Stat(dir, &stat) != nil ||
		int(stat.Uid) == os.Geteuid() {
		return nil //nolint:nilerr // the caller has the error, and this only explains it
	}
	return fmt.Errorf("the directory belongs to uid %d and has mode %04o, and the agent may use "+
		"it only with the capability DAC_OVERRIDE: "+
		"let root own it, or set the chart's extraCapabilities to {DAC_OVERRIDE}: %w", stat.Uid,
		stat.Mode&0o7777, unnamed(err))
}

// Provide makes a directory that is missing, and its parents: what the kubelet does for a directory
// that it mounts, where the parent is mounted.
func Provide(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	return cmp.Or(missingLink(dir), os.MkdirAll(dir, 0o755))
}

// look returns what is under a name; it may have gone since it was listed.
func (c Conf) look(name string) (f chain.File, there bool) {
	f.Name = name
	info, err := os.Stat(c.at(name)) // a link is what it leads to
	if err != nil {
		link, gone := os.Lstat(c.at(name))
		if errors.Is(gone, fs.ErrNotExist) {
			return f, false
		}
		f.Err = unnamed(err)
		if gone == nil {
			f.Mode = link.Mode().Perm()
			f.Err = c.explainLink(name, f.Err)
		}
		return f, true
	}
	f.Mode = info.Mode()
	if !f.Mode.IsDir() && slices.Contains(readable, path.Ext(name)) {
		f.Data, f.Err = contents(c.at(name))
	}
	return f, !errors.Is(f.Err, fs.ErrNotExist)
}

// explainLink says of a link that leads nowhere where it leads: out of what is mounted here, most
// often.
func (c Conf) explainLink(name string, err error) error {
	to, notLink := os.Readlink(c.at(name))
	if notLink != nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("a link to %s, which is not there or not mounted into the agent's pod: "+
		"have the file itself in the conf directory, or use the directory that it is in: %w", to,
		err)
}

// explainOwner says of a file that may not be read whose it is, and what is missing.
func explainOwner(name string, err error) error {
	var stat unix.Stat_t
	if unix.Stat(name, &stat) != nil {
		return err
	}
	return fmt.Errorf("it belongs to uid %d and has mode %04o, and the agent may read such a "+
		"file only with the capability "+
		"DAC_READ_SEARCH, which the chart gives it unless repair.mode is off: let root own the "+
		"file, or everybody read it: %w",
		stat.Uid, stat.Mode&0o7777, err)
}

// contents reads a regular file: opening a pipe, which somebody may have put there, would wait for
// a writer.
func contents(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil, explainOwner(name, unnamed(err))
	}
	if err != nil {
		return nil, unnamed(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("not a regular file"))
	}
	data, err := io.ReadAll(io.LimitReader(f, biggestConf+1))
	if err == nil && len(data) > biggestConf {
		return nil, fmt.Errorf("more than %d bytes: not a configuration", biggestConf)
	}
	return data, unnamed(err)
}

// Sweep removes what killed passes left in the directory and its sub-directories.
func (c Conf) Sweep() error {
	dirs := []string{c.Path}
	entries, err := os.ReadDir(c.Path)
	if err != nil {
		return fmt.Errorf("sweep conf directory %s: %w", c.Path, outOfReach(c.Path, err))
	}
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, c.at(e.Name()))
		}
	}
	return Sweep(dirs...)
}

// Nudge makes the runtime read the directory. It has to after a change of a drop-in: runtimes watch
// the directory itself and not its sub-directories. containerd passes over the creation of a file,
// but not over its removal.
func (c Conf) Nudge() error {
	temp, err := os.CreateTemp(c.Path, tempPattern("nudge"))
	if err == nil {
		temp.Close()
		err = os.Remove(temp.Name())
	}
	if err != nil {
		return fmt.Errorf("nudge the runtime in %s: %w", c.Path, unnamed(err))
	}
	return nil
}

// unnamed drops the file's name from an error: it may be a temporary one, and the text around it
// has the one that counts.
func unnamed(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

func tempPattern(name string) string {
	return "." + strings.TrimPrefix(name, ".") + ".*" +
		tempSuffix
}
