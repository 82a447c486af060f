package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const programMode fs.FileMode = 0o755

// InstallBinary sees to it that a program is a copy of another, to the last byte, and reports
// whether it had to change it. A process that runs the old one keeps it. What a killed installation
// left in the directory is removed, see Sweep.
func InstallBinary(from, to string) (changed bool, err error) {
	source, err := os.Open(from)
	if err != nil {
		return false, fmt.Errorf("read program %s: %w", from, unnamed(err))
	}
	defer source.Close()
	equal, err := copied(source, to)
	if err != nil {
		return false, fmt.Errorf("read program %s: %w", from, unnamed(err))
	}
	if equal {
		return false, nil
	}
	// A program is big: one that could not be finished for lack of space must not be in the way.
	if err := Sweep(filepath.Dir(to)); err != nil {
		return false, err
	}
	d := content{mode: programMode, write: func(w io.Writer) error {
		_, err := io.Copy(w, source)
		return err
	}}
	if err := replace(to, d, nil); err != nil {
		return false, fmt.Errorf("install program %s: %w", to, err)
	}
	return true, nil
}

// copied reports whether a program is as it should be, and leaves the source at its beginning. An
// error is about the source.
func copied(source *os.File, to string) (bool, error) {
	info, err := source.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return false, errors.New("want a file that is not empty")
	}
	there, err := os.Lstat(to)
	if err != nil || there.Mode() != programMode {
		return false, nil // replacing it will show what is wrong with it
	}
	target, err := os.Open(to)
	if err != nil {
		return false, nil
	}
	defer target.Close()
	equal, err := sameBytes(source, target)
	if err == nil && !equal {
		_, err = source.Seek(0, io.SeekStart)
	}
	return equal, err
}

// sameBytes compares two files. An error is about the first; a second one that cannot be read is
// another one.
func sameBytes(a, b io.Reader) (bool, error) {
	const chunk = 64 << 10
	left, right := make([]byte, chunk), make([]byte, chunk)
	for {
		n, err := io.ReadFull(a, left)
		m, _ := io.ReadFull(b, right)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return false, err
		}
		if same := bytes.Equal(left[:n], right[:m]); !same || end {
			return same, nil
		}
	}
}
