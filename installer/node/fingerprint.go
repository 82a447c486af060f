package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Fingerprint is another one after a change that matters: of anything that Conf.Read returns, or of
// the contents or the mode of one of the files, which may be missing. Whoever compares it with the
// one after its own last writing is not woken by that.
func Fingerprint(conf Conf, files ...string) (string, error) {
	d, err := conf.Read()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, f := range d {
		fmt.Fprintf(h, "%q %v %v %d\n", f.Name, f.Mode, f.Err, len(f.Data))
		h.Write(f.Data)
	}
	for _, name := range files {
		fmt.Fprintf(h, "%q ", name)
		if err := add(h, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("take fingerprint of %s: %w", name, unnamed(err))
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// add writes what counts of a file. Of a big one, a program, that is not its contents but what the
// kernel changes with them: it would otherwise be read at every tick.
func add(h hash.Hash, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%v %d\n", info.Mode(), info.Size())
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && info.Size() > biggestConf {
		fmt.Fprintln(h, stat.Dev, stat.Ino, stat.Mtim, stat.Ctim)
		return nil
	}
	_, err = io.Copy(h, f)
	return err
}
