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

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// seen is a directory in a form that reads well in a difference.
func seen(d chain.Dir) []string {
	var all []string
	for _, f := range d {
		line := f.Mode.String() + " " + f.Name + " " + string(f.Data)
		if f.Err != nil {
			line += " (" + f.Err.Error() + ")"
		}
		all = append(all, line)
	}
	return all
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	conf := lay(t, dir, files{
		"10-pods.conflist":             "list",
		"20-pods.conf":                 "single",
		"30-pods.json":                 "json",
		"10-x.conf.sidecar-cni-saved":  "saved",
		"calico-kubeconfig":            "not read",
		"pods/99-sidecar-cni.conf":     "drop-in",
		"pods/deeper/10-x.conf":        "too deep",
		"sidecar-cni.d/token":          "ours",
		"other/sidecar-cni.d":          "not ours",
		".10-x.conf.1.sidecar-cni-tmp": "temporary",
		"pods/.x.conf.sidecar-cni-tmp": "temporary",
	})
	must(t, os.Symlink("10-pods.conflist", filepath.Join(dir, "40-link.conflist")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "50-dangling.conf")))
	must(t, unix.Mkfifo(filepath.Join(dir, "60-pipe.conf"), 0o640))
	must(t, os.WriteFile(filepath.Join(dir, "70-big.conf"), make([]byte, 5<<20), 0o640))
	must(t, os.Chmod(filepath.Join(dir, "70-big.conf"), 0o640))
	got, err := conf.Read()
	must(t, err)
	want := []string{
		"-rw-r----- 10-pods.conflist list",
		"-rw-r----- 10-x.conf.sidecar-cni-saved saved",
		"-rw-r----- 20-pods.conf single",
		"-rw-r----- 30-pods.json json",
		"-rw-r----- 40-link.conflist list",
		"-rwxrwxrwx 50-dangling.conf  (a link to nowhere, which is not there or not mounted into " +
			"the agent's pod: have the file itself in the conf directory, or use the directory " +
			"that it is in: no such file or directory)",
		"prw-r----- 60-pipe.conf  (not a regular file)",
		"-rw-r----- 70-big.conf  (more than 4194304 bytes: not a configuration)",
		"-rw-r----- calico-kubeconfig ",
		"drwxr-xr-x other ",
		"-rw-r----- other/sidecar-cni.d ",
		"drwxr-xr-x pods ",
		"-rw-r----- pods/99-sidecar-cni.conf drop-in",
		"drwxr-xr-x pods/deeper ",
	}
	if diff := cmp.Diff(want, seen(got)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
}

func TestReadNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "absent")
	if d, err := (node.Conf{Path: dir}).Read(); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("%v, %v", seen(d), err)
	}
}

// A container sees an empty directory where one was mounted into it and then deleted: not one
// without networks.
func TestReadADirectoryThatWasDeletedUnderAMount(t *testing.T) {
	t.Parallel()
	host, container := t.TempDir(), t.TempDir()
	dir := filepath.Join(host, "net.d")
	must(t, os.Mkdir(dir, 0o755))
	within(t, func() {
		if err := unix.Mount(dir, container, "", unix.MS_BIND, ""); err != nil {
			t.Error(err)
			return
		}
		must := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		conf := node.Conf{Path: container}
		_, err := conf.Read()
		must(err)
		must(unix.Unshare(unix.CLONE_FS))
		// The mount below keeps the kernel from removing it by this namespace's name; from the
		// host's it goes.
		removed := make(chan error)
		go func() { removed <- os.Remove(dir) }()
		must(<-removed)
		if d, err := conf.Read(); err == nil ||
			!strings.Contains(err.Error(), "has to be started anew") {
			t.Errorf("%v, %v", seen(d), err)
		}
	})
}

// What is done to a directory that another writer was in since it was read.
func TestCarryMeetsAnotherWriter(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		before files
		way    string
		meet   func(t *testing.T, dir string)
	}{
		"who changed what is written": {withList, "inline", func(t *testing.T, dir string) {
			lay(t, dir, files{"10-pods.conflist": strings.Replace(listConf, "cni0", "cni1", 1)})
		}},
		"who changed its mode": {withList, "inline", func(t *testing.T, dir string) {
			must(t, os.Chmod(filepath.Join(dir, "10-pods.conflist"), 0o600))
		}},
		"who removed what is written": {withList, "inline", func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "10-pods.conflist")))
		}},
		"who made what is written": {withList, "owned", func(t *testing.T, dir string) {
			lay(t, dir, files{"00-sidecar-cni.conflist": listConf})
		}},
		"who changed what is wrapped": {withSingle, "inline", func(t *testing.T, dir string) {
			lay(t, dir, files{"10-pods.conf": strings.Replace(singleConf, "bridge", "ptp", 1)})
		}},
		"who removed what is wrapped": {withSingle, "inline", func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "10-pods.conf")))
		}},
		"who made what is renamed to": {withSingle, "inline", func(t *testing.T, dir string) {
			lay(t, dir, files{"10-pods.conf.sidecar-cni-saved": "x"})
		}},
		"who made the directory": {withList, "dropin", func(t *testing.T, dir string) {
			must(t, os.Mkdir(filepath.Join(dir, "pods"), 0o755))
		}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := lay(t, t.TempDir(), row.before)
			d, err := conf.Read()
			must(t, err)
			p, err := plan(d, row.way)
			must(t, err)
			row.meet(t, conf.Path)
			met := tree(t, conf.Path)
			var done []chain.Step
			err = conf.Carry(d, p.Steps, func(s chain.Step) { done = append(done, s) })
			if !errors.Is(err, node.ErrChanged) || !strings.Contains(err.Error(), conf.Path) {
				t.Errorf("carried out: %v", err)
			}
			now := tree(t, conf.Path)
			for name, was := range met {
				if now[name] != was {
					t.Errorf("%s was %q, is %q", name, was, now[name])
				}
			}
			if left := temps(now); len(left) > 0 || len(now) != len(met)+len(done) {
				t.Errorf("%d steps; left: %q", len(done), now)
			}
		})
	}
}

// There and back again: every byte, every mode, every name.
func TestCarryThereAndBack(t *testing.T) {
	t.Parallel()
	for _, before := range []files{withList, withSingle} {
		for _, way := range []string{"inline", "dropin", "owned"} {
			if way == "dropin" && before["10-pods.conf"] != "" {
				continue
			}
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				conf := lay(t, t.TempDir(), before)
				was := tree(t, conf.Path)
				for range 2 {
					must(t, pass(conf, way))
					if got, err := load(t, conf.Path); err != nil || got.Ours != 1 {
						t.Errorf("%+v, %v", got, err)
					}
				}
				for range 2 {
					must(t, pass(conf, "out"))
				}
				if diff := cmp.Diff(was, tree(t, conf.Path)); diff != "" {
					t.Errorf("directory (-before +after):\n%s", diff)
				}
			})
		}
	}
}

// A link to a file of the directory stays a link; a file elsewhere is not ours to write.
func TestCarryThroughLinks(t *testing.T) {
	t.Parallel()
	outside := lay(t, t.TempDir(), files{"pods": listConf})
	for name, target := range map[string]string{
		"beside": "pods.real", "below": "versions/pods",
		"outside": filepath.Join(outside.Path, "pods"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := lay(t, t.TempDir(), files{"pods.real": listConf, "versions/pods": listConf})
			link := filepath.Join(conf.Path, "10-pods.conflist")
			must(t, os.Symlink(target, link))
			was := tree(t, conf.Path)
			err := pass(conf, "inline")
			if name == "outside" {
				if err == nil || !strings.Contains(err.Error(), link) ||
					!strings.Contains(err.Error(), target) {
					t.Errorf("carried out: %v", err)
				}
			} else if got, _ := load(t, conf.Path); err != nil || got.Ours != 1 {
				t.Errorf("%+v, %v", got, err)
			}
			must(t, pass(conf, "out"))
			if diff := cmp.Diff(was, tree(t, conf.Path)); diff != "" {
				t.Errorf("directory (-before +after):\n%s", diff)
			}
		})
	}
}

// What a step has changed is not another writer's doing.
func TestCarryFollowsItsOwnSteps(t *testing.T) {
	t.Parallel()
	conf := lay(t, t.TempDir(), files{"a": "a"})
	d, err := conf.Read()
	must(t, err)
	steps := []chain.Step{
		{Op: chain.Write, Name: "b.conf", Data: []byte("1"), Mode: 0o600},
		{Op: chain.Write, Name: "b.conf", Data: []byte("2"), Mode: 0o640},
		{Op: chain.Rename, Name: "b.conf", To: "c.conf"},
		{Op: chain.MakeDir, Name: "d", Mode: fs.ModeDir | 0o750},
		{Op: chain.RemoveDir, Name: "d"},
		{Op: chain.Remove, Name: "a"},
	}
	var done []chain.Step
	must(t, conf.Carry(d, steps, func(s chain.Step) { done = append(done, s) }))
	if diff := cmp.Diff(steps, done); diff != "" {
		t.Errorf("told (-carried out +told):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"c.conf": "-rw-r-----\n2"},
		tree(t, conf.Path)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
}

// Nobody has to remove another network's drop-ins by hand, and we do not either.
func TestCarryLeavesADirectoryThatIsNotEmpty(t *testing.T) {
	t.Parallel()
	conf := lay(t, t.TempDir(), withList)
	must(t, pass(conf, "dropin"))
	d, err := conf.Read()
	must(t, err)
	p, err := plan(d, "out")
	must(t, err)
	lay(t, conf.Path, files{"pods/50-theirs.conf": singleConf})
	must(t, conf.Carry(d, p.Steps, func(chain.Step) {}))
	if got := tree(t, conf.Path); got["pods/50-theirs.conf"] == "" ||
		got["pods/99-sidecar-cni.conf"] != "" {
		t.Errorf("left: %q", got)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	conf := lay(t, t.TempDir(), files{
		".10-x.conf.1.sidecar-cni-tmp": "", "pods/.y.conf.2.sidecar-cni-tmp": "",
		"sidecar-cni.d/.token.3.sidecar-cni-tmp": "",
		"keep.sidecar-cni-tmp":                   "", ".keep": "", "pods/10-x.conf": "",
	})
	must(t, os.Mkdir(filepath.Join(conf.Path, ".dir.sidecar-cni-tmp"), 0o755))
	for range 2 {
		must(t, conf.Sweep())
	}
	var left []string
	d, err := conf.Read()
	must(t, err)
	for _, f := range d {
		left = append(left, f.Name)
	}
	if diff := cmp.Diff([]string{".keep", "keep.sidecar-cni-tmp", "pods", "pods/10-x.conf"},
		left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if left := temps(tree(t, conf.Path)); len(left) != 2 {
		t.Errorf("left: %q", left)
	}
	if err := (node.Conf{Path: filepath.Join(conf.Path, "absent")}).Sweep(); err == nil {
		t.Error("swept a directory that is not there")
	}
}
