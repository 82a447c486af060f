package node_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// trouble is what may be wrong with a disk, and goes away again.
type trouble struct {
	cause error
	begin func(dir string) error
	end   func(dir string) error
}

var troubles = map[string]trouble{
	"full": {unix.ENOSPC, fill,
		func(dir string) error { return os.Remove(filepath.Join(dir, "filler")) }},
	"read-only": {unix.EROFS,
		func(dir string) error {
			return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
		},
		func(dir string) error { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND, "") },
	},
}

// fill takes all that is left.
func fill(dir string) error {
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		return err
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return err
}

// small makes a directory a small disk of its own, for the calling thread.
func small(dir string) error {
	return unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k,mode=0755")
}

// In each kind of trouble everything that writes says what and why, leaves what is there, and works
// when it is over.
func TestTroubleWithTheDisk(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(source, []byte(strings.Repeat("program", 3000)), 0o755))
	actions := map[string]struct {
		file string // that the error names
		do   func(dir string) error
	}{
		"inline": {"10-pods.conflist",
			func(dir string) error { return pass(confOf(dir), "inline") }},
		"owned": {"00-sidecar-cni.conflist",
			func(dir string) error { return pass(confOf(dir), "owned") }},
		"dropin":      {"pods", func(dir string) error { return pass(confOf(dir), "dropin") }},
		"credentials": {"sidecar-cni.d", write},
		"program": {"sidecar-cni", func(dir string) error {
			_, err := node.InstallBinary(source, filepath.Join(dir, "sidecar-cni"))
			return err
		}},
		"run directory": {"uninstalled",
			func(dir string) error { return node.RunDir{Path: dir}.Mark(node.Marker{ID: "x"}) }},
	}
	for name, wrong := range troubles {
		for what, action := range actions {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				within(t, func() {
					fault := func(err error) {
						if err != nil {
							t.Error(err)
						}
					}
					fault(small(dir))
					lay(t, dir, files{"10-pods.conflist": listConf})
					fault(wrong.begin(dir))
					was := tree(t, dir)
					err := action.do(dir)
					if !errors.Is(err, wrong.cause) ||
						!strings.Contains(err.Error(), filepath.Join(dir, action.file)) {
						t.Errorf("error %v: want %v and %s", err, wrong.cause, action.file)
					}
					now := tree(t, dir)
					for made := range now {
						if info, err := os.Stat(filepath.Join(dir, made)); err == nil &&
							info.IsDir() && was[made] == "" {
							delete(now, made) // an empty directory is harmless
						}
					}
					if diff := cmp.Diff(was, now); diff != "" {
						t.Errorf("directory (-before +after):\n%s", diff)
					}
					fault(wrong.end(dir))
					fault(action.do(dir))
				})
			})
		}
	}
}

func write(dir string) error {
	_, err := node.Credentials{Dir: filepath.Join(dir, "sidecar-cni.d")}.Write([]byte("token"),
		[]byte("ca"), "https://192.0.2.1:443")
	return err
}

func TestTheDirectoryIsDeletedInBetween(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"inline", "dropin", "owned"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			conf := lay(t, filepath.Join(t.TempDir(), "net.d"), files{"10-pods.conflist": listConf})
			d, err := conf.Read()
			must(t, err)
			p, err := plan(d, way)
			must(t, err)
			must(t, os.RemoveAll(conf.Path))
			if err := conf.Carry(d, p.Steps, nil); !errors.Is(err, fs.ErrNotExist) ||
				!strings.Contains(err.Error(), conf.Path) {
				t.Errorf("carried out: %v", err)
			}
			if err := conf.Nudge(); !errors.Is(err, fs.ErrNotExist) ||
				!strings.Contains(err.Error(), conf.Path) {
				t.Errorf("nudged: %v", err)
			}
			lay(t, conf.Path, files{"10-pods.conflist": listConf})
			must(t, pass(conf, way))
			must(t, conf.Nudge())
			if got, err := load(t, conf.Path); err != nil || got.Ours != 1 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
