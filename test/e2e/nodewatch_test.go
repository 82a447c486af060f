//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// stoodStill is how long at least a machine stands still that is not only busy. The product's times
// do not hold for that.
const stoodStill = 500 * time.Millisecond

// watchEvery is how exact the times of a nodeWatch are.
const watchEvery = 100 * time.Millisecond

// A nodeWatch looks at the sandboxes of meshed pods on a node: which of them run without our table,
// and how long. It asks the kernel by netlink, since a program for each sandbox, ten times a
// second, would be most of what the node does.
type nodeWatch struct {
	pulse *await.Pulse
	node  *cluster.Node
	agent types.UID
	stop  context.CancelFunc
	done  chan error

	mu        sync.Mutex
	pods      map[types.UID]string   // names
	sandboxes map[uint64]*sandbox    // by the inode of the network namespace
	current   map[types.UID]*sandbox // that a pod has now
	before    map[uint64]bool        // the namespaces that there were when the agent was ready
	// when the agent's process was seen first, and when it said that it was ready
	up, ready time.Time
}

// A sandbox is that of a pod, whose first process a runtime starts once its network is set up.
type sandbox struct {
	pod        string
	afterReady bool
	lastOpen   time.Time // zero if it was never seen without our table
	closed     time.Time // when it was first seen with it
}

// watchNode watches until the end of the test, or of the watch.
func (r *rig) watchNode(t *testing.T, n *cluster.Node, agent *corev1.Pod,
	pods ...*corev1.Pod) *nodeWatch {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &nodeWatch{
		pulse: await.NewPulse(t, stoodStill),
		node:  n, agent: agent.UID, stop: stop, done: make(chan error, 1),
		pods: map[types.UID]string{}, sandboxes: map[uint64]*sandbox{},
		current: map[types.UID]*sandbox{},
	}
	w.add(pods...)
	go func() { w.done <- w.run(ctx) }()
	return w
}

// end ends it. Afterwards its fields can be read.
func (w *nodeWatch) end(t *testing.T) {
	t.Helper()
	w.stop()
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
}

func (w *nodeWatch) add(pods ...*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range pods {
		w.pods[p.UID] = p.Name
	}
}

func (w *nodeWatch) agentUp() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up
}

// agentReady notes that the agent is ready: what is started from now on may not be open.
func (w *nodeWatch) agentReady(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready, w.before = time.Now(), map[uint64]bool{}
	mounts, err := filepath.Glob(w.node.File("/run/netns") + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		var st unix.Stat_t
		if unix.Stat(m, &st) == nil { // else it is gone
			w.before[st.Ino] = true
		}
	}
}

// redirected says which pods are not, or do not run.
func (w *nodeWatch) redirected(pods []*corev1.Pod) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := []string{}
	for _, p := range pods {
		if s := w.current[p.UID]; s == nil || s.closed.IsZero() {
			open = append(open, p.Name)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%d are, or do not run: %s", len(open), strings.Join(open, ", "))
	}
	return nil
}

func (w *nodeWatch) run(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.look(); err != nil {
			return err
		}
	}
}

// look finds a process of each pod first, and asks for its table then: a sandbox with a process has
// its network. What a runtime is about to put into a pod is in the node's own network at first.
func (w *nodeWatch) look() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	cgroups, err := filepath.Glob(w.node.File("/proc") + "/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	host, err := namespaceOf(w.node.File("/proc/1"))
	if err != nil {
		return err
	}
	found := map[types.UID]string{}
	for _, path := range cgroups {
		content, _ := os.ReadFile(path) // it may have ended
		process := filepath.Dir(path)
		for uid := range w.pods {
			if !bytes.Contains(content, []byte("pod"+uid+"/")) {
				continue
			}
			// A process without a namespace has ended.
			if inode, err := namespaceOf(process); err == nil && inode != host {
				found[uid] = process
			}
		}
		if w.up.IsZero() && bytes.Contains(content, []byte("pod"+w.agent+"/")) {
			command, _ := os.ReadFile(process + "/cmdline")
			if strings.HasPrefix(string(command), "/sidecar-cni-installer\x00run\x00") {
				w.up = time.Now()
			}
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(found)) {
		if err := w.lookInto(uid, found[uid]); err != nil {
			return err
		}
	}
	return nil
}

// namespaceOf returns the inode of a process' network namespace.
func namespaceOf(process string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(process+"/ns/net", &st)
	return st.Ino, err
}

func (w *nodeWatch) lookInto(uid types.UID, process string) error {
	fd, err := unix.Open(process+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil // it has ended
	}
	if err != nil {
		return fmt.Errorf("open network namespace of %s: %w", w.pods[uid], err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	s := w.sandboxes[st.Ino]
	if s == nil {
		s = &sandbox{pod: w.pods[uid], afterReady: w.before != nil && !w.before[st.Ino]}
		w.sandboxes[st.Ino] = s
	}
	w.current[uid] = s
	if !s.closed.IsZero() {
		return nil
	}
	conn, err := nftables.New(nftables.WithNetNSFd(fd))
	if err != nil {
		return fmt.Errorf("enter network namespace of %s: %w", s.pod, err)
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return fmt.Errorf("list tables of %s: %w", s.pod, err)
	}
	if slices.ContainsFunc(tables,
		func(t *nftables.Table) bool { return t.Name == "sidecar-cni" }) {
		s.closed = time.Now()
	} else {
		s.lastOpen = time.Now()
	}
	return nil
}
