package bounded_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
)

const mib = 1 << 20

func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full, over := filepath.Join(dir, "full"), filepath.Join(dir, "over")
	for path, size := range map[string]int{full: mib, over: mib + 1} {
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, read := range []func(string, int64) ([]byte, error){bounded.File, bounded.Named} {
		if data, err := read(full, mib); len(data) != mib || err != nil {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		want := "read " + over + ": it is larger than 1 MiB"
		if data, err := read(over, mib); data != nil || err == nil || err.Error() != want {
			t.Errorf("%d bytes, %v; want %s", len(data), err, want)
		}
		if _, err := read(filepath.Join(dir, "none"), mib); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	for _, path := range []string{dir, os.DevNull} {
		if _, err := bounded.File(path, mib); err == nil || err.Error() != "read "+path+": it is no file" {
			t.Error(err)
		}
	}
	if data, err := bounded.Named(os.DevNull, mib); len(data) != 0 || err != nil {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	if data, err := bounded.Read(strings.NewReader("a"), 1); string(data) != "a" || err != nil {
		t.Errorf("%s, %v", data, err)
	}
	if data, err := bounded.Read(strings.NewReader("ab"), 1); data != nil || err == nil {
		t.Errorf("%s, %v", data, err)
	}
}
