package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// The log file's size at which it is rotated, and how many older ones are kept: file.1 is the
// youngest.
const (
	logLimit    = 10 << 20
	logsBehind  = 3
	logAttempts = 3
)

// logFile appends lines to a file that many processes share, since the plugin is one process for
// each call. Each line is one write(2) with O_APPEND, which Linux neither splits nor overwrites,
// and takes no lock.
//
// The process that finds the file full rotates it. It needs the lock on file.lock, which nobody
// waits for: while one process rotates, the others append, to the full file or to the new one.
// flock(2) ends with the process that holds it.
type logFile struct {
	path  string
	limit int64 // of its size in bytes, for which a line or two too many do no harm
}

// Write appends one line. An error of the rotation is returned too, though the line was written
// then.
func (f logFile) Write(line []byte) (int, error) {
	rotation := f.rotateIfFull(len(line))
	for range logAttempts {
		kept, err := f.append(line)
		if err != nil {
			return 0, errors.Join(rotation, err)
		}
		if kept {
			return len(line), rotation
		}
	}
	return 0, errors.Join(rotation,
		fmt.Errorf("write log file %q: it was removed %d times meanwhile", f.path, logAttempts))
}

func (f logFile) append(line []byte) (kept bool, err error) {
	file, err := f.open()
	if err != nil {
		return false, err
	}
	defer file.Close()
	return writeLine(file, line)
}

// writeLine reports whether the file still has a name when the line is in it. It has none if, since
// it was opened, other processes rotated until it was the oldest and removed it.
func writeLine(file *os.File, line []byte) (kept bool, err error) {
	if _, err := file.Write(line); err != nil {
		return false, err
	}
	var info unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &info); err != nil {
		return false, fmt.Errorf("look at log file %q: %w", file.Name(), err)
	}
	return info.Nlink > 0, nil
}

func (f logFile) open() (*os.File, error) {
	// Without O_NONBLOCK opening a pipe would wait for a reader.
	const flags = os.O_APPEND | os.O_CREATE | os.O_WRONLY | unix.O_NONBLOCK
	file, err := os.OpenFile(f.path, flags, 0o600)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(f.path, flags, 0o600)
}

// fullAt returns what the file is if it has no room for so many bytes more, else nil.
func (f logFile) fullAt(more int) fs.FileInfo {
	info, err := os.Stat(f.path)
	if err != nil || !info.Mode().IsRegular() {
		return nil // opening it shows what is wrong
	}
	if info.Size() == 0 || info.Size()+int64(more) <= f.limit {
		return nil
	}
	return info
}

// rotateIfFull makes room for a line, unless another process is doing so.
func (f logFile) rotateIfFull(line int) error {
	if f.fullAt(line) == nil {
		return nil
	}
	lock, err := os.OpenFile(f.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // which unlocks
	switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil
	case err != nil:
		return fmt.Errorf("lock %q: %w", lock.Name(), err)
	}
	// The file that was full may have been rotated before we had the lock, and this name be that of
	// a new one.
	full := f.fullAt(line)
	if full == nil {
		return nil
	}
	return f.rotate(full.Mode().Perm())
}

// rotate renames the file and those behind it, of which the last one goes, and makes a new one. An
// administrator who let others read the log finds it so again.
func (f logFile) rotate(mode fs.FileMode) error {
	name := func(i int) string {
		if i == 0 {
			return f.path
		}
		return f.path + "." + strconv.Itoa(i)
	}
	for i := logsBehind; i > 0; i-- {
		if err := os.Rename(name(i-1), name(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	file, err := f.open()
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Chmod(mode)
}
