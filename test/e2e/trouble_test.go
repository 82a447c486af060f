//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// TestTrouble disturbs what can be disturbed. Afterwards, and mostly meanwhile, meshed pods start,
// and redirected.
func TestTrouble(t *testing.T) {
	r := start(t, cluster.Options{Nodes: bothRuntimes})
	r.install(t)
	r.namespace(t, "shop", "restricted")
	for _, tt := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"another CNI writes its conf anew", r.confRewritten},
		{"another CNI brings an earlier file", r.earlierConf},
		{"the plugin's credentials are spoiled", r.credentialsSpoiled},
		{"the API server is started anew", r.apiServerRestarted},
		{"the plugin directory is deleted and made anew", r.pluginsMadeAnew},
		{"the plugin and the agents are gone", r.pluginAndAgentGone},
		{"the node's disk is full", r.diskFull},
		// last: the kubelet takes its time with what was killed often
		{"the agent is killed every second", r.agentKilled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.f(t)
			r.expectStarts(t, "after-"+
				strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(tt.name, "'", "")), " ", "-"))
		})
	}
}

// expectStarts has a meshed pod start on each node, redirected.
func (r *rig) expectStarts(t *testing.T, name string) {
	t.Helper()
	r.eachNode(func(n *cluster.Node) {
		p := on(n.Name, meshed("shop", name+"-"+n.Name, ordinary))
		r.create(t, p)
		r.expectRedirected(t, r.ready(t, p))
	})
}

const primary = "10-cluster.conflist"

// replace does what careful writers of a conf do.
func replace(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".tmp", []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// confRewritten: as installed, without our entry. It comes back, is counted, and containerd loads
// it.
func (r *rig) confRewritten(t *testing.T) {
	n := r.Node(1) // where the entry is in the primary, since containerd 1.6 has no drop-ins
	path := filepath.Join(n.ConfDir(), primary)
	ours := readFile(t, n, "/etc/cni/net.d/"+primary)
	original := r.original(t, n)
	if strings.Contains(original, "sidecar-cni") || !strings.Contains(ours, "sidecar-cni") {
		t.Fatalf("the confs are\n%s\nand\n%s", original, ours)
	}
	replace(t, path, original)
	r.Await(t, "the entry to come back", func(context.Context) error {
		if now := readFile(t, n, "/etc/cni/net.d/"+primary); now != ours {
			return fmt.Errorf("%s is\n%s", primary, now)
		}
		return nil
	})
	r.awaitMetric(t, n, positive, "sidecar_cni_chain_conflicts_total", `file="`+primary+`"`)
	r.awaitEntryIn(t, primary)
}

// awaitEntryIn waits until the runtimes run the entry in the network of a file, as the agents say.
func (r *rig) awaitEntryIn(t *testing.T, file string) {
	t.Helper()
	r.eachNode(func(n *cluster.Node) { r.awaitEntryOf(t, n, file) })
}

func (r *rig) awaitEntryOf(t *testing.T, n *cluster.Node, file string) {
	t.Helper()
	r.Await(t, "the agent of "+n.Name, func(ctx context.Context) error {
		said, err := r.readyz(ctx, n)
		if err == nil && !strings.HasPrefix(said, "ready: "+file+" runs our entry from ") {
			err = fmt.Errorf("it says %q", said)
		}
		return err
	})
}

// earlierConf: the runtimes load the first file, so that is where the entry has to be.
func (r *rig) earlierConf(t *testing.T) {
	r.eachNode(func(n *cluster.Node) {
		// Another network has a memory of its own of the addresses that it gave out: it gets
		// others.
		content := strings.Replace(r.original(t, n), `"name": "cluster"`, `"name": "newer"`, 1)
		content = strings.ReplaceAll(content, `.0/24"}`,
			`.0/24", "rangeStart": "10.244.`+strings.TrimPrefix(n.Name, "node")+`.128"}`)
		content = strings.ReplaceAll(content, `::/64"}`,
			`::/64", "rangeStart": "fd00:244:0:`+strings.TrimPrefix(n.Name, "node")+`::80"}`)
		replace(t, filepath.Join(n.ConfDir(), "05-newer.conflist"), content)
	})
	r.awaitEntryIn(t, "05-newer.conflist")
	r.expectStarts(t, "newer")
	r.eachNode(func(n *cluster.Node) {
		if err := os.Remove(filepath.Join(n.ConfDir(), "05-newer.conflist")); err != nil {
			t.Fatal(err)
		}
	})
	r.awaitEntryIn(t, primary)
}

// credentialsSpoiled: the agent notices, and the plugin gets along without the agent afterwards.
func (r *rig) credentialsSpoiled(t *testing.T) {
	r.eachNode(func(n *cluster.Node) {
		path := filepath.Join(n.ConfDir(), "sidecar-cni.d", "token")
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		replace(t, path, "rotten")
		r.Await(t, "a token on "+n.Name, func(context.Context) error {
			now, err := os.ReadFile(path)
			if err == nil && len(now) < len(good)/2 {
				err = fmt.Errorf("it is %q", now)
			}
			return err
		})
	})
	r.sendAgentsAway(t)
	r.expectStarts(t, "alone")
	r.haveAgentsBack(t)
	r.awaitProduct(t)
}

func (r *rig) apiServerRestarted(t *testing.T) {
	r.APIServer.Kill(t)
	r.APIServer.Start(t)
	r.expectStarts(t, "restarted")
	r.awaitProduct(t)
}

// pluginsMadeAnew: as an upgrade of the distribution's package of CNI plugins does it. The agent
// has the parent mounted, and goes on with the new directory.
func (r *rig) pluginsMadeAnew(t *testing.T) {
	r.eachNode(func(n *cluster.Node) {
		before := r.restarts(t, n)
		n.Run(t, "", "cp", "-a", "/opt/cni/bin", "/opt/cni/package")
		n.Run(t, "", "rm", "/opt/cni/package/sidecar-cni")
		n.Run(t, "", "rm", "-r", "/opt/cni/bin")
		n.Run(t, "", "cp", "-aT", "/opt/cni/package", "/opt/cni/bin")
		n.Run(t, "", "rm", "-r", "/opt/cni/package")
		r.Await(t, "the plugin on "+n.Name, func(context.Context) error {
			_, err := os.Stat(filepath.Join(n.BinDir(), "sidecar-cni"))
			return err
		})
		if after := r.restarts(t, n); after != before {
			t.Errorf("the agent of %s was started again: %d times, before %d", n.Name, after,
				before)
		}
	})
	r.awaitProduct(t)
}

// restarts is how often the container of a node's agent was started again.
func (r *rig) restarts(t *testing.T, n *cluster.Node) int32 {
	t.Helper()
	p, err := r.agent(t.Context(), n)
	if err != nil || len(p.Status.ContainerStatuses) != 1 {
		t.Fatalf("the agent of %s: %v, %v", n.Name, p, err)
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// pluginAndAgentGone: then no pod starts, the agent's own neither, until an administrator does what
// the docs say.
func (r *rig) pluginAndAgentGone(t *testing.T) {
	r.sendAgentsAway(t)
	r.eachNode(func(n *cluster.Node) { n.Run(t, "", "rm", "/opt/cni/bin/sidecar-cni") })
	r.haveAgentsBack(t)
	r.eachNode(func(n *cluster.Node) {
		var pod *corev1.Pod
		r.Await(t, "an agent's pod on "+n.Name, func(ctx context.Context) (err error) {
			pod, err = r.agent(ctx, n)
			return err
		})
		r.awaitEvent(t, pod, "FailedCreatePodSandBox", "sidecar-cni")
		for _, line := range byHand(t) {
			n.Run(t, "", "sh", "-ec", strings.NewReplacer("IMAGE",
				pod.Spec.Containers[0].Image, "BINDIR", "/opt/cni/bin").Replace(line))
		}
	})
	r.awaitProduct(t)
}

// byHand are the lines of the docs for a node without the plugin.
func byHand(t *testing.T) (lines []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/platforms.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## When the plugin is deleted\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			lines = append(lines, command)
		}
	}
	if len(lines) != 3 {
		t.Fatalf("the docs have %q", lines)
	}
	return lines
}

// agentKilled: whoever answers the plugin, agent or API server, no pod starts without redirection,
// and none fails.
func (r *rig) agentKilled(t *testing.T) {
	s := r.stream(t, "killed", time.Second, small)
	end := time.NewTimer(30 * time.Second)
	defer end.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for killing := true; killing; {
		select {
		case <-tick.C:
			r.eachNode(func(n *cluster.Node) { killAgent(t, n) })
		case <-end.C:
			killing = false
		}
	}
	all := s.end(t)
	r.eachNode(func(n *cluster.Node) {
		if p, err := r.agent(t.Context(), n); err != nil || len(p.Status.ContainerStatuses) != 1 ||
			p.Status.ContainerStatuses[0].RestartCount == 0 {
			t.Errorf("the agent of %s was not killed: %v", n.Name, err)
		}
	})
	r.expectNoFailedSandbox(t, "killed")
	r.expectAllRedirected(t, all)
}

// diskFull: the entry is taken out when there is no room to put it back. The agent says so, leaves
// the file whole, and puts the entry in as soon as there is room.
func (r *rig) diskFull(t *testing.T) {
	n := r.Node(1)
	path := filepath.Join(n.ConfDir(), primary)
	ours, original := readFile(t, n, "/etc/cni/net.d/"+primary), r.original(t, n)
	spare := filepath.Join(n.ConfDir(), "spare")
	if err := os.WriteFile(spare, []byte(original), 0o644); err != nil {
		t.Fatal(err)
	}
	// Without a second name there would be room when the file is replaced.
	if err := os.Link(path, filepath.Join(n.ConfDir(), "kept")); err != nil {
		t.Fatal(err)
	}
	ballast := n.File("/var/lib/cni/ballast")
	if _, err := n.Try("", "dd", "if=/dev/zero", "of=/var/lib/cni/ballast", "bs=1M"); err == nil {
		t.Fatal("the disk is not full")
	}
	if err := os.Rename(spare, path); err != nil {
		t.Fatal(err)
	}
	r.awaitMetric(t, n, positive, "sidecar_cni_chain_state", `reason="disk"`)
	if now := readFile(t, n, "/etc/cni/net.d/"+primary); now != original {
		t.Errorf("%s is\n%s", primary, now)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	r.awaitEntryIn(t, primary)
	if now := readFile(t, n, "/etc/cni/net.d/"+primary); now != ours {
		t.Errorf("%s is\n%s", primary, now)
	}
}

// original is a node's primary conf as it was before we came: that of node0, which is not altered,
// with the node's addresses.
func (r *rig) original(t *testing.T, n *cluster.Node) string {
	t.Helper()
	conf := readFile(t, r.Node(0), "/etc/cni/net.d/"+primary)
	i := strings.TrimPrefix(n.Name, "node")
	conf = strings.ReplaceAll(conf, "10.244.0.0/24", "10.244."+i+".0/24")
	return strings.ReplaceAll(conf, "fd00:244:0:0::/64", "fd00:244:0:"+i+"::/64")
}
