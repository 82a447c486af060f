package node_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// TestMain is also the processes that tests kill.
func TestMain(m *testing.M) {
	commands := map[string]func(args []string) error{"carry": carry, "join": join, "lock": lock}
	if len(os.Args) > 1 && commands[os.Args[1]] != nil {
		runtime.LockOSThread() // strace counts the system calls of each thread
		if err := commands[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is this program as another process.
func child(t *testing.T, within []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	args = slices.Concat(within, []string{self}, args)
	return exec.CommandContext(t.Context(), args[0], args[1:]...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const entry = `{"type":"sidecar-cni","capabilities":{"io.kubernetes.cri.pod-annotations":true},"backend":"nftables"}`

const (
	listConf = `{
  "name": "pods", "cniVersion": "1.0.0", "theirs": [1, 2],
  "plugins": [
    {"type": "bridge", "bridge": "cni0"},
    {"type": "portmap"}
  ]
}
`
	singleConf = `{
  "cniVersion": "0.3.1",
  "name": "pods",
  "type": "bridge"
}
`
)

// files are contents by name; an empty sub-directory ends with a slash.
type files map[string]string

var (
	withList = files{"10-pods.conflist": listConf, "calico-kubeconfig": "secret",
		"20-later.conf": singleConf}
	withSingle = files{"10-pods.conf": singleConf, "README": "x"}
)

// lay makes a conf directory. Modes are not what we would choose.
func lay(t testing.TB, dir string, all files) node.Conf {
	t.Helper()
	for name, data := range all {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(data), 0o640))
		must(t, os.Chmod(path, 0o640))
	}
	return node.Conf{Path: dir}
}

// tree is what is on the disk, whatever Read says.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		must(t, err)
		name, err := filepath.Rel(dir, path)
		must(t, err)
		var data []byte
		if info.Mode().IsRegular() {
			data, err = os.ReadFile(path)
		}
		all[name] = info.Mode().String() + "\n" + string(data)
		return err
	}))
	return all
}

func temps(all map[string]string) []string {
	names := slices.Sorted(maps.Keys(all))
	return slices.DeleteFunc(names,
		func(name string) bool { return !strings.HasSuffix(name, ".sidecar-cni-tmp") })
}

// plan is a pass: into the chain by a way, or "out" of it.
func plan(d chain.Dir, way string) (chain.Plan, error) {
	if way == "out" {
		return chain.Uninstall(d, chain.Spec{})
	}
	return chain.Install(d, chain.Spec{Way: chain.Way(way), LoadsDropIns: true,
		Entry: []byte(entry)})
}

func pass(conf node.Conf, way string) error {
	d, err := conf.Read()
	if err != nil {
		return err
	}
	p, err := plan(d, way)
	if err != nil {
		return err
	}
	return conf.Carry(d, p.Steps, func(chain.Step) {})
}

// carry is a pass as a process of its own.
func carry(args []string) error { return pass(node.Conf{Path: args[0]}, args[1]) }

// loaded is the chain that a runtime has: what is ours counted apart.
type loaded struct {
	Name    string
	Plugins []string
	Ours    int
}

func load(t testing.TB, dir string) (loaded, error) {
	t.Helper()
	names, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	must(t, err)
	if len(names) == 0 {
		return loaded{}, errors.New("no network")
	}
	slices.Sort(names)
	var list *libcni.NetworkConfigList
	if filepath.Ext(names[0]) == ".conflist" {
		list, err = libcni.NetworkConfFromFile(names[0])
	} else {
		var data []byte
		data, err = os.ReadFile(names[0])
		must(t, err)
		var conf *libcni.PluginConfig
		if conf, err = libcni.NetworkPluginConfFromBytes(data); err == nil {
			list, err = libcni.ConfListFromConf(conf) //nolint:staticcheck // containerd still does
		}
	}
	if err != nil {
		return loaded{}, err
	}
	l := loaded{Name: list.Name + " " + list.CNIVersion}
	for _, p := range list.Plugins {
		if p.Network.Type == "sidecar-cni" {
			l.Ours++
			continue
		}
		var b bytes.Buffer
		must(t, json.Compact(&b, p.Bytes))
		// A plugin that was wrapped has its list's name and version in it, or has not.
		var all map[string]any
		must(t, json.Unmarshal(b.Bytes(), &all))
		delete(all, "name")
		delete(all, "cniVersion")
		l.Plugins = append(l.Plugins, fmt.Sprint(all))
	}
	return l, nil
}

// within runs a function on a thread with mounts of its own, which go with it.
func within(t *testing.T, do func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread's mounts would stay
			within(t, do)
			runtime.UnlockOSThread()
			return
		}
		if err = unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return
		}
		if err = unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err == nil {
			do()
		}
	}()
	must(t, <-done)
}

func confOf(dir string) node.Conf { return node.Conf{Path: dir} }

// join is an agent that lives until it is killed.
func join(args []string) error {
	if _, err := (node.RunDir{Path: args[0]}).Join(); err != nil {
		return err
	}
	return untilKilled()
}

// lock is an agent in the middle of a pass.
func lock(args []string) error {
	if _, err := (node.RunDir{Path: args[0]}).Lock(context.Background()); err != nil {
		return err
	}
	return untilKilled()
}

func untilKilled() error {
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// startChild starts this program, or a copy of it, as a process that lives until it is killed, and
// waits for it to be there.
func startChild(t *testing.T, args []string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), cmp.Or(args[0], self), args[1:]...)
	_, err = cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s: %q, %v", args, line, err)
	}
	return cmd
}
