package podfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// tempName is that of a file that is being written. It is no uid, so no plugin opens it; there is
// one writer at a time.
const tempName = ".new"

// markName is that of an empty file, another one for each agent that takes over: by it an agent
// that was in charge before, and is again, learns that others have been meanwhile.
const markName = ".taken"

// errReplaced says that the directory is not the one that was taken over: somebody has removed it.
var errReplaced = errors.New("the directory was removed, or made anew")

// folder is the directory, opened: whatever gets its name meanwhile is left alone.
type folder struct{ root *os.Root }

// takeOver begins anew, as an agent that has just taken charge: nothing is fresh any more, and what
// is not the file of a pod goes.
func (f *Files) takeOver(member *node.Membership) error {
	err := member.Lead(func() error {
		if err := prepare(f.dir); err != nil {
			return cause(err)
		}
		d, err := open(f.dir)
		if err != nil {
			return err
		}
		defer d.close()
		if err := d.root.RemoveAll(podfile.FreshFile); err != nil {
			return cause(err)
		}
		mark, err := d.mark()
		if err != nil {
			return err
		}
		f.unmark()
		f.mark = mark
		f.files, f.bytes = map[types.UID]*file{}, 0
		if err := d.sweep(f.found); err != nil {
			return err
		}
		f.taken = member
		return nil
	})
	if err != nil {
		return fmt.Errorf("take over pod files: %w", err)
	}
	return nil
}

// change does something in the directory that was taken over, while this agent is in charge.
func (f *Files) change(do func(d *folder) error) error {
	return f.taken.Lead(func() error {
		d, err := open(f.dir)
		if errors.Is(err, fs.ErrNotExist) {
			return errReplaced
		}
		if err != nil {
			return err
		}
		defer d.close()
		if err := d.check(f.mark); err != nil {
			return err
		}
		return do(d)
	})
}

// refresh says that the files were what the cache said at that time since the node's boot.
func (f *Files) refresh(now time.Duration) error {
	var fresh *os.File
	err := f.change(func(d *folder) error {
		var err error
		fresh, err = d.temp(podfile.EncodeTime(now), lock)
		if err == nil {
			err = d.place(podfile.FreshFile)
		}
		return err
	})
	if err != nil {
		if fresh != nil {
			fresh.Close()
		}
		return fmt.Errorf("refresh pod files: %w", err)
	}
	f.release() // the one before, which nobody finds any more
	f.fresh, f.refreshed = fresh, now
	f.counts.fresh.SetToCurrentTime()
	return nil
}

// open opens the directory, and no link to one.
func open(path string) (*folder, error) {
	place, err := os.Lstat(path)
	if err != nil {
		return nil, cause(err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, cause(err)
	}
	d := &folder{root}
	if opened, err := root.Stat("."); err != nil || !os.SameFile(place, opened) {
		d.close()
		return nil, errors.Join(errReplaced, err)
	}
	return d, nil
}

func (d *folder) close() { _ = d.root.Close() } // nothing was written by this descriptor

// mark puts a mark into the directory. It stays open, so that no other file gets its number.
func (d *folder) mark() (*os.File, error) {
	if err := d.root.RemoveAll(markName); err != nil {
		return nil, cause(err)
	}
	mark, err := d.root.OpenFile(markName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return mark, cause(err)
}

// check compares a mark with that of the directory. What another agent has marked it has written
// anew, and may have left to us: that is to be taken over again, however soon it ended.
func (d *folder) check(mark *os.File) error {
	found, err := d.root.Lstat(markName)
	if errors.Is(err, fs.ErrNotExist) {
		return errReplaced
	}
	if err != nil {
		return cause(err)
	}
	ours, err := mark.Stat()
	if err == nil && !os.SameFile(ours, found) {
		err = node.ErrSuperseded
	}
	return cause(err)
}

// prepare makes the directory, if there is none that belongs to root alone. What is there in its
// place, or was open to others, goes with all that is in it: they may still have it open.
func prepare(dir string) error {
	if is, err := os.Lstat(dir); err == nil {
		owner, known := is.Sys().(*syscall.Stat_t)
		if is.Mode() == fs.ModeDir|0o700 && known && int64(owner.Uid) == int64(os.Geteuid()) {
			return nil
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return os.Mkdir(dir, 0o700)
}

// look compares the directory with what was written there: nothing else tells that somebody has
// removed a file, as a cleaner of /run may, or put one there. The update that follows writes anew
// what differs, or removes it.
func (f *Files) look() error {
	there := map[types.UID]int64{}
	err := f.change(func(d *folder) error {
		return d.sweep(func(uid types.UID, length int64) { there[uid] = length })
	})
	if err != nil {
		return fmt.Errorf("look at pod files: %w", err)
	}
	for uid, of := range f.files {
		if of.length != there[uid] {
			f.found(uid, there[uid])
		}
		delete(there, uid)
	}
	for uid, length := range there {
		f.found(uid, length)
	}
	return nil
}

// found notes a file that is not as this agent has left it, or that is gone: its length is 0 then.
func (f *Files) found(uid types.UID, length int64) {
	if was := f.files[uid]; was != nil {
		f.bytes -= was.bytes
	}
	f.files[uid] = &file{length: length, bytes: f.size(length)}
	f.bytes += f.size(length)
}

// sweep calls left with each file of a pod, and removes what is none.
func (d *folder) sweep(left func(uid types.UID, bytes int64)) error {
	all, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return cause(err)
	}
	for _, entry := range all {
		if entry.Name() == markName || entry.Name() == podfile.FreshFile {
			continue
		}
		info, err := entry.Info()
		if err == nil && podfile.ValidName(entry.Name()) && info.Mode().IsRegular() &&
			info.Size() > 0 && info.Size() <= podfile.MaxFile {
			left(types.UID(entry.Name()), info.Size())
			continue
		}
		if err := d.root.RemoveAll(entry.Name()); err != nil {
			return cause(err)
		}
	}
	return nil
}

// write puts a file in the place of another one, if there is one. It is not synced: after a loss
// of power nothing in /run is left.
func (d *folder) write(name string, data []byte) error {
	temp, err := d.temp(data, nil)
	if err != nil {
		return err
	}
	return errors.Join(cause(temp.Close()), d.place(name))
}

// temp writes the file that gets its name later. before, which may be nil, comes before its first
// byte.
func (d *folder) temp(data []byte, before func(*os.File) error) (*os.File, error) {
	temp, err := d.root.OpenFile(tempName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		_ = d.root.Remove(tempName) // for the next one, if it was there
		return nil, cause(err)
	}
	if before != nil {
		err = before(temp)
	}
	if err == nil {
		_, err = temp.Write(data)
	}
	if err != nil {
		return nil, errors.Join(cause(err), temp.Close(), d.root.Remove(tempName))
	}
	return temp, nil
}

// lock makes a file one that somebody holds, until it is closed or the process has ended.
func lock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// place gives the file that was written its name.
func (d *folder) place(name string) error {
	err := d.root.Rename(tempName, name)
	if err != nil {
		_ = d.root.Remove(tempName)
	}
	return cause(err)
}

func (d *folder) remove(name string) error {
	if err := d.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return cause(err)
	}
	return nil
}

// cause is an error without the names of files: about each of them it would be another one.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}
