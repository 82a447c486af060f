//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/cri"
	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// A guarded is a cluster whose node0 has a guard and a validator, and our entry in the network's
// own file, which others write.
type guarded struct {
	*rig
	node   *cluster.Node
	theirs string // the file without our entry
	ours   string // and with it
}

// TestGuard takes our entry out of the chain, and the agent away, while pods start. What counts is
// what a pod's first container finds.
func TestGuard(t *testing.T) {
	r := start(t, cluster.Options{Nodes: []cluster.NodeOptions{{NRI: cluster.NRIValidates}}})
	g := &guarded{rig: r, node: r.Node(0), theirs: readFile(t, r.Node(0), "/etc/cni/net.d/"+primary)}
	r.install(t, inline...)
	r.loadOther(t) // here, since nodes that join get it, too
	g.awaitEntryIn(t, primary)
	g.ours = readFile(t, g.node, "/etc/cni/net.d/"+primary)
	g.awaitGuard(t)
	r.namespace(t, "shop", "restricted")
	r.namespace(t, "lax", "privileged")
	for _, tt := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"redirects as the plugin does", g.asThePlugin},
		{"another tool redirects the pod", g.foreign},
		{"the pod brings istio-init", g.brings},
		{"the entry is taken out again and again", g.takenOutGuarded},
		{"the agent is upgraded", g.upgraded},
		{"the agent is stopped", g.stopped},
		{"the agent is killed again and again", g.killed},
		{"the node is rebooted without the entry", g.rebooted},
		{"guard.mode is off, and the entry taken out", g.takenOutUnguarded},
		{"guard.mode is refuse", g.refuses},
		{"the runtime has no NRI", g.withoutNRI}, // last: it adds nodes
	} {
		t.Run(tt.name, tt.f)
	}
}

// inline has our entry in the network's own file. That an image is missing is noticed at once.
var inline = []string{"way=inline", "image.pullPolicy=Never"}

// awaitGuard waits until the runtime asks the agent.
func (g *guarded) awaitGuard(t *testing.T) {
	t.Helper()
	g.awaitMetric(t, g.node, positive, "sidecar_cni_guard_connected")
}

// upgrade sets values of the chart, beside those that all have here.
func (g *guarded) upgrade(t *testing.T, values ...string) {
	t.Helper()
	g.helmRun(t, "upgrade", chart(t, append(values, inline...)...)...)
	g.awaitProduct(t)
	g.putBack(t)
	g.awaitEntryIn(t, primary)
}

func (g *guarded) file() string { return g.node.DiskFile("/etc/cni/net.d/" + primary) }

// takeOut writes the file as the network's installer does: whole, and without our entry.
func (g *guarded) takeOut(t *testing.T) {
	t.Helper()
	replace(t, g.file(), g.theirs)
}

// putBack ends whatever goes on between the writers of the file.
func (g *guarded) putBack(t *testing.T) {
	t.Helper()
	replace(t, g.file(), g.ours)
}

// keepOut writes a file that the agent can do nothing about, until putBack is called.
func (g *guarded) keepOut(t *testing.T, content string) (putBack func()) {
	t.Helper()
	replace(t, g.file(), content)
	immutable(t, g.file(), true)
	back := false
	putBack = func() {
		if back {
			return
		}
		back = true
		immutable(t, g.file(), false)
		g.putBack(t)
	}
	t.Cleanup(putBack)
	g.Await(t, "the runtime to load the file",
		func(ctx context.Context) error { return g.loaded(ctx, content) })
	return putBack
}

// loaded says that the runtime has another chain than that of a file.
func (g *guarded) loaded(ctx context.Context, content string) error {
	runtime, err := cri.Ask(ctx, g.node.File("/run/containerd/containerd.sock"), "")
	if err != nil {
		return err
	}
	for _, plugin := range []string{"sidecar-cni", foreignPlugin} {
		wanted := strings.Contains(content, `"`+plugin+`"`)
		if strings.Contains(string(runtime.Chain), plugin) != wanted {
			return fmt.Errorf("it has %s", runtime.Chain)
		}
	}
	return nil
}

// immutableFlag is FS_IMMUTABLE_FL of linux/fs.h, which a tmpfs has since Linux 6.0.
const immutableFlag = 0x10

// immutable has the kernel refuse whoever wants to replace the file.
func immutable(t *testing.T, path string, wanted bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags := 0
	if wanted {
		flags = immutableFlag
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Fatalf("change the flags of %s: %v", path, err)
	}
}

// required is the annotation that has the validator give a pod no container without the guard.
const required = "required-plugins.noderesource.dev/pod"

// looking is a meshed pod whose only container looks whether it is redirected, before it becomes
// the proxy. It starts in either case.
func looking(space, name string) *corev1.Pod {
	p := unvalidated(space, name)
	p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, look)
	return p
}

// look has a container look first of all.
var look = corev1.EnvVar{Name: "LOOK", Value: "true"}

// requiring is one that starts only under a guard.
func requiring(space, name string) *corev1.Pod {
	p := looking(space, name)
	p.Annotations[required] = `["sidecar-cni"]`
	return p
}

// lookingPlain is a pod that is not meshed.
func lookingPlain(space, name string) *corev1.Pod {
	p := newPod(space, name)
	p.Spec.Containers = []corev1.Container{actor("app", proxyUser, "app")}
	p.Spec.Containers[0].Env = []corev1.EnvVar{look}
	return p
}

// looks waits for what a pod's containers find when they start. A container runs a little earlier
// than its log says so.
func (g *guarded) looks(ctx context.Context, pod *corev1.Pod, logs string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for {
		found, err := g.tryLooks(pod, logs)
		if err == nil {
			return found, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// allLogs are those of all times that a container was started.
const allLogs = "*.log"

// tryLooks is what they have found, of those that look and whose logs the node keeps.
func (g *guarded) tryLooks(pod *corev1.Pod, name string) ([]string, error) {
	logs, err := filepath.Glob(g.node.DiskFile(fmt.Sprintf("/var/log/pods/%s_%s_%s/*/%s",
		pod.Namespace, pod.Name, pod.UID, name)))
	if err != nil {
		return nil, err
	}
	found := []string{}
	for _, path := range logs {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(strings.NewReader(string(content))); lines.Scan(); {
			var look struct{ Found string }
			_, text, _ := strings.Cut(lines.Text(), "{")
			if json.Unmarshal([]byte("{"+text), &look) == nil && look.Found != "" {
				found = append(found, look.Found)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no container of %s has found anything", pod.Name)
	}
	return found, nil
}

// expectLook waits for a pod, and wants its containers to have found it as told.
func (g *guarded) expectLook(t *testing.T, pod *corev1.Pod, want string) *corev1.Pod {
	t.Helper()
	pod = g.ready(t, pod)
	found, err := g.looks(t.Context(), pod, allLogs)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(found, func(f string) bool { return f != want }) {
		t.Errorf("the containers of %s found it %q, want %q", pod.Name, found, want)
	}
	return pod
}

// records returns those of a pod.
func (g *guarded) records(t *testing.T, pod *corev1.Pod) []record.Record {
	t.Helper()
	all, err := record.Dir(g.node.File("/run/sidecar-cni/state")).List()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all,
		func(one record.Record) bool { return one.Pod.UID != string(pod.UID) })
}
