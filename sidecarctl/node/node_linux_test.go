package node

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
	"github.com/sidecar-cni/sidecar-cni/test/podfiles"
)

func TestAllIsWell(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	r := m.look(t)
	if r.Wrong() || r.Node != "node-1" || verdict.Count(r.Rows, verdict.OK) != len(r.Rows) {
		t.Errorf("%s", text(t, r))
	}
	if diff := cmp.Diff([]string{"nftables", "iptables-nft", "iptables-legacy"}, m.tried); diff != "" {
		t.Errorf("tried out (-want +got):\n%s", diff)
	}
	out := strings.Join(strings.Fields(text(t, r)), " ")
	if !strings.Contains(out, "node-1: all is well") ||
		!strings.Contains(out, "10-pods.conflist (bridge, sidecar-cni)") {
		t.Error(out)
	}
}

// situation is a node on which one thing is not as it should be.
type situation struct {
	make    func(t *testing.T, m *machine)
	about   string
	verdict verdict.Word
	want    string // in the row or its remedy
}

var errNothing = errors.New("no such file or directory")

var situations = map[string]situation{
	"no table nat": {func(t *testing.T, m *machine) {
		m.write(t, "proc/modules", modulesLoaded("nft_chain_nat"))
		m.lacks = map[string][]redirect.Lack{"nftables": {{Feature: "address translation",
			Module: "nft_chain_nat", Cause: errNothing}}}
	}, "nftables", verdict.Wrong, "modprobe -a nft_chain_nat, and name them in " +
		"/etc/modules-load.d/sidecar-cni.conf; or set the chart's backend to iptables-nft"},
	"no table nat of legacy iptables": {func(t *testing.T, m *machine) {
		m.write(t, list, strings.Replace(chained, "nftables", "iptables-legacy", 1))
		m.write(t, "proc/modules", modulesLoaded("iptable_nat"))
		m.lacks = map[string][]redirect.Lack{"iptables-legacy": {{
			Feature: "redirection to local ports for IPv4", Module: "xt_REDIRECT",
			Cause: errors.New("can't initialize iptables table `nat'")}}}
	}, "iptables-legacy", verdict.Wrong, "modprobe -a iptable_nat xt_REDIRECT"},
	"a module that modprobe may not load": {func(t *testing.T, m *machine) {
		m.write(t, "proc/modules", modulesLoaded("nft_redir"))
		m.write(t, modDir+"/modules.dep", "kernel/net/netfilter/nft_redir.ko.zst: x\n")
		m.write(t, "etc/modprobe.d/hardening.conf", "install nft-redir /bin/false\n")
	}, "nftables", verdict.Wrong, "nft_redir take what forbids them out of the node's modprobe.d"},
	"a backend that some pods miss": {func(_ *testing.T, m *machine) {
		m.lacks = map[string][]redirect.Lack{"nftables": {{Feature: "IPv6", Cause: errNothing,
			Minor: true}}}
	}, "nftables", verdict.Warning, "pods that need it are refused: no IPv6"},
	"a backend that nobody needs": {func(_ *testing.T, m *machine) {
		m.lacks = map[string][]redirect.Lack{"iptables-nft": {{Feature: "X", Cause: errNothing}}}
	}, "iptables-nft", verdict.OK, "not needed here"},
	"no runtime": {func(_ *testing.T, m *machine) { m.skip["runtime"] = true },
		"runtime", verdict.Unknown, "--runtime-socket"},
	"no network": {func(_ *testing.T, m *machine) { m.runtime.NetworkReady = false },
		"network", verdict.Wrong, "no pod starts: because"},
	"a file that the runtime cannot load": {func(_ *testing.T, m *machine) {
		m.runtime.Info["lastCNILoadStatus"] = "bad JSON"
	}, "network", verdict.Wrong, "bad JSON"},
	"another directory": {func(t *testing.T, m *machine) {
		m.write(t, "run/sidecar-cni/installation", `{"confDir":"/other"}`)
	}, "directories", verdict.Wrong, "use conf directory /other: containerd reads /etc/cni/net.d"},
	"an entry that is out": {func(t *testing.T, m *machine) {
		m.write(t, list, `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"}]}`)
	}, "chain", verdict.Wrong, "has no entry of type sidecar-cni"},
	"an entry in the middle": {func(t *testing.T, m *machine) {
		m.write(t, list, `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"},`+
			entry+`,{"type":"tuning"}]}`)
	}, "chain", verdict.Wrong, "has our entry before others: the next pass moves it to the end " +
		"(bridge, sidecar-cni, tuning)"},
	"an entry that is not loaded": {func(_ *testing.T, m *machine) {
		m.runtime.Info["cniconfig"] = m.loaded("bridge")
	}, "chain", verdict.Wrong, "the runtime has not loaded it"},
	"another mesh": {func(t *testing.T, m *machine) {
		m.write(t, list, strings.Replace(chained, "bridge", "istio-cni", 1))
	}, "chain", verdict.Wrong, "runs istio-cni, another mesh's"},
	"a file that is no JSON": {func(t *testing.T, m *machine) { m.write(t, list, "{\x1b[31m") },
		"chain", verdict.Wrong, "load 10-pods.conflist"},
	"a file that is too large": {func(t *testing.T, m *machine) {
		m.write(t, list, chained+strings.Repeat(" ", maxFile))
	}, "chain", verdict.Wrong, "it is larger than 4 MiB"},
	"an entry with a wrong value": {func(t *testing.T, m *machine) {
		m.write(t, list, strings.Replace(chained, `"nftables"`, `"ebpf"`, 1))
	}, "entry", verdict.Wrong, "ebpf"},
	"no conf directory": {func(t *testing.T, m *machine) { m.remove(t, "etc/cni/net.d") },
		"chain", verdict.Wrong, "cannot be read"},
	"Cilium's exclusive": {func(t *testing.T, m *machine) {
		m.write(t, "etc/cni/net.d/05-calico.conflist.cilium_bak", "{}")
	}, "other writers", verdict.Wrong, "Cilium has taken 05-calico.conflist out"},
	"Cilium": {func(t *testing.T, m *machine) {
		m.write(t, list, strings.Replace(chained, "bridge", "cilium-cni", 1))
	}, "other writers", verdict.Warning, "cni.exclusive=false"},
	"what another mesh has left": {func(t *testing.T, m *machine) {
		m.write(t, "opt/cni/bin/linkerd-cni", "x")
	}, "other writers", verdict.Warning, "linkerd-cni"},
	"no plugin": {func(t *testing.T, m *machine) { m.remove(t, "opt/cni/bin/sidecar-cni") },
		"plugin", verdict.Wrong, "is not there"},
	"a plugin that cannot be run": {func(t *testing.T, m *machine) {
		m.chmod(t, "opt/cni/bin/sidecar-cni", 0o644)
	}, "plugin", verdict.Wrong, "no program that can be run"},
	"another plugin": {func(t *testing.T, m *machine) { m.write(t, "image/sidecar-cni", "other") },
		"plugin", verdict.Wrong, "not the one that the agent has brought along"},
	"an agent's plugin that is a pipe": {func(t *testing.T, m *machine) {
		m.remove(t, "image/sidecar-cni")
		must(t, unix.Mkfifo(m.path("image/sidecar-cni"), 0o600))
	}, "plugin", verdict.Unknown, "not compared with the agent's own"},
	"an agent's plugin that has no end": {func(t *testing.T, m *machine) {
		must(t, os.Truncate(m.path("image/sidecar-cni"), 1<<40))
	}, "plugin", verdict.Unknown, "not compared with the agent's own"},
	"no token": {func(t *testing.T, m *machine) { m.remove(t, token) },
		"credentials", verdict.Wrong, "token: no such file"},
	"a token that others can read": {func(t *testing.T, m *machine) { m.chmod(t, token, 0o644) },
		"credentials", verdict.Wrong, "has mode 0644"},
	"a token that is a link to another file": {func(t *testing.T, m *machine) {
		m.write(t, "etc/shadow", "secret")
		m.remove(t, token)
		must(t, os.Symlink("../../../shadow", m.path(token)))
	}, "credentials", verdict.Wrong, "token: path escapes from parent"},
	"a token that is no file": {func(t *testing.T, m *machine) {
		m.remove(t, token)
		must(t, unix.Mkfifo(m.path(token), 0o600))
	}, "credentials", verdict.Wrong, "token: it is no file"},
	"a token that others can read is not sent": {func(t *testing.T, m *machine) {
		m.chmod(t, token, 0o644)
	}, "API server", verdict.Unknown, "not asked: see the row credentials"},
	"a token of another form": {func(t *testing.T, m *machine) { m.write(t, token, "secret") },
		"API server", verdict.Unknown, "not asked: what is in the file is no ServiceAccount's token"},
	"a token that has run out": {func(t *testing.T, m *machine) {
		m.credentials(t, time.Now().Add(-time.Hour))
	}, "token", verdict.Wrong, "it ran out 1h0m"},
	"a token that runs out": {func(t *testing.T, m *machine) {
		m.credentials(t, time.Now().Add(5*time.Minute))
	}, "token", verdict.Warning, "it runs out in"},
	"a token that is refused": {func(_ *testing.T, m *machine) { m.api.Rotate("another") },
		"API server", verdict.Wrong, "does not accept the plugin's token"},
	"an API server that is away": {func(t *testing.T, m *machine) {
		m.write(t, filepath.Dir(token)+"/kubeconfig",
			`{"clusters":[{"cluster":{"server":"https://127.0.0.1:1"}}]}`)
	}, "API server", verdict.Warning, "would not reach it while the agent is away"},
	"a server that redirects": {func(t *testing.T, m *machine) {
		login := httptest.NewTLSServer(http.RedirectHandler("https://127.0.0.1:1/login", http.StatusFound))
		t.Cleanup(login.Close)
		dir := filepath.Dir(token)
		m.write(t, dir+"/ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: login.Certificate().Raw})))
		m.write(t, dir+"/kubeconfig", fmt.Sprintf(`{"clusters":[{"cluster":{"server":%q}}]}`, login.URL))
	}, "API server", verdict.Warning, "redirects whoever asks: it is no API server"},
	"a kubeconfig that is none": {func(t *testing.T, m *machine) {
		m.write(t, filepath.Dir(token)+"/kubeconfig", "{}")
	}, "API server", verdict.Wrong, "it names no server"},
	"a clock that is late": {func(_ *testing.T, m *machine) {
		m.fast = -10 * time.Minute
	}, "clock", verdict.Wrong, "it differs by -"},
	"no agent": {func(_ *testing.T, m *machine) { m.skip["agent"] = true },
		"agent", verdict.Wrong, "none is known to run, nor how it was started: lstat"},
	"an agent that is somebody else's": {func(t *testing.T, m *machine) {
		m.flags = []string{"--conf-dir=/evil"}
		m.skip["agent"] = true
		m.runAgent(t)
		must(t, os.Chown(m.path("run/sidecar-cni/agent.sock"), 1000, 1000))
	}, "agent", verdict.Wrong, "or is not root's"},
	"a process that is called like the agent": {func(t *testing.T, m *machine) {
		m.skip["agent"] = true
		m.write(t, "proc/4711/cmdline", "sidecar-cni-installer\x00run\x00--conf-dir=/evil\x00")
	}, "credentials", verdict.OK, "/etc/cni/net.d/sidecar-cni.d has a kubeconfig"},
	"a socket of another program": {func(t *testing.T, m *machine) {
		m.skip["agent"] = true
		m.listen(t)
		m.command(t, "cat", "run", "--conf-dir=/evil")
	}, "agent", verdict.Wrong, "is no sidecar-cni-installer"},
	"a run directory that others can write": {func(t *testing.T, m *machine) {
		m.chmod(t, "run/sidecar-cni", 0o777)
	}, "agent", verdict.Wrong, "or is not root's"},
	"nobody at the socket": {func(_ *testing.T, m *machine) { m.skip["agent"] = true },
		"socket", verdict.Wrong, "the agent does not answer"},
	"an agent that is not ready": {func(_ *testing.T, m *machine) {
		m.ready = "not ready: no_network: waiting"
	}, "ready", verdict.Wrong, "the agent says: not ready: no_network: waiting"},
	"taken out": {func(t *testing.T, m *machine) {
		m.write(t, "run/sidecar-cni/uninstalled", "a\n")
	}, "taken out", verdict.Wrong, "helm rollback"},
	"no pod files": {func(*testing.T, *machine) {}, "pod files", verdict.OK, "pods is not there"},
	"fresh pod files": {func(t *testing.T, m *machine) {
		files := podfiles.New(t, m.path("run/sidecar-cni"))
		files.Write("u0", "{}")
		files.Write("u1", "{}")
		files.Refresh(0)
	}, "pod files", verdict.OK, "2 in /run/sidecar-cni/pods, refreshed "},
	"pod files of an agent that hangs": {func(t *testing.T, m *machine) {
		podfiles.New(t, m.path("run/sidecar-cni")).Refresh(40 * time.Second)
	}, "pod files", verdict.Warning, "0 in /run/sidecar-cni/pods, which are stale: the agent last " +
		"refreshed them 4"},
	"pod files of an agent that is dead": {func(t *testing.T, m *machine) {
		files := podfiles.New(t, m.path("run/sidecar-cni"))
		files.Refresh(0)
		files.Abandon()
	}, "pod files", verdict.Warning, "stale: no agent that runs has said that they hold"},
	"pod files without a refresh": {func(t *testing.T, m *machine) {
		podfiles.New(t, m.path("run/sidecar-cni")).Write("u0", "{}")
	}, "pod files", verdict.Warning, "1 in /run/sidecar-cni/pods, which are stale: no agent"},
	"pod files that others can write": {func(t *testing.T, m *machine) {
		podfiles.New(t, m.path("run/sidecar-cni"))
		m.chmod(t, "run/sidecar-cni/pods", 0o777)
	}, "pod files", verdict.Wrong, "has mode drwxrwxrwx, or is not root's"},
	"a record that is none": {func(t *testing.T, m *machine) {
		m.write(t, "run/sidecar-cni/state/c:eth0.json", "{")
	}, "records", verdict.Wrong, "c:eth0.json"},
	"no NRI, and it is wanted": {func(_ *testing.T, m *machine) {
		m.flags = []string{"--guard=refuse"}
	}, "guard", verdict.Wrong, "switch NRI on"},
	"a guard that is away": {func(t *testing.T, m *machine) {
		m.metrics = "# TYPE x gauge\nsidecar_cni_guard_connected 0\n"
		m.nri(t)
	}, "guard", verdict.Warning, "the guard is not connected"},
	"a guard that is there": {func(t *testing.T, m *machine) {
		m.metrics = "# TYPE x gauge\nsidecar_cni_guard_connected 1\n"
		m.nri(t)
	}, "guard", verdict.OK, "the guard is connected"},
	"SELinux": {func(t *testing.T, m *machine) { m.write(t, "sys/fs/selinux/enforce", "1") },
		"security modules", verdict.Warning, "seLinuxType"},
}

func TestSituations(t *testing.T) {
	t.Parallel()
	for name, s := range situations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			s.make(t, m)
			r := m.look(t)
			rows := r.about(s.about)
			if len(rows) != 1 || rows[0].Verdict != s.verdict ||
				!strings.Contains(rows[0].What+" "+rows[0].Remedy, s.want) {
				t.Errorf("want %s, %q:\n%s", s.verdict, s.want, text(t, r))
			}
			if s.verdict == verdict.Wrong && !r.Wrong() {
				t.Error("the node is not wrong")
			}
			if out := text(t, r); strings.Contains(out, "\x1b") {
				t.Errorf("a control character in %q", out)
			}
		})
	}
}

// Before an installation nothing of ours has to be there, and what the node lacks is found.
func TestPreflight(t *testing.T) {
	t.Parallel()
	fresh := func(t *testing.T) *machine {
		m := newMachine(t)
		m.skip["agent"], m.options.Preflight = true, true
		m.remove(t, "run/sidecar-cni")
		m.remove(t, filepath.Dir(token))
		m.remove(t, "opt/cni/bin/sidecar-cni")
		m.write(t, list, `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"}]}`)
		m.runtime.Info["cniconfig"] = m.loaded("bridge")
		return m
	}
	m := fresh(t)
	if r := m.look(t); r.Wrong() || !strings.Contains(text(t, r), "fit for the plugin") ||
		!strings.Contains(text(t, r), "a plugin can be chained to 10-pods.conflist (bridge)") {
		t.Errorf("a node that is fit:\n%s", text(t, r))
	}
	for name, s := range map[string]situation{
		"no network yet": {func(t *testing.T, m *machine) {
			m.remove(t, list)
			m.runtime.NetworkReady = false
		}, "network", verdict.Warning, "install the cluster's network plugin"},
		"no directory yet": {func(t *testing.T, m *machine) { m.remove(t, "etc/cni/net.d") },
			"chain", verdict.Warning, "is not there"},
		"another mesh": {func(t *testing.T, m *machine) {
			m.write(t, list, `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"},`+
				`{"type":"linkerd-cni"}]}`)
		}, "chain", verdict.Wrong, "linkerd-cni"},
		"a version without chains": {func(t *testing.T, m *machine) {
			m.write(t, list, `{"cniVersion":"0.2.0","name":"pods","plugins":[{"type":"bridge"}]}`)
		}, "chain", verdict.Wrong, `cniVersion "0.2.0"`},
		"installed already": {func(t *testing.T, m *machine) { m.write(t, list, chained) },
			"chain", verdict.Warning, "it is installed already"},
		"a directory of somebody else": {func(t *testing.T, m *machine) {
			must(t, os.Chown(m.path("opt/cni/bin"), 1000, 1000))
		}, "plugin directory", verdict.Wrong, "extraCapabilities"},
		"a backend that shall be": {func(_ *testing.T, m *machine) {
			m.options.Backend = "iptables-nft"
			m.lacks = map[string][]redirect.Lack{"iptables-nft": {{Feature: "X", Cause: errNothing}}}
		}, "iptables-nft", verdict.Wrong, "set the chart's backend to nftables, which works here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fresh(t)
			s.make(t, m)
			r := m.look(t)
			if rows := r.about(s.about); len(rows) != 1 || rows[0].Verdict != s.verdict ||
				!strings.Contains(rows[0].What+" "+rows[0].Remedy, s.want) {
				t.Errorf("want %s, %q:\n%s", s.verdict, s.want, text(t, r))
			}
		})
	}
}
