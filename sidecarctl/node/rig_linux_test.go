package node

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/criserver"
)

// machine is a node in a directory: its files, a runtime, an agent, an API server.
type machine struct {
	root    string
	options Options
	runtime *criserver.Runtime
	api     *apiserver.Server
	ready   string // what the agent's page says
	metrics string
	lacks   map[string][]redirect.Lack // by backend
	tryErr  error                      // in place of that
	tried   []string                   // backends
	skip    map[string]bool            // what is not set up: runtime, agent
	flags   []string                   // of the agent
	fast    time.Duration              // by which its clock is
}

const (
	release = "6.1.0-test"
	modDir  = "lib/modules/" + release
	token   = "etc/cni/net.d/sidecar-cni.d/token"
	list    = "etc/cni/net.d/10-pods.conflist"
	entry   = `{"type":"sidecar-cni","backend":"nftables"}`
	chained = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"},` + entry + `]}`
)

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") //nolint:usetesting // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &machine{root: dir, options: Options{Root: dir, Version: "v1"},
		skip: map[string]bool{}, ready: "ready: all is well",
		runtime: &criserver.Runtime{Name: "containerd", Version: "1.7.0", NetworkReady: true,
			Info: map[string]string{"lastCNILoadStatus": "OK"}}}
	m.runtime.Info["cniconfig"] = m.loaded("bridge", "sidecar-cni")
	m.write(t, "proc/sys/kernel/osrelease", release+"\n")
	m.write(t, "etc/os-release", "NAME=x\nPRETTY_NAME=\"Test OS 1\"\n")
	m.write(t, "proc/modules", modulesLoaded(""))
	m.write(t, modDir+"/modules.dep", "")
	m.write(t, modDir+"/modules.builtin", "")
	m.write(t, list, chained)
	m.write(t, "run/sidecar-cni/installation", `{"id":"a","confDir":"/etc/cni/net.d",`+
		`"binDir":"/opt/cni/bin","runtimeSocket":"/run/containerd/containerd.sock"}`)
	m.write(t, "opt/cni/bin/sidecar-cni", "program")
	m.chmod(t, "opt/cni/bin/sidecar-cni", 0o755)
	m.write(t, "image/sidecar-cni", "program")
	m.api = apiserver.Start(t)
	m.credentials(t, time.Now().Add(time.Hour))
	return m
}

// modulesLoaded is /proc/modules with all modules of all backends but one.
func modulesLoaded(without string) string {
	var b strings.Builder
	for _, m := range moduleList(moduleFiles{}) {
		if m.Name != without {
			fmt.Fprintf(&b, "%s 16384 1 - Live 0x0000000000000000\n", m.Name)
		}
	}
	return b.String()
}

// loaded is what containerd says of a chain.
func (m *machine) loaded(types ...string) string {
	var plugins []string
	for _, kind := range types {
		plugins = append(plugins, fmt.Sprintf(`{"Network":{"type":%q}}`, kind))
	}
	return fmt.Sprintf(`{"PluginDirs":["/opt/cni/bin"],"PluginConfDir":"/etc/cni/net.d",`+
		`"Networks":[{"Config":{"Plugins":[%s]}}]}`, strings.Join(plugins, ","))
}

func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

func (m *machine) write(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(m.path(name)), 0o700))
	must(t, os.WriteFile(m.path(name), []byte(text), 0o600))
}

func (m *machine) chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	must(t, os.Chmod(m.path(name), mode))
}

func (m *machine) remove(t *testing.T, name string) {
	t.Helper()
	must(t, os.RemoveAll(m.path(name)))
}

// credentials are the API server's own, with a token that runs out.
func (m *machine) credentials(t *testing.T, expires time.Time) {
	t.Helper()
	dir := filepath.Dir(token)
	m.write(t, token, apiserver.Token(apiserver.Account, expires))
	m.api.Rotate(apiserver.Token(apiserver.Account, expires))
	authority, err := os.ReadFile(m.api.CAFile())
	must(t, err)
	m.write(t, dir+"/ca.crt", string(authority))
	m.write(t, dir+"/kubeconfig", fmt.Sprintf(`{"clusters":[{"cluster":{"server":%q,`+
		`"tls-server-name":%q}}]}`, m.api.Config().Host, m.api.Config().ServerName))
}

// look looks at the machine, with its runtime and agent running.
func (m *machine) look(t *testing.T) Report {
	t.Helper()
	m.run(t)
	return m.report(t)
}

// run starts what runs on the node.
func (m *machine) run(t *testing.T) {
	t.Helper()
	if !m.skip["runtime"] {
		must(t, os.MkdirAll(m.path("run/containerd"), 0o700))
		criserver.Serve(t, m.path("run/containerd/containerd.sock"), m.runtime)
	}
	if !m.skip["agent"] {
		m.runAgent(t)
	}
}

func (m *machine) report(t *testing.T) Report {
	t.Helper()
	m.options.Now = time.Now().Add(m.fast)
	l := newLook(t.Context(), m.options)
	l.try = func(_ context.Context, name string) ([]redirect.Lack, error) {
		m.tried = append(m.tried, name)
		return m.lacks[name], m.tryErr
	}
	return l.report(t.Context())
}

// runAgent shows a process that is an agent, in this process' network, and answers in its place.
func (m *machine) runAgent(t *testing.T) {
	t.Helper()
	pages := http.NewServeMux()
	pages.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !strings.HasPrefix(m.ready, "ready") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, m.ready)
	})
	pages.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, m.metrics)
	})
	address := serve(t, "tcp", "127.0.0.1:0", pages)
	m.listen(t)
	m.command(t, append([]string{"/sidecar-cni-installer", "run", "--node-name=node-1",
		"--listen", address}, m.flags...)...)
	must(t, os.MkdirAll(m.path(self+"/ns"), 0o700))
	must(t, os.Symlink("/proc/self/ns/net", m.path(self+"/ns/net")))
	must(t, os.Symlink("/sidecar-cni-installer", m.path(self+"/exe")))
	must(t, os.Symlink(m.path("image"), m.path(self+"/root")))
}

// self is this process, which listens in the agent's place, as the machine shows it.
var self = fmt.Sprintf("proc/%d", os.Getpid())

// listen answers at the agent's socket.
func (m *machine) listen(t *testing.T) {
	t.Helper()
	agent := http.NewServeMux()
	agent.HandleFunc("/v1/healthz", func(http.ResponseWriter, *http.Request) {})
	must(t, os.MkdirAll(m.path("run/sidecar-cni"), 0o700))
	serve(t, "unix", m.path("run/sidecar-cni/agent.sock"), agent)
	m.chmod(t, "run/sidecar-cni/agent.sock", 0o600)
}

// command is how who listens was started.
func (m *machine) command(t *testing.T, args ...string) {
	t.Helper()
	m.write(t, self+"/cmdline", strings.Join(args, "\x00")+"\x00")
}

// nri has the runtime listen for NRI.
func (m *machine) nri(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll(m.path("var/run/nri"), 0o700))
	serve(t, "unix", m.path("var/run/nri/nri.sock"), http.NotFoundHandler())
}

func serve(t *testing.T, network, address string, h http.Handler) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	must(t, err)
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // it ends when it is closed
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// text is the report as people read it, in lines of at most 80 columns.
func text(t *testing.T, r Report) string {
	t.Helper()
	var b bytes.Buffer
	must(t, view.Show(&b, view.Text, false, r))
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > view.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	return b.String()
}

// about returns the rows about a thing.
func (r Report) about(about string) []verdict.Row {
	var rows []verdict.Row
	for _, row := range r.Rows {
		if row.About == about {
			rows = append(rows, row)
		}
	}
	return rows
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
