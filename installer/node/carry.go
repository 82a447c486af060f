package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
)

// ErrChanged says that a file is no longer as it was read: another writer was there. Read anew, and
// plan anew.
var ErrChanged = errors.New("another writer was there meanwhile")

// reloadGrace is how long a runtime is given to load the last change. It lists the directory and
// then opens a file: one that goes in between leaves it without a network until it looks again.
const reloadGrace = 50 * time.Millisecond

// Carry carries out steps that were planned for the directory as it was read, in their order, and
// reports each when it is done. An error ends it; what is done until then stays, and is as good as
// a pass that was killed there.
func (c Conf) Carry(d chain.Dir, steps []chain.Step, done func(chain.Step)) error {
	for _, s := range steps {
		if err := c.step(d, s); err != nil {
			return fmt.Errorf("%s %s: %w", s.Op, c.at(s.Name), err)
		}
		d = d.After(s)
		done(s)
	}
	return nil
}

// step carries one out, if what it touches is still as it was read.
func (c Conf) step(d chain.Dir, s chain.Step) error {
	if s.Op == chain.Write {
		path, err := c.leads(s.Name)
		if err != nil {
			return err
		}
		edited := whole(s.Data, s.Mode)
		edited.owner = ownerOf(path)
		return replace(path, edited, func() error { return c.same(d, s) })
	}
	if s.Op == chain.Rename || s.Op == chain.Remove {
		time.Sleep(reloadGrace)
	}
	if s.Op != chain.RemoveDir { // of those only an empty one goes, whatever it was
		if err := c.same(d, s); err != nil {
			return err
		}
	}
	path := c.at(s.Name)
	var err error
	switch s.Op {
	case chain.Rename:
		err = os.Rename(path, c.at(s.To))
	case chain.Remove:
		err = os.Remove(path)
	case chain.MakeDir:
		err = os.Mkdir(path, s.Mode.Perm())
		if err == nil {
			err = os.Chmod(path, s.Mode.Perm()) // whatever our umask
		}
	case chain.RemoveDir:
		err = removeEmpty(path)
	default:
		err = errors.New("no such step")
	}
	if err != nil {
		return unnamed(err)
	}
	return c.sync(s)
}

// sync makes a step outlive a loss of power.
func (c Conf) sync(s chain.Step) error {
	dirs := []string{filepath.Dir(c.at(s.Name))}
	if to := filepath.Dir(c.at(s.To)); s.Op == chain.Rename && to != dirs[0] {
		dirs = append(dirs, to)
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, syncDir(dir))
	}
	return errors.Join(errs...)
}

// same compares what a step touches with what was read.
func (c Conf) same(d chain.Dir, s chain.Step) error {
	names := []string{s.Name}
	if s.Op == chain.Rename {
		names = append(names, s.To)
	}
	for _, name := range names {
		now, is := c.look(name)
		if then, was := find(d, name); is != was || !equal(then, now) {
			return ErrChanged
		}
	}
	return nil
}

func find(d chain.Dir, name string) (chain.File, bool) {
	for _, f := range d {
		if f.Name == name {
			return f, true
		}
	}
	return chain.File{Name: name}, false
}

func equal(a, b chain.File) bool {
	return a.Mode.IsDir() == b.Mode.IsDir() && a.Mode.Perm() == b.Mode.Perm() &&
		(a.Err == nil) == (b.Err == nil) && bytes.Equal(a.Data, b.Data)
}

// leads is where a file is written. A link stays one, if what it leads to is in the directory too;
// elsewhere nobody would remove what a killed pass left.
func (c Conf) leads(name string) (string, error) {
	path := c.at(name)
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		return path, nil //nolint:nilerr // writing will show what is wrong with the path
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", unnamed(err)
	}
	root, err := filepath.EvalSymlinks(c.Path)
	if err != nil {
		return "", unnamed(err)
	}
	if dir := filepath.Dir(target); dir != root && filepath.Dir(dir) != root {
		return "", fmt.Errorf("it is a link to %s, out of the directory: put the file itself "+
			"there, or configure another way", target)
	}
	return target, nil
}

// removeEmpty removes a directory if it is empty and there.
func removeEmpty(dir string) error {
	err := unix.Rmdir(dir)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) ||
		errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
