package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// tempSuffix ends the names of files that are being written: no runtime takes one for a network or
// a plugin.
const tempSuffix = ".sidecar-cni-tmp"

func isTemp(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, tempSuffix)
}

// WriteFile sees to it that a file has these contents and this mode, and reports whether it had to
// change it. It makes no directory.
func WriteFile(path string, data []byte, mode fs.FileMode) (changed bool, err error) {
	if is, err := os.Lstat(path); err == nil && is.Mode() == mode.Perm() &&
		is.Size() == int64(len(data)) {
		if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, data) {
			return false, nil
		}
	}
	if err := replace(path, whole(data, mode), nil); err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, nil
}

// content is what a file shall be.
type content struct {
	mode  fs.FileMode
	write func(io.Writer) error
	owner *owner // nil for ourselves
}

func whole(data []byte, mode fs.FileMode) content {
	return content{mode: mode.Perm(), write: func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}}
}

// owner is whom a file belongs to.
type owner struct{ uid, gid int }

// ownerOf returns the owner of a file, or nil if it is ours already or not there.
func ownerOf(path string) *owner {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil ||
		int(stat.Uid) == os.Geteuid() && int(stat.Gid) == os.Getegid() {
		return nil
	}
	return &owner{int(stat.Uid), int(stat.Gid)}
}

// give makes a file the owner's, which takes the right CHOWN.
func (o *owner) give(f *os.File) error {
	if o == nil {
		return nil
	}
	if err := f.Chown(o.uid, o.gid); err != nil {
		return fmt.Errorf("keep owner %d:%d: %w", o.uid, o.gid, unnamed(err))
	}
	return nil
}

// replace puts new content in a file's place, at once and for good: when it returns, a loss of
// power cannot undo it. The last look is taken when nothing but the renaming is left to do.
func replace(path string, d content, look func() error) error {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, tempPattern(filepath.Base(path)))
	if err != nil {
		return outOfReach(dir, err)
	}
	err = errors.Join(d.write(temp), temp.Chmod(d.mode), d.owner.give(temp), temp.Sync(),
		temp.Close())
	if err == nil && look != nil {
		err = look()
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
		return unnamed(err)
	}
	return syncDir(dir)
}

// syncDir makes the names in a directory outlive a loss of power.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return unnamed(err)
	}
	defer f.Close()
	return unnamed(f.Sync())
}

// Sweep removes what killed writers left in directories. One that is not there has nothing to be
// removed. Be aware that it removes also what another agent is about to rename: hold the run
// directory's lock.
func Sweep(dirs ...string) error {
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("sweep %s: %w", dir, unnamed(err)))
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if !isTemp(e.Name()) || !e.Type().IsRegular() {
				continue
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("sweep %s: %w", path, unnamed(err)))
			}
		}
	}
	return errors.Join(errs...)
}
