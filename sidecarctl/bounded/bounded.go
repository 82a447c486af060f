// Package bounded reads files and streams up to a bound. What is larger is an error: cut, it would
// be taken for something that is broken.
//
//	data, err := bounded.File("/etc/os-release", 1<<20)
//	data, err := bounded.Read(os.Stdin, bounded.Manifest)
package bounded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Manifest is how many bytes a manifest may have, and how many it may come to when its aliases are
// expanded.
const Manifest = 32 << 20

// TooLarge is the error about what has more than so many bytes.
type TooLarge int64

func (t TooLarge) Error() string { return fmt.Sprintf("it is larger than %d MiB", int64(t)>>20) }

// errNoFile is about a pipe, a device or a directory, of which some never end.
var errNoFile = errors.New("it is no file")

// File reads a regular file that has at most so many bytes. The error is an *fs.PathError.
func File(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errNoFile}
	}
	if err != nil {
		return nil, err
	}
	return Named(path, most)
}

// Reason is the cause of an error about a file whose path the message has already.
func Reason(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// Named reads what somebody has named on the command line, which may be a pipe. The error is an
// *fs.PathError.
func Named(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := Read(file, most)
	if _, has := errors.AsType[*fs.PathError](err); err != nil && !has {
		err = &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return data, err
}

// Read reads what has at most so many bytes.
func Read(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = TooLarge(most)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}
