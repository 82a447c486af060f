package guard_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/installer/guard"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/nriserver"
)

const (
	statusKey = "sidecar.istio.io/status"
	seenKey   = "kubernetes.io/config.seen"
	name      = "90-sidecar-cni"
)

// versions are those of the runtime's half.
var versions = []string{"0.12", "0.8"}

// node is a node with a guard.
type node struct {
	t        testing.TB
	api      *apiserver.Server
	proc     string
	registry *prometheus.Registry
	config   guard.Config
	runtime  *nriserver.Server // nil before listen

	mu       sync.Mutex
	pods     map[string]*corev1.Pod // by name
	hang     bool                   // nobody answers what a pod is
	why      string                 // nobody knows what a pod is, for this reason
	panics   bool                   // who is asked what a pod is
	logGate  chan struct{}          // if there is one, no line of the log is written before its end
	gate     chan struct{}          // if there is one, the answer waits for its end
	asked    atomic.Int32           // how often that was asked
	lately   int                    // how often run has asked again
	away     atomic.Bool            // this agent is not in charge
	repairs  atomic.Int32           // how often package repair was called
	backend  string
	locks    podns.Locks
	cancel   func()        // has the guard end
	ended    chan struct{} // closed when it has
	stop     func()        // both
	log      *zap.Logger   // nil: the test's
	handlers map[string]string
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, api: apiserver.Start(t), proc: t.TempDir(), pods: map[string]*corev1.Pod{},
		registry: prometheus.NewRegistry(), backend: redirect.NFTables}
	n.config = guard.Config{
		Mode: guard.Auto, Socket: filepath.Join(t.TempDir(), "nri.sock"),
		Redirect: redirect.Defaults(), HostProc: n.proc,
		Records: record.Dir(filepath.Join(t.TempDir(), "state")),
	}
	n.process(1, netns.New(t).Path())
	return n
}

// process puts a process into the host's /proc.
func (n *node) process(pid int, netnsPath string) (root string) {
	n.t.Helper()
	dir := filepath.Join(n.proc, fmt.Sprint(pid))
	for _, sub := range []string{"ns", "root/etc"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := os.Symlink(netnsPath, filepath.Join(dir, "ns/net")); err != nil {
		n.t.Fatal(err)
	}
	return filepath.Join(dir, "root")
}

// listen starts a runtime on the socket.
func (n *node) listen(o nriserver.Options) {
	n.t.Helper()
	o.Socket = n.config.Socket
	n.runtime = nriserver.Start(n.t, o)
}

// guard runs a guard until the test ends, or stop is called.
func (n *node) guard() {
	n.t.Helper()
	client, err := agent.NewClient(n.api.Config())
	if err != nil {
		n.t.Fatal(err)
	}
	log := n.log
	if log == nil {
		log = zaptest.NewLogger(n.t, zaptest.WrapOptions(zap.AddCaller()))
	}
	if n.logGate != nil {
		log = log.WithOptions(zap.Hooks(func(zapcore.Entry) error {
			<-n.logGate
			return nil
		}))
	}
	events := agent.NewEvents(client, "node-1", n.registry, log)
	g := guard.New(n.config, guard.Deps{
		Find: n.find, Handler: func(class string) string { return n.handlers[class] },
		Backend:  func() string { return n.backend },
		InCharge: func() bool { return !n.away.Load() },
		Repair:   func() { n.repairs.Add(1) },
		Locks:    &n.locks, Events: events, Registry: n.registry, Log: log,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { events.Run(ctx) })
	n.ended = make(chan struct{})
	all.Go(func() {
		defer close(n.ended)
		g.Run(ctx, func(context.Context) error { return nil })
	})
	n.cancel = cancel
	n.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	n.t.Cleanup(n.stop)
}

// connected is a node whose guard the runtime asks.
func connected(t *testing.T, o nriserver.Options) *node {
	t.Helper()
	n := newNode(t)
	n.listen(o)
	n.guard()
	n.awaitConnected()
	return n
}

func (n *node) awaitConnected() {
	n.t.Helper()
	n.await("the guard to be connected", func() bool { return n.connectedMetric() == 1 })
	n.runtime.AwaitPlugins(name)
}

// late is in a refusal for which the guard had no more time, as on a machine that stood still.
const late = "nothing was decided within"

// patient is a runtime that outlasts a machine's standing still: the usual one goes on without the
// guard after two seconds.
var patient = nriserver.Options{RequestTimeout: 50 * time.Second}

// run asks the guard about a sandbox, once more where it was too late.
func (n *node) run(s nriserver.Pod) error {
	n.t.Helper()
	var err error
	for range 20 {
		_, err = n.runtime.RunPodSandbox(s)
		if err == nil || !strings.Contains(err.Error(), late) {
			return err
		}
		n.t.Logf("asked again: %v", err)
		n.lately++
	}
	n.t.Fatalf("too late each time: %v", err)
	return nil
}

// inTime does what the product's own timeouts fail if the machine stands still in it; then it is
// done again.
func inTime(t *testing.T, do func() error) {
	t.Helper()
	pulse := await.NewPulse(t, 100*time.Millisecond)
	for range 20 {
		began := time.Now()
		err := do()
		if err == nil {
			return
		}
		stood := pulse.Stood(began, time.Now())
		if stood == 0 {
			t.Fatal(err)
		}
		t.Logf("done again, since the machine stood still for %v: %v", stood, err)
	}
	t.Fatal("the machine stood still each time")
}

// metric is what a series of ours has, named by its labels' values; -1 if it is not there.
func (n *node) metric(name string, values ...string) float64 {
	n.t.Helper()
	all, err := n.registry.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() { // in the order of their names
				labels = append(labels, label.GetValue())
			}
			if family.GetName() == name && slices.Equal(labels, values) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func (n *node) connectedMetric() float64 {
	n.t.Helper()
	return n.metric("sidecar_cni_guard_connected")
}

// awaitEvent waits for an Event about a pod.
func (n *node) awaitEvent(pod, reason, kind, words string) {
	n.t.Helper()
	n.await(fmt.Sprintf("%s about %s", reason, pod), func() bool {
		return slices.ContainsFunc(n.api.Events(), func(e *corev1.Event) bool {
			return e.InvolvedObject.Name == pod && e.Reason == reason && e.Type == kind &&
				strings.Contains(e.Message, words)
		})
	})
}

// wantCounted reports if not so many sandboxes came to that.
func (n *node) wantCounted(when, outcome string, want int) {
	n.t.Helper()
	got := n.metric("sidecar_cni_guard_sandboxes_total", outcome, when)
	if when == "start" && outcome == "refused" {
		got -= float64(n.lately)
	}
	if got != float64(want) {
		n.t.Errorf("%v sandboxes counted at %s as %s, want %d", got, when, outcome, want)
	}
}

// await waits until something holds.
func (n *node) await(what string, holds func() bool) {
	n.t.Helper()
	await.Until(n.t, what, holds)
}

func (n *node) find(ctx context.Context, ref agent.Ref) agent.Answer {
	n.mu.Lock()
	pod, hang := n.pods[ref.Name], n.hang
	n.mu.Unlock()
	n.asked.Add(1)
	if n.gate != nil {
		<-n.gate
	}
	if n.panics {
		panic("a fault")
	}
	if n.why != "" {
		return agent.Answer{Verdict: agent.Unknown, Why: n.why}
	}
	switch {
	case hang:
		<-ctx.Done()
		return agent.Answer{Verdict: agent.Unknown, Why: "the question was given up"}
	case pod == nil:
		return agent.Answer{Verdict: agent.Absent}
	case pod.UID != ref.UID:
		return agent.Answer{Verdict: agent.OtherUID, UID: pod.UID}
	}
	return agent.Answer{Verdict: agent.Found, Pod: pod}
}

// silence has nobody answer what a pod is, or somebody again.
func (n *node) silence(hang bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hang = hang
}

func uidOf(name string) string { return fmt.Sprintf("0f6f3c1e-2f6a-4d0e-9a53-%.12x", name+"------") }

// meshed is a pod with a sidecar.
func meshed(name string, annotations map[string]string) *corev1.Pod {
	all := map[string]string{statusKey: "{}"}
	maps.Copy(all, annotations)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uidOf(name)),
			Annotations: all},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{
			{Name: "app"}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}},
		}},
	}
}

// sandbox makes a pod known, and returns its sandbox as the runtime tells of it.
func (n *node) sandbox(pod *corev1.Pod, ns *netns.NS) nriserver.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[pod.Name] = pod
	annotations := map[string]string{seenKey: "2026-01-01T00:00:00Z"}
	maps.Copy(annotations, pod.Annotations)
	one := nriserver.Pod{ID: "0a1b" + pod.Name, Name: pod.Name, Namespace: pod.Namespace,
		UID: string(pod.UID), Annotations: annotations, IPs: []string{"10.244.0.2"}}
	if ns != nil {
		one.NetnsPath = ns.Path()
	}
	return one
}
