package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/containernetworking/cni/libcni"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// programs builds the installer and the plugin once, side by side.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "installer-test-")
	if err != nil {
		return "", err
	}
	for name, folder := range map[string]string{"sidecar-cni-installer": ".",
		"sidecar-cni": "../plugin"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), folder)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := programs(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// rig is a node without a kubelet: directories, an API server, and daemons as processes.
type rig struct {
	t     testing.TB
	api   *apiserver.Server
	dir   string
	built string
}

// bridge is a usual configuration.
const bridge = `{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "ipam": {"type": "host-local", "subnet": "10.1.0.0/16"}}
  ]
}
`

func newRig(t testing.TB, files map[string]string) *rig {
	t.Helper()
	netns.RequireRoot(t)
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, api: apiserver.Start(t), dir: t.TempDir(), built: built}
	r.api.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
	for _, dir := range []string{"conf", "bin", "cache"} {
		r.must(os.Mkdir(r.path(dir), 0o755))
	}
	for name, data := range files {
		r.write(name, data)
	}
	return r
}

func (r *rig) path(elements ...string) string {
	return filepath.Join(append([]string{r.dir}, elements...)...)
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// write puts a file into the conf directory as other writers do: at once.
func (r *rig) write(name, data string) {
	r.t.Helper()
	temp := r.path("conf", "."+name+".new")
	r.must(os.WriteFile(temp, []byte(data), 0o644))
	r.must(os.Rename(temp, r.path("conf", name)))
}

// flags are what every daemon here has. Later ones win.
func (r *rig) flags(more ...string) []string {
	return append([]string{
		"--conf-dir", r.path("conf"), "--bin-dir", r.path("bin"), "--run-dir", r.path("run"),
		"--cache-dir", r.path("cache"),
		"--multus-conf-dir", r.path("multus"), "--platform", "kubeadm", "--runtime-socket",
		r.path("no.sock"), "--nri-socket", r.path("nri.sock"), "--node-name", "node-1",
		"--kubeconfig", r.api.Kubeconfig(), "--token-file", r.api.TokenFile(), "--ca-file",
		r.api.CAFile(),
		"--api-server", "https://127.0.0.1:6443", "--repair", "off",
	}, more...)
}

// run runs a command to its end.
func (r *rig) run(command string, more ...string) (string, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(r.built, "sidecar-cni-installer"),
		append([]string{command}, r.flags(more...)...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// daemon is a running one.
type daemon struct {
	*rig
	cmd    *exec.Cmd
	listen string
	log    *lines
	ended  chan error
}

// lines is what a process has said so far.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func (r *rig) start(more ...string) *daemon {
	r.t.Helper()
	return r.startBy(exec.Command, more...)
}

// ports counts those that were given to daemons.
var ports atomic.Int32

// address is one to listen on, until somebody does. Its port is below those that the kernel gives
// to who wants any, as other tests do meanwhile.
func (r *rig) address() string {
	r.t.Helper()
	const first, many = 10_000, 20_000
	for range 100 {
		n := (os.Getpid()*101 + int(ports.Add(1))) % many
		address := fmt.Sprintf("127.0.0.1:%d", first+n)
		if l, err := net.Listen("tcp", address); err == nil {
			r.must(l.Close())
			return address
		}
	}
	r.t.Fatal("no port is free")
	return ""
}

// startBy starts a daemon by a command that is made by command.
func (r *rig) startBy(command func(string, ...string) *exec.Cmd, more ...string) *daemon {
	r.t.Helper()
	d := &daemon{rig: r, listen: r.address(), log: &lines{}, ended: make(chan error, 1)}
	args := append([]string{"run"}, r.flags(append(more, "--listen", d.listen)...)...)
	d.cmd = command(filepath.Join(r.built, "sidecar-cni-installer"), args...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r.must(d.cmd.Start())
	go func() { d.ended <- d.cmd.Wait() }()
	r.t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		if r.t.Failed() {
			r.t.Logf("daemon:\n%s", d.log)
		}
	})
	return d
}

// stop ends it as the kubelet does.
func (d *daemon) stop() {
	d.t.Helper()
	d.must(d.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-d.ended:
		if err != nil {
			d.t.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(await.Limit):
		d.t.Fatal("the daemon did not end")
	}
}

// kill ends it as the kernel does.
func (d *daemon) kill() {
	d.t.Helper()
	d.must(d.cmd.Process.Kill())
	if err := <-d.ended; err == nil {
		d.t.Error("the daemon had ended before it was killed")
	}
}

func (d *daemon) get(page string) (int, string) {
	resp, err := http.Get("http://" + d.listen + page)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// says waits until /readyz has a status and words.
func (d *daemon) says(status int, words ...string) {
	d.t.Helper()
	var code int
	var text string
	await.Until(d.t, fmt.Sprintf("/readyz says %d %q", status, words), func() bool {
		code, text = d.get("/readyz")
		return code == status &&
			!slices.ContainsFunc(words,
				func(word string) bool { return !strings.Contains(text, word) })
	})
}

// metric is the value of a series, as it is written.
func (d *daemon) metric(series string) string {
	_, text := d.get("/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// tree is a directory's content. Our own sub-directory is one line: its files are the subject of
// other tests.
func (r *rig) tree(dir string) map[string]string {
	r.t.Helper()
	all := map[string]string{}
	root := r.path(dir)
	r.must(filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, _ := filepath.Rel(root, path)
		info, err := e.Info()
		if err != nil {
			return err
		}
		all[name] = info.Mode().String()
		if e.IsDir() && name == "sidecar-cni.d" {
			return fs.SkipDir
		}
		if !e.IsDir() {
			data, err := os.ReadFile(path)
			all[name] += "\n" + string(data)
			return err
		}
		return nil
	}))
	return all
}

// chain is what libcni makes of the conf directory: the types of the plugins.
func (r *rig) chain() []string {
	files, err := libcni.ConfFiles(r.path("conf"), []string{".conf", ".conflist", ".json"})
	if err != nil || len(files) == 0 {
		return nil
	}
	slices.Sort(files)
	if filepath.Ext(files[0]) != ".conflist" {
		conf, err := libcni.ConfFromFile(files[0]) //nolint:staticcheck // containerd still does
		if err != nil {
			return []string{err.Error()}
		}
		return []string{conf.Network.Type}
	}
	list, err := libcni.NetworkConfFromFile(files[0])
	if err != nil {
		return []string{err.Error()}
	}
	var types []string
	for _, p := range list.Plugins {
		types = append(types, p.Network.Type)
	}
	return types
}

// logged are the log's lines with a message.
func (d *daemon) logged(message string) []map[string]any {
	var found []map[string]any
	for line := range strings.Lines(d.log.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}
