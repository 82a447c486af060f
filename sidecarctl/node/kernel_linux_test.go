package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

func TestModuleStates(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write(t, "proc/modules", "nf_tables 1 0 - Live 0x0\n")
	m.write(t, modDir+"/modules.builtin", "kernel/net/netfilter/nft_ct.ko\n")
	m.write(t, modDir+"/modules.dep", "kernel/net/netfilter/nft-redir.ko.xz: a.ko\n"+
		"kernel/nft_tproxy.ko:\nkernel/xt_owner.ko:\nkernel/ip_tables.ko:\n")
	m.write(t, "usr/lib/modprobe.d/a.conf", "# install ip_tables /bin/false\n"+
		"blacklist nft_tproxy\nblacklist xt_owner\noptions x y\n")
	states := func() map[string]State {
		all := map[string]State{}
		for _, one := range moduleList(files{root: m.root}.modules(release)) {
			all[one.Name] = one.State
		}
		return all
	}
	want := map[string]State{"nf_tables": Loaded, "nft_ct": BuiltIn, "nft_redir": Loadable,
		"nft_tproxy": Blocked, "xt_owner": Loadable, "ip_tables": Loadable, "xt_mark": Absent}
	got := states()
	for name, state := range want {
		if got[name] != state {
			t.Errorf("%s is %s, want %s", name, got[name], state)
		}
	}
	m.write(t, "proc/sys/kernel/modules_disabled", "1\n")
	if got := states(); got["nft_redir"] != Blocked || got["nf_tables"] != Loaded {
		t.Errorf("with modules disabled: %v", got)
	}
	m.remove(t, modDir)
	if got := states(); got["nft_redir"] != Unseen || got["nf_tables"] != Loaded {
		t.Errorf("without /lib/modules: %v", got)
	}
}

// A backend is tried out where that loads no module, or where it was tried before.
func TestWhatIsTriedOut(t *testing.T) {
	t.Parallel()
	onDisk := func(t *testing.T, m *machine) {
		m.write(t, "proc/modules", modulesLoaded("nft_redir"))
		m.write(t, modDir+"/modules.dep", "kernel/nft_redir.ko:\n")
	}
	for name, row := range map[string]struct {
		make    func(t *testing.T, m *machine)
		tried   bool
		verdict verdict.Word
		want    string
	}{
		"all is loaded":       {func(*testing.T, *machine) {}, true, verdict.OK, "all that rules"},
		"one would be loaded": {onDisk, false, verdict.OK, "on the disk: nft_redir"},
		"the agent has tried": {func(t *testing.T, m *machine) {
			onDisk(t, m)
			delete(m.skip, "agent")
		}, true, verdict.OK, "all that rules"},
		"by --probe": {func(t *testing.T, m *machine) {
			onDisk(t, m)
			m.options.Probe = true
		}, true, verdict.OK, "all that rules"},
		"nothing tells": {func(t *testing.T, m *machine) {
			m.remove(t, modDir)
			m.write(t, "proc/modules", "")
		}, false, verdict.Unknown, "--probe"},
		"the kernel has no modules": {func(t *testing.T, m *machine) {
			m.remove(t, modDir)
			m.remove(t, "proc/modules")
		}, true, verdict.OK, "all that rules"},
		"without the right": {func(_ *testing.T, m *machine) {
			m.tryErr = fmt.Errorf("make a network namespace: %w", unix.EPERM)
		}, true, verdict.Unknown, "make a network namespace"},
		"without the programs": {func(_ *testing.T, m *machine) {
			m.tryErr = errors.New("install iptables")
		}, true, verdict.Wrong, "install iptables"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.skip["agent"] = true
			row.make(t, m)
			r := m.look(t)
			one := r.about("nftables")[0]
			if slices.Contains(m.tried, "nftables") != row.tried || one.Verdict != row.verdict ||
				!strings.Contains(one.What+one.Remedy, row.want) {
				t.Errorf("tried %v, %+v", m.tried, one)
			}
			if _, err := os.Stat(m.path("proc/modules")); err != nil && r.Modules[0].State != BuiltIn {
				t.Errorf("%+v in a kernel that loads none", r.Modules[0])
			}
		})
	}
}

// The real kernel, in a network namespace that is gone afterwards.
func TestTryOut(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	l := &look{files: files{root: "/"}}
	before, err := podns.Identify("/proc/thread-self/ns/net")
	must(t, err)
	for _, name := range redirect.Backends {
		if lacks, err := l.tryOut(t.Context(), name); err != nil || len(lacks) > 0 {
			t.Errorf("%s: %v, %v", name, lacks, err)
		}
	}
	own := before
	must(t, inNewNetwork("", func() error {
		own, err = podns.Identify("/proc/thread-self/ns/net")
		return err
	}))
	after, err := podns.Identify("/proc/self/ns/net")
	must(t, err)
	if own == before || after != before {
		t.Errorf("it was tried out in %v, this is %v and was %v", own, after, before)
	}
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/here", nil, 0o600))
	must(t, inNewNetwork(dir, func() error {
		_, err := os.Stat("/here")
		return err
	}))
}

// The ways into a chain that are not in the runtime's own file.
func TestWays(t *testing.T) {
	t.Parallel()
	const bare = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"}]}`
	const legacy = `{"type":"sidecar-cni","backend":"iptables-legacy"}`
	for name, row := range map[string]struct {
		make func(t *testing.T, m *machine)
		want string
	}{
		"a drop-in": {func(t *testing.T, m *machine) {
			m.runtime.Version = "2.1.0"
			m.write(t, list, bare)
			m.write(t, "etc/cni/net.d/pods/99-sidecar-cni.conf", legacy)
		}, "10-pods.conflist runs our entry from pods/99-sidecar-cni.conf (bridge, sidecar-cni)"},
		"Multus'": {func(t *testing.T, m *machine) {
			m.write(t, list, strings.Replace(bare, "bridge", "multus-shim", 1))
			m.write(t, "etc/cni/multus/net.d/sidecar-cni.conf", `{"cniVersion":"1.0.0",`+
				`"name":"istio-cni",`+legacy[1:])
			m.runtime.Info["cniconfig"] = m.loaded("multus-shim")
			m.flags = []string{"--multus-conf-dir=/etc/cni/multus/net.d"}
		}, `10-pods.conflist begins with Multus`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			row.make(t, m)
			m.lacks = map[string][]redirect.Lack{"iptables-legacy": {{Feature: "all",
				Cause: errNothing}}}
			r := m.look(t)
			if one := r.about("chain")[0]; one.Verdict != verdict.OK ||
				!strings.Contains(one.What, row.want) {
				t.Errorf("%+v", one)
			}
			// The entry was read: its backend is the one that is needed.
			if one := r.about("iptables-legacy")[0]; one.Verdict != verdict.Wrong {
				t.Errorf("%+v", one)
			}
		})
	}
	m := newMachine(t)
	m.write(t, list, strings.Replace(bare, "bridge", "multus", 1))
	m.flags = []string{"--multus-conf-dir=/nowhere"}
	if one := m.look(t).about("chain")[0]; one.Verdict != verdict.Wrong {
		t.Errorf("without Multus' directory: %+v", one)
	}
}

func TestAgentsCommandLine(t *testing.T) {
	t.Parallel()
	p := process{args: []string{"/sidecar-cni-installer", "run", "--conf-dir=/a", "-bin-dir", "/b",
		"--empty=", "word"}}
	got := map[string]string{}
	for _, name := range []string{"conf-dir", "bin-dir", "empty", "word", "conf"} {
		got[name] = p.flag(name)
	}
	want := map[string]string{"conf-dir": "/a", "bin-dir": "/b", "empty": "", "word": "",
		"conf": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	m := newMachine(t)
	m.listen(t)
	m.command(t, "/sidecar-cni-installer", "run")
	m.write(t, self+"/environ", "A=b\x00SIDECAR_CNI_LISTEN=:9999\x00")
	m.write(t, "proc/10000000/cmdline", "/sidecar-cni-installer\x00run\x00--listen=:1\x00")
	find := func() (process, error) {
		return files{root: m.root}.findAgent(t.Context(), "/run/sidecar-cni")
	}
	if found, err := find(); found.pid != os.Getpid() || found.listen != "9999" || err != nil {
		t.Errorf("%+v, %v", found, err)
	}
	m.command(t, "/sidecar-cni-installer", "log-level")
	if found, err := find(); found.pid != 0 || err == nil {
		t.Errorf("%+v", found)
	}
}

func TestVersionOf(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	must(t, err)
	if v := versionOf(program); v == "" {
		t.Error("this program has no version")
	}
	if v := versionOf("/etc/passwd"); v != "" {
		t.Errorf("a file that is no program has version %q", v)
	}
}

// In the agent's container the node's modules are seen where its root directory is mounted.
func TestInTheAgentsContainer(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	ns, err := os.Readlink("/proc/self/ns/mnt")
	must(t, err)
	m.listen(t)
	must(t, os.MkdirAll(m.path(self+"/ns"), 0o700))
	must(t, os.Symlink(ns, m.path(self+"/ns/mnt")))
	m.write(t, "host/etc/os-release", "PRETTY_NAME=\"Host OS\"\n")
	for _, row := range []struct {
		flags []string
		first string
		os    string
		state State
	}{
		{nil, "mnt:[1]", "an unknown system", Unseen},
		{[]string{"--host-root=/host"}, "mnt:[1]", "Host OS", Unseen},
		{nil, ns, "Test OS 1", Absent}, // the agent runs on the node itself
	} {
		m.remove(t, "proc/1")
		must(t, os.MkdirAll(m.path("proc/1/ns"), 0o700))
		must(t, os.Symlink(row.first, m.path("proc/1/ns/mnt")))
		m.write(t, "proc/modules", "other 1 0 - Live 0x0\n")
		m.command(t, append([]string{"/sidecar-cni-installer", "run"}, row.flags...)...)
		m.skip["agent"], m.skip["runtime"] = true, true
		r := m.look(t)
		if what := r.about("host")[0].What; !strings.HasSuffix(what, row.os) ||
			r.Modules[0].State != row.state {
			t.Errorf("%v, %s: %s, %+v", row.flags, row.first, what, r.Modules[0])
		}
	}
}
