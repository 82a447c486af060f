package guard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/installer/guard"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/nriserver"
)

// required is the annotation without whose plugin the validator lets no container be.
const required = "required-plugins.noderesource.dev/pod"

// alone is the variable with which this program is nothing but a guard, so that it can be stopped
// and killed.
const alone = "GUARD_ALONE"

func TestMain(m *testing.M) {
	if socket := os.Getenv(alone); socket != "" {
		guardAlone(socket)
		return
	}
	os.Exit(m.Run())
}

func guardAlone(socket string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // it ends with the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	registry := prometheus.NewRegistry()
	client, err := agent.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		panic(err)
	}
	guard.New(guard.Config{Mode: guard.Auto, Socket: socket, Redirect: redirect.Defaults(),
		Records: record.Dir(filepath.Dir(socket))}, guard.Deps{
		InCharge: func() bool { return true }, Repair: func() {}, Locks: &podns.Locks{},
		Find: func(context.Context, agent.Ref) agent.Answer {
			return agent.Answer{Verdict: agent.Absent}
		},
		Events:   agent.NewEvents(client, "node-1", registry, zap.NewNop()),
		Registry: registry, Log: zap.NewNop(),
	}).Run(ctx, func(context.Context) error { return nil })
}

// At connecting, sandboxes are told that were set up while the guard was away.
func TestSandboxesThatWereThere(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.listen(nriserver.Options{Version: version})
			spaces := map[string]*netns.NS{}
			var pods []nriserver.Pod
			for _, name := range []string{"new", "made", "runs", "known", "wrong", "mended", "lost", "again"} {
				spaces[name] = netns.New(t)
				var annotations map[string]string
				if name == "wrong" {
					annotations = map[string]string{"traffic.sidecar.istio.io/excludeOutboundPorts": "x"}
				}
				pods = append(pods, n.sandbox(meshed(name, annotations), spaces[name]))
			}
			gone, ended := n.sandbox(meshed("gone", nil), nil), n.sandbox(meshed("ended", nil), nil)
			gone.NetnsPath, ended.NetnsPath = filepath.Join(n.proc, "gone"), nriserver.Untold
			n.process(50, spaces["mended"].Path())
			for name, r := range map[string]record.Record{
				"known": {Attachment: record.Attachment{Container: pods[3].ID,
					Interface: "eth0"}, Netns: record.Netns{Path: "/gone"}},
				"mended": {Attachment: record.StandIn(pods[5].UID),
					Netns: record.Netns{Path: "/proc/50/ns/net"}},
				// of the sandbox before, whose inode is used again
				"again": {Attachment: record.StandIn(pods[7].UID),
					Netns: record.Netns{Path: "/proc/51/ns/net"}},
			} {
				at := identify(t, spaces[name])
				r.Netns.Device, r.Netns.Inode = at.Device, at.Inode
				if err := n.config.Records.Write(r); err != nil {
					t.Fatal(err)
				}
			}
			program(t, spaces["lost"])
			n.runtime.SetPods(append(pods, gone, ended), []nriserver.Container{
				{ID: "5", PodID: pods[5].ID, Name: "app", State: nriserver.Running},
				{ID: "6", PodID: pods[6].ID, Name: "app", State: nriserver.Running},
				{ID: "7", PodID: pods[7].ID, Name: "app", State: nriserver.Paused},
				{ID: "1", PodID: pods[1].ID, Name: "app", State: nriserver.Created},
				{ID: "2", PodID: pods[2].ID, Name: "app", State: nriserver.Running},
			})
			n.guard()
			n.awaitConnected()
			for name, want := range map[string]bool{"new": true, "made": true} {
				if got := strings.Contains(rules(t, spaces[name]), table); got != want {
					t.Errorf("%s has our rules: %t, want %t", name, got, want)
				}
			}
			for outcome, want := range map[string]int{
				"redirected": 2, "open": 2, "recorded": 2, "skipped": 2, "undecided": 2,
			} {
				n.wantCounted("connect", outcome, want)
			}
			if got := n.repairs.Load(); got != 1 {
				t.Errorf("package repair was called %d times", got)
			}
			// What cannot be refused any more has no container.
			app := nriserver.Container{ID: "9", PodID: pods[4].ID, Name: "app"}
			if _, err := n.runtime.CreateContainer(pods[4], app); err == nil ||
				!strings.Contains(err.Error(), "excludeOutboundPorts") {
				t.Errorf("error %v", err)
			}
			n.wantCounted("container", "refused", 1)
			app.PodID = pods[0].ID
			if _, err := n.runtime.CreateContainer(pods[0], app); err != nil {
				t.Error(err)
			}
		})
	}
}

// A runtime that does not run the agent's own pod does not run the node's others either.
func TestAnIdleRuntime(t *testing.T) {
	t.Parallel()
	for uid, want := range map[string]float64{"0f6f": 1, "1a7a": 0} {
		n := newNode(t)
		n.config.PodUID = "0f6f"
		n.listen(nriserver.Options{})
		n.runtime.SetPods([]nriserver.Pod{{ID: "1", Name: "agent", Namespace: "kube-system",
			UID: uid}}, nil)
		n.guard()
		n.runtime.AwaitSynchronized(1)
		if got := n.connectedMetric(); got != want {
			t.Errorf("with the pod %s connected is %v, want %v", uid, got, want)
		}
	}
}

// A sandbox that nobody could decide at connecting is decided at its first container, once.
func TestASandboxIsDecidedLater(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	n, ns := newNode(t), netns.New(t)
	n.listen(nriserver.Options{})
	s := n.sandbox(meshed("web", nil), ns)
	n.runtime.SetPods([]nriserver.Pod{s}, nil)
	n.silence(true)
	n.guard()
	n.awaitConnected()
	n.wantCounted("connect", "undecided", 1)
	app := nriserver.Container{ID: "9", PodID: s.ID, Name: "app"}
	if _, err := n.runtime.CreateContainer(s, app); err == nil {
		t.Error("a container was made in a sandbox that nobody knows")
	}
	n.silence(false)
	for range 2 {
		if _, err := n.runtime.CreateContainer(s, app); err != nil {
			t.Error(err)
		}
	}
	if got := rules(t, ns); !strings.Contains(got, table) {
		t.Errorf("rules:\n%s", got)
	}
	n.wantCounted("container", "redirected", 1)
	n.wantCounted("container", "recorded", 0)
}

// A runtime is told within its time that nothing was found out. Another pod's question is answered
// as before.
func TestAnAnswerComesInTime(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	inTime(t, func() error {
		n := connected(t, nriserver.Options{})
		n.silence(true)
		_, err := n.runtime.RunPodSandbox(n.sandbox(meshed("web", nil), netns.New(t)))
		if err == nil || !strings.Contains(err.Error(), "sidecar-cni refused pod shop/web") {
			return fmt.Errorf("want a refusal: %w", cmp.Or(err, errors.New("there was none")))
		}
		// Somebody holds the namespace, as a repair does.
		n.silence(false)
		ns := netns.New(t)
		at := identify(t, ns)
		unlock, err := n.locks.Lock(t.Context(), podns.ID{Device: at.Device, Inode: at.Inode})
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.runtime.RunPodSandbox(n.sandbox(meshed("held", nil), ns))
		unlock()
		if err == nil {
			return errors.New("a namespace was written to that somebody else holds")
		}
		if err := n.run(n.sandbox(meshed("held", nil), ns)); err != nil {
			t.Error(err)
		}
		n.runtime.AwaitPlugins(name)
		return nil
	})
}

// An agent that ends answers what it was asked before.
func TestTheLastAnswer(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	inTime(t, func() error {
		n, ns := newNode(t), netns.New(t)
		n.gate = make(chan struct{})
		n.listen(patient)
		n.guard()
		n.awaitConnected()
		answer := make(chan error, 1)
		s := n.sandbox(meshed("web", nil), ns)
		go func() {
			_, err := n.runtime.RunPodSandbox(s)
			answer <- err
		}()
		n.await("the question", func() bool { return n.asked.Load() > 0 })
		n.cancel()
		close(n.gate)
		err := <-answer
		n.stop()
		if got := rules(t, ns); err == nil && !strings.Contains(got, table) {
			err = fmt.Errorf("rules:\n%s", got)
		}
		return err
	})
}

// A runtime that ends, hangs or starts anew finds the guard again.
func TestARuntimeComesBack(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	n := connected(t, patient)
	n.runtime.Kill()
	n.await("the loss to be seen", func() bool { return n.connectedMetric() == 0 })
	if err := os.Remove(n.config.Socket); err != nil {
		t.Fatal(err)
	}
	n.await("the socket to be missed", func() bool { return n.connectedMetric() == -1 })
	n.runtime.Restart()
	n.awaitConnected()
	n.runtime.Stop()
	n.runtime.Cont()
	ns := netns.New(t)
	if err := n.run(n.sandbox(meshed("web", nil), ns)); err != nil {
		t.Error(err)
	}
	n.runtime.Restart()
	n.awaitConnected()
	n.stop()
	n.runtime.AwaitPlugins()
}

// A socket at which nobody answers is left again, for one at which somebody does.
func TestASilentSocket(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	n := newNode(t)
	silent, err := net.Listen("unix", n.config.Socket)
	if err != nil {
		t.Fatal(err)
	}
	silent.(*net.UnixListener).SetUnlinkOnClose(false)
	accepted := make(chan struct{})
	go func() {
		conn, err := silent.Accept()
		if err != nil {
			return
		}
		close(accepted)
		t.Cleanup(func() { conn.Close() })
	}()
	n.guard()
	<-accepted
	n.await("the socket to be seen", func() bool { return n.connectedMetric() == 0 })
	silent.Close()
	n.listen(nriserver.Options{})
	n.awaitConnected()
}

// A guard that hangs is dropped by the runtime, which goes on without it; with the validator no
// container of a pod that wants it does. It comes back when it can.
func TestAGuardThatHangs(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	n := newNode(t)
	n.listen(nriserver.Options{Validator: true})
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), alone+"="+n.config.Socket)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	n.runtime.AwaitSynchronized(1)
	s := n.sandbox(meshed("web", map[string]string{required: `["sidecar-cni"]`}), netns.New(t))
	app := nriserver.Container{ID: "1", PodID: s.ID, Name: "app"}
	if err := n.run(s); err == nil {
		t.Fatal("the guard knows no pod, and let one pass")
	}
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	n.await("it to stop", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	if took, err := n.runtime.RunPodSandbox(s); err != nil {
		t.Errorf("error %v after %v: NRI goes on without a plugin that hangs", err, took)
	}
	if _, err := n.runtime.CreateContainer(s, app); err == nil ||
		!strings.Contains(err.Error(), "sidecar-cni") {
		t.Errorf("error %v: want the validator's", err)
	}
	if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// Its sandbox is told at connecting, and still nobody knows the pod.
	n.await("the guard to refuse the container", func() bool {
		_, err := n.runtime.CreateContainer(s, app)
		if err == nil {
			t.Error("a container was made in a sandbox that nobody has redirected")
		}
		return err == nil || strings.Contains(err.Error(), "sidecar-cni refused pod")
	})
}

// As long as there is no socket nothing above debug is said; once there is, the guard finds it.
func TestWithoutASocket(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	core, said := observer.New(zap.DebugLevel)
	n.log = zap.New(core)
	n.guard()
	n.await("the guard to look", func() bool {
		return said.FilterMessage("found no NRI socket").Len() == 1
	})
	if got := n.connectedMetric(); got != -1 {
		t.Errorf("connected: %v", got)
	}
	n.listen(nriserver.Options{})
	n.awaitConnected()
	n.stop()
	for _, entry := range said.All() {
		if entry.Level > zap.InfoLevel {
			t.Errorf("%s: %s", entry.Level, entry.Message)
		}
	}
}

// A full node, of which every sandbox is open, is told in parts, and decided in time.
func TestAFullNode(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	const pods, each = 250, 3
	inTime(t, func() error {
		n := newNode(t)
		n.listen(nriserver.Options{})
		var all []nriserver.Pod
		var containers []nriserver.Container
		spaces := []*netns.NS{}
		env := []string{"A=" + strings.Repeat("x", 10<<10)}
		for i := range pods {
			ns := netns.New(t)
			spaces = append(spaces, ns)
			s := n.sandbox(meshed(fmt.Sprintf("w%d", i), nil), ns)
			all = append(all, s)
			for j := range each {
				containers = append(containers, nriserver.Container{ID: fmt.Sprintf("%d-%d", i, j),
					PodID: s.ID, Name: "app", State: nriserver.Created, Env: env})
			}
		}
		n.runtime.SetPods(all, containers)
		n.guard()
		n.awaitConnected()
		open := 0
		for _, ns := range spaces {
			if !strings.Contains(rules(t, ns), table) {
				open++
			}
		}
		undecided := n.metric("sidecar_cni_guard_sandboxes_total", "undecided", "connect")
		if float64(open) != undecided {
			return fmt.Errorf("%d have no rules, %v are undecided", open, undecided)
		}
		t.Logf("%+v; %v undecided", n.runtime.AwaitSynchronized(1), undecided)
		return nil
	})
}

// What the runtime cannot hear is no answer, and it goes on without one.
func TestARefusalIsText(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	for _, version := range versions {
		n := connected(t, nriserver.Options{Version: version,
			RequestTimeout: patient.RequestTimeout})
		n.why = "a proxy says: Zugriff verweigert f\xfcr alle"
		err := n.run(n.sandbox(meshed("web", nil), netns.New(t)))
		if err == nil || !strings.Contains(err.Error(), "verweigert f?r alle") {
			t.Errorf("NRI %s: error %v", version, err)
		}
		n.runtime.AwaitPlugins(name)
	}
}

// A panic is an answer, too, and nothing else of the agent is harmed.
func TestAFaultOfOurs(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	n := connected(t, patient)
	n.panics = true
	err := n.run(n.sandbox(meshed("web", nil), netns.New(t)))
	if err == nil || !strings.Contains(err.Error(), "remedy: report it") {
		t.Errorf("error %v", err)
	}
	n.wantCounted("start", "refused", 1)
}

// Nobody waits for the log: its reader may be gone.
func TestALogThatBlocks(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	n := newNode(t)
	n.logGate = make(chan struct{})
	n.listen(patient)
	n.guard()
	n.awaitConnected()
	ns := netns.New(t)
	if err := n.run(n.sandbox(meshed("web", nil), ns)); err != nil {
		t.Error(err)
	}
	if got := rules(t, ns); !strings.Contains(got, table) {
		t.Errorf("rules:\n%s", got)
	}
	close(n.logGate)
}

// A runtime that waits for less is answered in less.
func TestTheRuntimesOwnTimeout(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	inTime(t, func() error {
		n := connected(t, nriserver.Options{RequestTimeout: 400 * time.Millisecond})
		n.silence(true)
		_, err := n.runtime.RunPodSandbox(n.sandbox(meshed("web", nil), netns.New(t)))
		if err == nil {
			return errors.New("the runtime did not wait for the answer")
		}
		n.runtime.AwaitPlugins(name)
		return nil
	})
}

// While another agent is in charge, or the node's pods are another runtime's, nothing is touched.
func TestNotInCharge(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	for title, prepare := range map[string]func(*node){
		"another agent":   func(n *node) { n.away.Store(true) },
		"another runtime": func(n *node) { n.config.PodUID = "1a7a" },
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			n, old, young := newNode(t), netns.New(t), netns.New(t)
			prepare(n)
			n.listen(patient)
			n.runtime.SetPods([]nriserver.Pod{n.sandbox(meshed("old", nil), old)}, nil)
			n.guard()
			n.runtime.AwaitSynchronized(1)
			if err := n.run(n.sandbox(meshed("young", nil), young)); err != nil {
				t.Error(err)
			}
			for _, ns := range []*netns.NS{old, young} {
				if got := rules(t, ns); got != "" {
					t.Errorf("rules:\n%s", got)
				}
			}
			n.wantCounted("start", "passed", 1)
		})
	}
}

// In mode refuse a sandbox that was open when the guard connected has no container, unless a repair
// has redirected it.
func TestRefusedContainers(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	n, ns := newNode(t), netns.New(t)
	n.config.Mode = guard.Refuse
	n.listen(nriserver.Options{})
	s := n.sandbox(meshed("web", nil), ns)
	n.runtime.SetPods([]nriserver.Pod{s}, nil)
	n.guard()
	n.awaitConnected()
	app := nriserver.Container{ID: "1", PodID: s.ID, Name: "app"}
	for _, ask := range []func(nriserver.Pod, nriserver.Container) (time.Duration, error){
		n.runtime.CreateContainer, n.runtime.StartContainer,
	} {
		if _, err := ask(s, app); err == nil || !strings.Contains(err.Error(), "delete the pod") {
			t.Errorf("error %v", err)
		}
	}
	n.process(50, ns.Path())
	at := identify(t, ns)
	if err := n.config.Records.Write(record.Record{Attachment: record.StandIn(s.UID),
		Netns: record.Netns{Path: "/proc/50/ns/net", Device: at.Device,
			Inode: at.Inode}}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.runtime.CreateContainer(s, app); err != nil {
		t.Error(err)
	}
}

// Where it is off, nobody connects.
func TestOff(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.config.Mode = guard.Off
	n.listen(nriserver.Options{})
	n.guard()
	n.await("it to end by itself", func() bool {
		select {
		case <-n.ended:
			return true
		default:
			return false
		}
	})
	if got := n.connectedMetric(); got != -1 {
		t.Errorf("connected: %v", got)
	}
	n.runtime.AwaitPlugins()
}
