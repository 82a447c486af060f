package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/await"
)

func TestADaemonBringsThePluginInAndLeavesItThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	before := r.tree("conf")
	d := r.start()
	d.says(200, "ready:", "10-bridge.conflist runs our entry")
	if got := r.chain(); !slices.Equal(got, []string{"bridge", "sidecar-cni"}) {
		t.Errorf("chain %q", got)
	}
	for _, name := range []string{"token", "ca.crt", "kubeconfig"} {
		info, err := os.Stat(r.path("conf", "sidecar-cni.d", name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", name, info, err)
		}
	}
	want, err := os.ReadFile(filepath.Join(r.built, "sidecar-cni"))
	r.must(err)
	if got, err := os.ReadFile(r.path("bin", "sidecar-cni")); err != nil ||
		string(got) != string(want) {
		t.Errorf("the plugin's binary: %d bytes, %v; want %d", len(got), err, len(want))
	}
	if info, err := os.Stat(r.path("run", "agent.sock")); err != nil ||
		info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket %v, %v", info, err)
	}
	for series, value := range map[string]string{
		`sidecar_cni_chain_state{reason="effective",way="inline"}`: "1",
		`sidecar_cni_passes_total{result="changed"}`:               "1",
		`sidecar_cni_passes_total{result="failed"}`:                "0",
		`sidecar_cni_backend_usable{backend="nftables"}`:           "1",
		`sidecar_cni_cache_synced`:                                 "1",
	} {
		if got := d.metric(series); got != value {
			t.Errorf("%s is %q, want %s", series, got, value)
		}
	}
	until, err := strconv.ParseFloat(d.metric("sidecar_cni_token_expiry_timestamp_seconds"), 64)
	if left := time.Until(time.Unix(int64(until), 0)); err != nil || left < 50*time.Minute ||
		left > time.Hour {
		t.Errorf("the token is good for %v, %v; want an hour", left, err)
	}

	installed := r.tree("conf")
	d.stop()
	if diff := cmp.Diff(installed, r.tree("conf")); diff != "" {
		t.Errorf("ending changes the node (-before +after):\n%s", diff)
	}
	again := r.start()
	again.says(200)
	if got := again.logged("changed node"); got != nil {
		t.Errorf("a second start changes the node: %v", got)
	}
	again.stop()
	out, err := r.run("uninstall")
	if err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	if diff := cmp.Diff(before, r.tree("conf")); diff != "" {
		t.Errorf("uninstall leaves a trace (-original +left):\n%s", diff)
	}
	if got := r.tree("bin"); len(got) > 0 {
		t.Errorf("left in the binary directory: %d files", len(got))
	}
	if out, err := r.run("uninstall"); err != nil || strings.Contains(out, "took node out") {
		t.Errorf("uninstall again: %v\n%s", err, out)
	}
}

func TestUninstallAfterEachWay(t *testing.T) {
	t.Parallel()
	single := `{"cniVersion":"0.3.1","name":"cilium","type":"cilium-cni","enable-debug":false}`
	multus := `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","capabilities":{"portMappings":true}}`
	for _, row := range []struct {
		way, file, data string
		words           string
		chain           []string
	}{
		{"inline", "10-bridge.conflist", bridge, "", []string{"bridge", "sidecar-cni"}},
		{"owned", "10-bridge.conflist", bridge, "00-sidecar-cni.conflist",
			[]string{"bridge", "sidecar-cni"}},
		{"dropin", "10-bridge.conflist", bridge, "99-sidecar-cni.conf",
			[]string{"bridge", "sidecar-cni"}},
		{"inline", "05-cilium.conf", single, "05-cilium.conflist",
			[]string{"cilium-cni", "sidecar-cni"}},
		{"owned", "05-cilium.conf", single, "00-sidecar-cni.conflist",
			[]string{"cilium-cni", "sidecar-cni"}},
		{"auto", "00-multus.conf", multus, "NetworkAttachmentDefinition", []string{"multus"}},
	} {
		t.Run(row.way+" "+row.file, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]string{row.file: row.data})
			r.must(os.Mkdir(r.path("multus"), 0o755))
			object := r.api.Node("node-1")
			object.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.0"
			r.api.PutNode(object)
			before, beside := r.tree("conf"), r.tree("multus")
			d := r.start("--way", row.way)
			d.says(200, row.words)
			if got := r.chain(); !slices.Equal(got, row.chain) {
				t.Errorf("chain %q, want %q", got, row.chain)
			}
			if out, err := r.run("uninstall"); err != nil {
				t.Fatalf("uninstall: %v\n%s", err, out)
			}
			d.says(503, "uninstalled")
			if diff := cmp.Diff(before, r.tree("conf")); diff != "" {
				t.Errorf("uninstall leaves a trace (-original +left):\n%s", diff)
			}
			if diff := cmp.Diff(beside, r.tree("multus")); diff != "" {
				t.Errorf("uninstall leaves a trace for Multus (-original +left):\n%s", diff)
			}
		})
	}
}

// A directory that is deleted on the node and made anew, as an upgrade of a distribution's package
// may do, is not the one that was mounted. The daemon has that one by a descriptor here, as a
// container has it by its mount.
func TestADirectoryThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	multus := `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus"}`
	for flag, files := range map[string]map[string]string{
		"--bin-dir":         {"10-bridge.conflist": bridge},
		"--conf-dir":        {"10-bridge.conflist": bridge},
		"--multus-conf-dir": {"00-multus.conf": multus},
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, files)
			dir := r.path(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(flag, "--"),
				"-dir"), "-conf"))
			r.must(os.MkdirAll(dir, 0o755))
			mount, err := os.Open(dir)
			r.must(err)
			defer mount.Close()
			d := r.start(flag, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), mount.Fd()))
			d.says(200)
			r.must(os.RemoveAll(dir))
			r.must(os.Mkdir(dir, 0o755))
			select {
			case err := <-d.ended:
				if err == nil || !strings.Contains(d.log.String(),
					"deleted on the node after it was mounted: the agent has to be started anew") {
					t.Errorf("it ended with %v\n%s", err, d.log)
				}
				if strings.Contains(d.log.String(), "set the chart's way") {
					t.Errorf("a remedy that would not help:\n%s", d.log)
				}
			case <-time.After(await.Limit):
				t.Fatal("the daemon goes on")
			}
			if flag == "--bin-dir" {
				r.start().says(200)
			}
		})
	}
}

// Where the parent is mounted, a directory that is made anew is seen without a new mount. A parent
// that is deleted is not.
func TestADirectoryThatIsMadeAnewInItsParent(t *testing.T) {
	t.Parallel()
	for _, parentToo := range []bool{false, true} {
		t.Run(fmt.Sprintf("the parent too: %v", parentToo), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
			r.must(os.Mkdir(r.path("opt"), 0o755))
			mount, err := os.Open(r.path("opt"))
			r.must(err)
			defer mount.Close()
			// The directory is still missing.
			d := r.start("--bin-dir", fmt.Sprintf("/proc/%d/fd/%d/bin", os.Getpid(), mount.Fd()))
			d.says(200)
			if parentToo {
				r.must(os.RemoveAll(r.path("opt")))
				r.must(os.MkdirAll(r.path("opt", "bin"), 0o755))
				select {
				case err := <-d.ended:
					if err == nil {
						t.Error("it ended without an error")
					}
				case <-time.After(await.Limit):
					t.Fatal("the daemon goes on")
				}
				return
			}
			r.must(os.RemoveAll(r.path("opt", "bin")))
			d.says(503, "binary", "no such file or directory")
			r.must(os.Mkdir(r.path("opt", "bin"), 0o755))
			d.says(200)
		})
	}
}

// Multus where nobody told the chart of it: its directory is not mounted.
func TestMultusThatTheChartWasNotTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{
		"00-multus.conf": `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus"}`})
	d := r.start()
	want := []string{r.path("multus") + ": no such file or directory",
		"set the chart's way to standalone, and its multusConfDir"}
	d.says(503, want...)
	if out, err := r.run("run", "--dry-run"); err == nil ||
		!strings.Contains(out+err.Error(), want[1]) {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	r.must(os.Mkdir(r.path("multus"), 0o755))
	d.says(200, "NetworkAttachmentDefinition")
}

// A cluster that gives up Multus gets an entry in its chain, and loses the standalone file.
func TestFromStandaloneToInline(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{
		"00-multus.conf": `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus"}`})
	r.must(os.Mkdir(r.path("multus"), 0o755))
	d := r.start()
	d.says(200, "NetworkAttachmentDefinition")
	if got := r.tree("multus"); len(got) != 1 {
		t.Errorf("for Multus: %v", got)
	}
	r.write("10-bridge.conflist", bridge)
	r.must(os.Remove(r.path("conf", "00-multus.conf")))
	d.says(200, "10-bridge.conflist runs our entry")
	await.Until(t, "Multus' file is gone", func() bool { return len(r.tree("multus")) == 0 })
}

func TestADaemonObeysTheMarkerUntilItIsInstalledAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	d := r.start("--install-id", "first")
	d.says(200)
	if out, err := r.run("uninstall", "--install-id", "first"); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	d.says(503, "uninstalled")
	// A change of the file makes a daemon pass.
	r.write("10-bridge.conflist", strings.Replace(bridge, "cni0", "cni1", 1))
	same := r.start("--install-id", "first")
	same.says(503, "uninstalled")
	if got := r.chain(); !slices.Equal(got, []string{"bridge"}) {
		t.Errorf("chain %q", got)
	}
	same.stop()
	d.stop()
	r.start("--install-id", "second").says(200, "10-bridge.conflist runs our entry")
}

// TestAnUninstallationThatWasGivenUp has agents of one installation beside an uninstallation that
// broke off. Only one whose pod was created after it takes the node in again, and the pod that
// uninstalls lets it.
func TestAnUninstallationThatWasGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	at := time.Now().Truncate(time.Second)
	for name, created := range map[string]time.Time{"older": at.Add(-time.Hour), "same": at,
		"later": at.Add(time.Second)} {
		r.api.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "kube-system", UID: types.UID(name),
			CreationTimestamp: metav1.NewTime(created),
		}})
	}
	agent := func(name string) *daemon {
		return r.start("--install-id", "one", "--pod-name", name, "--pod-uid", name)
	}
	first := agent("older")
	first.says(200)
	out := r.stay("--install-id", "one", "--withdrawn", at.UTC().Format(time.RFC3339))
	out.says(200, "ready: the node is out")
	first.says(503, "uninstalled")
	first.stop()
	// These are containers that are started again, and one of a pod that is not known.
	for _, name := range []string{"older", "same", "gone"} {
		a := agent(name)
		a.says(503, "uninstalled")
		a.stop()
	}
	// The pod has that name and another uid.
	other := r.start("--install-id", "one", "--pod-name", "later", "--pod-uid", "another")
	other.says(503, "uninstalled")
	other.stop()
	if got := r.chain(); !slices.Equal(got, []string{"bridge"}) {
		t.Errorf("chain %q", got)
	}
	agent("later").says(200, "10-bridge.conflist runs our entry")
	const gaveUp = "an agent whose pod was created after this uninstallation began has taken the " +
		"node in again"
	out.says(200, gaveUp)
	out.stop()
	// The container of the uninstalling pod is started once more.
	again := r.stay("--install-id", "one", "--withdrawn", at.UTC().Format(time.RFC3339))
	again.says(200, gaveUp)
	if got := r.chain(); !slices.Equal(got, []string{"bridge", "sidecar-cni"}) {
		t.Errorf("chain %q", got)
	}
	again.stop()
	// The next uninstallation takes the node out.
	r.stay("--install-id", "one", "--withdrawn", at.Add(time.Minute).UTC().Format(time.RFC3339)).
		says(200, "ready: the node is out")
}

// TestANodeThatWasTakenOutByHand stays out when the others come back.
func TestANodeThatWasTakenOutByHand(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	if out, err := r.run("uninstall", "--install-id", "one"); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	r.stay("--install-id", "one", "--withdrawn", "2026-01-02T03:04:05Z").says(200,
		"ready: the node is out")
	r.api.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "later", Namespace: "kube-system",
		CreationTimestamp: metav1.Now()}})
	r.start("--install-id", "one", "--pod-name", "later").says(503, "uninstalled")
}

// TestUninstallOfADirectoryThatWasDeleted does not say that a node is out which it cannot see, and
// ends for a new mount.
func TestUninstallOfADirectoryThatWasDeleted(t *testing.T) {
	t.Parallel()
	for _, below := range []string{"", "net.d"} { // of what is mounted
		t.Run("mounted: "+below, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.must(os.MkdirAll(r.path("etc", below), 0o755))
			r.must(os.WriteFile(r.path("etc", below, "10-bridge.conflist"), []byte(bridge), 0o644))
			mount, err := os.Open(r.path("etc"))
			r.must(err)
			defer mount.Close()
			d := r.stay("--conf-dir",
				filepath.Join(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), mount.Fd()), below))
			d.says(200, "ready: the node is out")
			r.must(os.RemoveAll(r.path("etc")))
			select {
			case err := <-d.ended:
				if err == nil || !strings.Contains(d.log.String(),
					"deleted on the node after it was mounted") {
					t.Errorf("it ended with %v\n%s", err, d.log)
				}
			case <-time.After(await.Limit):
				t.Fatal("it goes on")
			}
		})
	}
}

// TestALinkOutOfTheParent is named, with what helps.
func TestALinkOutOfTheParent(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--bin-dir", "--conf-dir"} {
		r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
		r.must(os.Symlink("/nowhere/cni", r.path("link")))
		r.start(flag, r.path("link")).says(503, "it is a link to /nowhere/cni",
			"mountParents to false")
	}
}

// TestUninstallTakesBackWhatWasSaid looks at the Node object and the pods after an uninstallation.
func TestUninstallTakesBackWhatWasSaid(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	for name, node := range map[string]string{"here": "node-1", "elsewhere": "node-2"} {
		r.api.Put(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name),
				Labels: map[string]string{"sidecar-cni.io/redirection": "missing", "app": "a"}},
			Spec: corev1.PodSpec{NodeName: node},
		})
	}
	d := r.start("--node-condition")
	d.says(200)
	conditions := func() int { return len(r.api.Node("node-1").Status.Conditions) }
	await.Until(t, "the node has a condition", func() bool { return conditions() == 1 })
	d.stop()
	if out, err := r.run("uninstall", "--node-condition", "--label-pods"); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	if n := conditions(); n != 0 {
		t.Errorf("the node has %d conditions", n)
	}
	for name, want := range map[string]int{"here": 1, "elsewhere": 2} {
		if labels := r.api.Pod("shop", name).Labels; len(labels) != want || labels["app"] != "a" {
			t.Errorf("pod %s: labels %v", name, labels)
		}
	}
}

func TestUninstallKeepsABinaryThatACachedResultNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	d := r.start()
	d.says(200)
	d.stop()
	conf, err := os.ReadFile(r.path("conf", "10-bridge.conflist"))
	r.must(err)
	cached, err := json.Marshal(map[string]any{"kind": "cniCacheV1", "containerId": "c",
		"config": conf, "ifName": "eth0", "networkName": "pods"})
	r.must(err)
	r.must(os.MkdirAll(r.path("cache", "results"), 0o755))
	r.must(os.WriteFile(r.path("cache", "results", "pods-c-eth0"), cached, 0o600))
	out, err := r.run("uninstall")
	if _, gone := os.Stat(r.path("bin", "sidecar-cni")); err != nil || gone != nil ||
		!strings.Contains(out, "1 results in") {
		t.Errorf("uninstall: %v, binary: %v\n%s", err, gone, out)
	}
	r.must(os.Remove(r.path("cache", "results", "pods-c-eth0")))
	if out, err := r.run("uninstall"); err != nil || len(r.tree("bin")) > 0 {
		t.Errorf("uninstall again: %v\n%s", err, out)
	}
}

// The daemon follows the file that the runtime would load.
func TestADaemonFollowsThePrimary(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	d := r.start()
	d.says(503, "no_network", "waiting for the network plugin")
	r.write("50-bridge.conflist", bridge)
	d.says(200, "50-bridge.conflist")
	r.write("10-calico.conflist",
		strings.NewReplacer(`"pods"`, `"k8s-pod-network"`, `"bridge"`, `"calico"`).Replace(bridge))
	d.says(200, "10-calico.conflist")
	if got := r.chain(); !slices.Equal(got, []string{"calico", "sidecar-cni"}) {
		t.Errorf("chain %q", got)
	}
	r.write("10-calico.conflist", `{"cniVersion":"1.0.0","name":"k8s-pod-net`)
	d.says(503, "broken", "10-calico.conflist")
	r.must(os.Remove(r.path("conf", "10-calico.conflist")))
	d.says(200, "50-bridge.conflist")
	r.must(os.WriteFile(r.path("bin", "sidecar-cni"), []byte("cut off"), 0o755))
	await.Until(t, "the binary is whole again", func() bool {
		data, err := os.ReadFile(r.path("bin", "sidecar-cni"))
		return err == nil && len(data) > 1<<20
	})
}

// A directory that goes, as when a network plugin is reinstalled, is followed when it comes back.
func TestTheConfDirectoryIsDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	d := r.start()
	d.says(200)
	r.must(os.RemoveAll(r.path("conf")))
	d.says(503, r.path("conf"))
	r.must(os.Mkdir(r.path("conf"), 0o755))
	r.write("10-bridge.conflist", bridge)
	d.says(200, "10-bridge.conflist runs our entry")
	if _, err := os.Stat(r.path("conf", "sidecar-cni.d", "kubeconfig")); err != nil {
		t.Error(err)
	}
}

func TestAnotherMeshIsLeftAlone(t *testing.T) {
	t.Parallel()
	other := strings.Replace(bridge, "\n  ]", ",\n    {\"type\": \"istio-cni\"}\n  ]", 1)
	r := newRig(t, map[string]string{"10-bridge.conflist": other})
	before := r.tree("conf")
	d := r.start()
	d.says(503, "other_mesh", "istio-cni", "10-bridge.conflist")
	if diff := cmp.Diff(before, r.tree("conf")); diff != "" {
		t.Errorf("conf directory (-before +after):\n%s", diff)
	}
	if got := r.tree("bin"); len(got) > 0 {
		t.Errorf("%d files in the binary directory", len(got))
	}
	r.write("10-bridge.conflist", bridge)
	d.says(200)
}

// The neighbour writes the whole file every 100 ms, as a network plugin's agent might that insists
// on its own.
func TestANeighbourThatInsists(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	d := r.start()
	d.says(200)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for range 50 {
		<-ticker.C
		r.write("10-bridge.conflist", bridge)
	}
	const series = `sidecar_cni_chain_conflicts_total{file="10-bridge.conflist"}`
	conflicts, err := strconv.Atoi(d.metric(series))
	if err != nil || conflicts < 3 || conflicts > 10 {
		t.Errorf("%d conflicts in 5 s, %v", conflicts, err)
	}
	d.says(200, "10-bridge.conflist runs our entry")
	if passes := len(d.logged("changed node")); passes > conflicts+1 {
		t.Errorf("%d passes changed something, for %d conflicts", passes, conflicts)
	}
	await.Until(t, "an Event tells of it", func() bool {
		return slices.ContainsFunc(r.api.Events(), func(e *corev1.Event) bool {
			return e.Reason == "SidecarChainConflict" && e.InvolvedObject.Kind == "Node" &&
				strings.Contains(e.Message, "10-bridge.conflist")
		})
	})
	cpu := d.cpu()
	await.Until(t, "a while is over",
		func() bool { d.get("/healthz"); return time.Now().After(cpu.at.Add(2 * time.Second)) })
	if spent := d.cpu().spent - cpu.spent; spent > 500*time.Millisecond {
		t.Errorf("%v of CPU in 2 s of peace", spent)
	}
	if passes, err := strconv.Atoi(
		d.metric(`sidecar_cni_passes_total{result="unchanged"}`)); err != nil || passes > 2 {
		t.Errorf("%d passes changed nothing, %v: our own writes brought them about", passes, err)
	}
}

type spent struct {
	at    time.Time
	spent time.Duration
}

// cpu is what the daemon has used up.
func (d *daemon) cpu() spent {
	d.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	d.must(err)
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')'):]))
	var ticks int
	for _, field := range fields[12:14] { // utime, stime
		n, err := strconv.Atoi(field)
		d.must(err)
		ticks += n
	}
	return spent{time.Now(), time.Duration(ticks) * 10 * time.Millisecond}
}

// The kubelet changes a projected token by another target of the link ..data.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	rotate := func(name, token string) {
		r.must(os.MkdirAll(r.path("token", name), 0o755))
		r.must(os.WriteFile(r.path("token", name, "token"), []byte(token), 0o600))
		r.must(os.Symlink(name, r.path("token", "..data_tmp")))
		r.must(os.Rename(r.path("token", "..data_tmp"), r.path("token", "..data")))
	}
	first, second := apiserver.Token(apiserver.Account, time.Now().Add(time.Hour)),
		apiserver.Token(apiserver.Account, time.Now().Add(2*time.Hour))
	rotate("..1", first)
	r.must(os.Symlink("..data/token", r.path("token", "token")))
	d := r.start("--token-file", r.path("token", "token"))
	d.says(200)
	before := r.tree("conf/sidecar-cni.d")
	rotate("..2", second)
	flapped := false
	await.Until(t, "the new token is there", func() bool {
		code, _ := d.get("/readyz")
		flapped = flapped || code != 200
		data, err := os.ReadFile(r.path("conf", "sidecar-cni.d", "token"))
		return err == nil && strings.TrimSpace(string(data)) == second
	})
	if flapped {
		t.Error("the node was not ready meanwhile")
	}
	after := r.tree("conf/sidecar-cni.d")
	delete(before, "token")
	delete(after, "token")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("more than the token changed (-before +after):\n%s", diff)
	}
	await.Until(t, "the log tells", func() bool { return len(d.logged("changed node")) == 2 })
	want := []any{"wrote " + r.path("conf", "sidecar-cni.d", "token")}
	if diff := cmp.Diff(want, d.logged("changed node")[1]["changes"]); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// Without the API server a node gets its chain all the same; it is ready when it can answer for its
// pods.
func TestTheAPIServerIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	r.api.Break(apiserver.SayText(503, 0, "etcd is away"))
	d := r.start("--untaint")
	d.says(503, "the cache of the node's pods was not filled yet")
	if got := r.chain(); !slices.Equal(got, []string{"bridge", "sidecar-cni"}) {
		t.Errorf("chain %q", got)
	}
	r.api.Break(nil)
	d.says(200)
	r.api.Break(apiserver.SayText(503, 0, "etcd is away"))
	r.api.DropWatches()
	for range 20 {
		if code, text := d.get("/readyz"); code != 200 {
			t.Fatalf("readiness flaps: %d %s", code, text)
		}
	}
}

func TestTheTaintIsRemovedOnceTheChainIsEffective(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	object := r.api.Node("node-1")
	own := corev1.Taint{Key: "sidecar-cni.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Taint{Key: "node.kubernetes.io/unreachable",
		Effect: corev1.TaintEffectNoExecute}
	object.Spec.Taints = []corev1.Taint{other, own}
	r.api.PutNode(object)
	d := r.start("--untaint", "--node-condition")
	d.says(503, "no_network")
	await.Until(t, "the condition says no",
		func() bool { return condition(r.api.Node("node-1")) == "False NoNetwork" })
	if got := r.api.Node("node-1").Spec.Taints; len(got) != 2 {
		t.Errorf("taints %v", got)
	}
	r.write("10-bridge.conflist", bridge)
	await.Until(t, "the taint is gone", func() bool { return len(r.api.Node("node-1").Spec.Taints) == 1 })
	await.Until(t, "the condition says yes",
		func() bool { return condition(r.api.Node("node-1")) == "True Effective" })
	if diff := cmp.Diff([]corev1.Taint{other}, r.api.Node("node-1").Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}

// A network that starts writes its file more than once, and a taint that was taken away too early
// does not come back.
func TestNothingIsToldBeforeTheEntryHasStood(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	object := r.api.Node("node-1")
	object.Spec.Taints = []corev1.Taint{{Key: "sidecar-cni.io/not-ready",
		Effect: corev1.TaintEffectNoSchedule}}
	r.api.PutNode(object)
	d := r.start("--untaint", "--node-condition")
	d.says(200)
	early, shown := "", []int{200}
	for end := time.Now().Add(5 * time.Second); time.Now().
		Before(end); time.Sleep(50 * time.Millisecond) {
		if len(r.chain()) == 2 {
			r.write("10-bridge.conflist", bridge)
		}
		n := r.api.Node("node-1")
		if len(n.Spec.Taints) == 0 || strings.HasPrefix(condition(n), "True") {
			early = fmt.Sprintf("taints %v, condition %q", n.Spec.Taints, condition(n))
		}
		if code, _ := d.get("/readyz"); code != shown[len(shown)-1] {
			shown = append(shown, code)
		}
	}
	if early != "" {
		t.Errorf("told while another writer went on: %s", early)
	}
	if !slices.Equal(shown, []int{200, 503}) {
		t.Errorf("readiness flaps: %v", shown)
	}
	d.says(200)
	await.Until(t, "the taint is gone", func() bool { return len(r.api.Node("node-1").Spec.Taints) == 0 })
	await.Until(t, "the condition says yes",
		func() bool { return condition(r.api.Node("node-1")) == "True Effective" })
}

func condition(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == "SidecarCNIReady" {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// During an update two agents share the node: the newer one is in charge, and the older one again
// if that dies.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	older := r.start()
	older.says(200)
	newer := r.start("--plugin-conf", `{"deadline":"20s"}`)
	newer.says(200)
	has := func() bool {
		data, err := os.ReadFile(r.path("conf", "10-bridge.conflist"))
		return err == nil && strings.Contains(string(data), `"deadline":"20s"`)
	}
	if !has() {
		t.Error("the newer agent's entry is not there")
	}
	r.write("10-bridge.conflist", bridge)
	await.Until(t, "the newer agent's entry is back", has)
	r.must(older.cmd.Process.Signal(syscall.SIGHUP)) // asks for a pass
	older.says(200, "a newer agent on this node is in charge")
	if changes := older.logged("changed node"); len(changes) != 1 {
		t.Errorf("the older agent went on writing: %v", changes)
	}
	if got := older.metric(`sidecar_cni_chain_conflicts_total{file="10-bridge.conflist"}`); got != "" {
		t.Errorf("the older agent counts %s conflicts", got)
	}
	newer.kill()
	r.must(older.cmd.Process.Signal(syscall.SIGHUP))
	await.Until(t, "the older agent's entry is there", func() bool {
		return !has() && slices.Equal(r.chain(), []string{"bridge", "sidecar-cni"})
	})
	await.Until(t, "the older agent answers", func() bool { return r.answers() == nil })
	third := r.start()
	third.says(200, "runs our entry")
	await.Until(t, "the third agent answers", func() bool {
		return third.metric(`sidecar_cni_socket_requests_total{code="200",path="healthz"}`) != "" ||
			r.answers() != nil
	})
	third.stop()
	await.Until(t, "the older agent answers again", func() bool { return r.answers() == nil })
	older.stop()
	if err := r.answers(); err == nil {
		t.Error("somebody answers after the last agent's end")
	}
}

// The agents of a rollout that is stuck, here for want of a network, do not take the socket from
// each other.
func TestTwoAgentsWithoutANetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	older := r.start()
	older.says(200)
	newer := r.start("--plugin-conf", `{"deadline":"20s"}`)
	newer.says(200)
	r.must(os.Remove(r.path("conf", "10-bridge.conflist")))
	older.says(503, "no_network")
	newer.says(503, "no_network")
	serves := func(d *daemon) bool {
		before := d.metric(`sidecar_cni_socket_requests_total{code="200",path="healthz"}`)
		return r.answers() == nil &&
			d.metric(`sidecar_cni_socket_requests_total{code="200",path="healthz"}`) != before
	}
	await.Until(t, "the newer agent answers", func() bool { return serves(newer) })
	// Agents look after their sockets once a second.
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		if serves(older) {
			t.Fatal("the older agent has taken the socket")
		}
	}
	lost := append(older.logged("lost socket"), newer.logged("lost socket")...)
	if len(lost) > 0 {
		t.Errorf("the agents contend for the socket: %v", lost)
	}
}

// answers asks at the socket.
func (r *rig) answers() error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", r.path("run", "agent.sock"))
		},
	}}
	resp, err := client.Get("http://agent/v1/healthz")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// An update to something that cannot work here must not stop what does.
func TestANewerAgentThatCannotWorkIsNotInCharge(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	older := r.start()
	older.says(200)
	newer := r.start("--backend", "iptables-nft")
	newer.says(503, "no_backend")
	r.write("10-bridge.conflist", bridge)
	await.Until(t, "the older agent has put us back",
		func() bool { return slices.Equal(r.chain(), []string{"bridge", "sidecar-cni"}) })
	older.says(200, "runs our entry")
	if lost := append(older.logged("lost socket"), newer.logged("lost socket")...); lost != nil {
		t.Errorf("the agents contend for the socket: %v", lost)
	}
}

// Uninstalling by hand, with no flag but where the agent keeps its files, finds what the agent has
// done and binds it.
func TestUninstallByHand(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	before := r.tree("conf")
	d := r.start("--install-id", "first")
	d.says(200)
	foreign := r.path("conf", "sidecar-cni.d", "theirs")
	r.must(os.WriteFile(foreign, nil, 0o600))
	out, err := exec.Command(filepath.Join(r.built, "sidecar-cni-installer"), "uninstall",
		"--run-dir", r.path("run"), "--cache-dir", r.path("cache")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d.says(503, "uninstalled")
	r.must(os.Remove(foreign))
	r.must(os.Remove(filepath.Dir(foreign)))
	if diff := cmp.Diff(before, r.tree("conf")); diff != "" {
		t.Errorf("conf directory (-original +left):\n%s", diff)
	}
	if got := r.tree("bin"); len(got) > 0 {
		t.Errorf("left in the binary directory: %d files", len(got))
	}
}

// The runtime watches its directory and nothing below it. An agent that was killed after it wrote a
// drop-in has not told it.
func TestADropInThatWasThereIsToldToTheRuntime(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	object := r.api.Node("node-1")
	object.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.0"
	r.api.PutNode(object)
	d := r.start()
	d.says(200, "99-sidecar-cni.conf")
	d.kill()
	long := time.Now().Add(-time.Hour)
	r.must(os.Chtimes(r.path("conf"), long, long))
	again := r.start()
	again.says(200)
	if info, err := os.Stat(r.path("conf")); err != nil ||
		time.Since(info.ModTime()) > time.Minute {
		t.Errorf("nothing happened in the directory: %v", err)
	}
	again.stop()
	r.api.Break(apiserver.SayText(503, 0, "etcd is away"))
	last := r.start()
	last.says(503, "the cache of the node's pods was not filled yet")
	if got := r.chain(); !slices.Equal(got, []string{"bridge", "sidecar-cni"}) ||
		len(last.logged("changed node")) > 0 {
		t.Errorf("chain %q, changes %v, while nobody tells what the runtime is", got,
			last.logged("changed node"))
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	if out, err := r.run("run", "--once"); err != nil ||
		!slices.Equal(r.chain(), []string{"bridge", "sidecar-cni"}) {
		t.Errorf("%v, chain %q\n%s", err, r.chain(), out)
	}
	for name, row := range map[string]struct {
		flags []string
		words string
	}{
		"a runtime without drop-ins": {[]string{"--way", "dropin"}, "no_drop_ins"},
		"no such directory": {[]string{"--conf-dir", r.path("nowhere")},
			r.path("nowhere")},
		"a wrong key": {[]string{"--plugin-conf", `{"dedline":"3s"}`},
			"dedline: the plugin has no such key"},
		"a key with a flag": {[]string{"--plugin-conf", `{"backend":"nftables"}`},
			"there is a flag for it"},
		"no JSON":  {[]string{"--plugin-conf", `{`}, "--plugin-conf"},
		"no token": {[]string{"--token-file", r.path("nowhere")}, "credentials"},
		"no binary": {[]string{"--plugin-binary", r.path("nowhere")},
			r.path("nowhere")},
		"no node":                   {[]string{"--node-name", ""}, "--node-name"},
		"iptables without the host": {[]string{"--backend", "iptables-nft"}, "--host-root"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := r.run("run", append([]string{"--once"}, row.flags...)...)
			if err == nil || !strings.Contains(out, row.words) {
				t.Errorf("%v, want %q in\n%s", err, row.words, out)
			}
		})
	}
}

func TestAWrongPlatformIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	object := r.api.Node("node-1")
	object.Status.NodeInfo.KubeletVersion = "v1.33.3+k3s1"
	r.api.PutNode(object)
	d := r.start()
	d.says(200)
	if got := d.logged("node looks like another platform"); len(got) != 1 ||
		got[0]["want"] != "k3s" || got[0]["platform"] != "kubeadm" {
		t.Errorf("logged %v", got)
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	before := r.tree(".")
	out, err := r.run("run", "--dry-run", "--kubeconfig", "/nowhere", "--node-name", "",
		"--token-file", "/nowhere")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, words := range []string{
		"way inline, network pods of 10-bridge.conflist", "+++ 10-bridge.conflist",
		`+    {"type":"sidecar-cni"`, "sidecar-cni: it would be written",
	} {
		if !strings.Contains(out, words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	if diff := cmp.Diff(before, r.tree(".")); diff != "" {
		t.Errorf("it changed something (-before +after):\n%s", diff)
	}
	if out, err := r.run("uninstall"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := r.run("run", "--dry-run"); err != nil ||
		!strings.Contains(out, "no change: the node was taken out") ||
		strings.Contains(out, "+++") {
		t.Errorf("on a node that was taken out: %v\n%s", err, out)
	}
}
