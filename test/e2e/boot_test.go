//go:build e2e

package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const (
	bootPods = 20
	// openAtMost is the product's promise, not a bound on the machine: how long after the agent's
	// process was started a pod may still be open.
	openAtMost = 10 * time.Second
)

// TestBoot reboots a node whose network writes its CNI configuration file anew at each boot, with
// an init container of a pod in the host's network, as flannel does. The file is without our entry
// while the node's pods start. No pod may stay open.
//
// That no pod starts with yesterday's file is certain: it goes with the power, as where /etc is not
// kept over a reboot. So no pod has a network before the init container has written, the agent's
// own included, and the entry is out until the agent works.
func TestBoot(t *testing.T) {
	times := reboots(t)
	r := start(t, cluster.Options{Nodes: []cluster.NodeOptions{{Runtime: cluster.Containerd1}}})
	r.writeAtBoot(t, readFile(t, r.Node(0), "/etc/cni/net.d/"+primary))
	r.install(t, "way=inline")
	r.namespace(t, "shop", "restricted")
	all := []*corev1.Pod{on("node0", newPod("shop", "caller"))}
	for i := range bootPods {
		all = append(all, on("node0", openable("shop", fmt.Sprintf("meshed-%d", i))))
	}
	for _, p := range all {
		r.create(t, p)
	}
	for i, p := range all {
		all[i] = r.ready(t, p)
	}
	for i := range times {
		t.Run(fmt.Sprintf("reboot %d", i+1),
			func(t *testing.T) { r.rebootWithoutEntry(t, all[0], all[1:], int32(i+1)) })
	}
}

// openable is a pod whose app runs whether it is redirected or not.
func openable(space, name string) *corev1.Pod {
	p := meshed(space, name, ordinary)
	p.Spec.InitContainers = nil
	return p
}

// reboots is how many `make soak` asks for, else two.
func reboots(t *testing.T) int {
	t.Helper()
	text := os.Getenv("REBOOTS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("REBOOTS is %q: want a number from 1", text)
	}
	return n
}

// writeAtBoot makes the file that the node came with one that the network's pod writes.
func (r *rig) writeAtBoot(t *testing.T, conf string) {
	t.Helper()
	const name = "network"
	r.namespace(t, name, "privileged")
	_, err := r.Client().CoreV1().ConfigMaps(name).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{primary: conf},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := newPod(name, name)
	pod.Spec.HostNetwork, pod.Spec.Tolerations = true,
		[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "wanted", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name}}}},
		{Name: "node", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/etc/cni/net.d"}}},
	}
	write := actor("install-cni", 0, "copy", "/wanted/"+primary, "/node/"+primary)
	write.SecurityContext.RunAsNonRoot = new(false)
	write.VolumeMounts = []corev1.VolumeMount{{Name: "wanted", MountPath: "/wanted"},
		{Name: "node", MountPath: "/node"}}
	pod.Spec.InitContainers = []corev1.Container{write}
	_, err = r.Client().AppsV1().DaemonSets(name).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels},
				Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.AwaitRollout(t, name, "daemonset/"+name)
}

// rebootWithoutEntry cuts the power and looks at what comes back.
func (r *rig) rebootWithoutEntry(t *testing.T, caller *corev1.Pod, inMesh []*corev1.Pod,
	times int32) {
	n := r.Node(0)
	agent, err := r.agent(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.ConfDir(), primary)); err != nil {
		t.Fatal(err)
	}
	n.Reboot(t)
	w := r.watchNode(t, n, agent, inMesh...)
	r.Await(t, "the agent to be ready", func(ctx context.Context) error {
		if w.agentUp().IsZero() {
			return errors.New("its process was not started")
		}
		_, err := r.readyz(ctx, n)
		return err
	})
	w.agentReady(t)
	late := r.bind(t, on(n.Name, openable("shop", fmt.Sprintf("late-%d", times))))
	w.add(late)
	watched := []*corev1.Pod{r.ready(t, late)}
	for _, p := range inMesh {
		watched = append(watched, r.AwaitPod(t, p.Namespace, p.Name, startedAgain(times)))
	}
	r.Await(t, "no pod to be open", func(context.Context) error { return w.redirected(watched) })
	w.end(t)
	r.expectClosedInTime(t, w, times)
	caller = r.AwaitPod(t, caller.Namespace, caller.Name, startedAgain(times))
	for _, p := range watched {
		r.expectRedirected(t, p)
		r.expectThroughProxy(t, caller, p)
	}
	r.expectDeleted(t, late)
}

// expectDeleted waits until a pod has gone.
func (r *rig) expectDeleted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pods := r.Client().CoreV1().Pods(pod.Namespace)
	if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.Await(t, pod.Name+" to go", func(ctx context.Context) error {
		_, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return cmp.Or(err, errors.New("it is there"))
	})
}

// startedAgain wants a pod to be ready after so many reboots.
func startedAgain(times int32) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount < times {
				return fmt.Errorf("container %s of %s was started again %d times", s.Name, p.Name,
					s.RestartCount)
			}
		}
		return cluster.Ready(p)
	}
}

// expectThroughProxy has a pod call and be called, over a new connection each.
func (r *rig) expectThroughProxy(t *testing.T, caller, p *corev1.Pod) {
	t.Helper()
	out := lines[talk](t, r, p, "call", "tcp", app(caller.Status.PodIP))[0]
	r.expectSeen(t, p, sighting{15001, out.Me, app(caller.Status.PodIP)})
	in := lines[talk](t, r, caller, "call", "tcp", app(p.Status.PodIP))[0]
	r.expectSeen(t, p, sighting{15006, in.Me, app(p.Status.PodIP)})
}

// expectClosedInTime judges what was seen of the sandboxes, and tells it.
func (r *rig) expectClosedInTime(t *testing.T, w *nodeWatch, times int32) {
	t.Helper()
	up, open, last := w.agentUp(), 0, time.Duration(0)
	for _, s := range w.sandboxes {
		if s.lastOpen.IsZero() {
			continue
		}
		open++
		if s.afterReady {
			t.Errorf("pod %s was started after the agent was ready, and was open", s.pod)
		}
		if late := s.lastOpen.Sub(up) - w.pulse.Stood(up, s.lastOpen); late > openAtMost {
			t.Errorf("pod %s was open %s after the agent was started, want at most %s", s.pod,
				late.Round(time.Millisecond), openAtMost)
		}
		last = max(last, s.closed.Sub(up))
	}
	if open == 0 {
		t.Errorf("reboot %d: no pod came up open, so nothing was tested", times)
	}
	t.Logf("reboot %d: %d of %d pods came up open; the last was redirected %.1f s after the "+
		"agent was started, which was ready after %.1f s",
		times, open, bootPods, last.Seconds(), w.ready.Sub(up).Seconds())
	for _, s := range w.sandboxes {
		if !s.lastOpen.IsZero() && !s.closed.IsZero() {
			r.awaitEvent(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop",
				Name: s.pod}}, "SidecarRedirectedLate",
				"connections that were opened before go on past the sidecar", "restart the pod")
		}
	}
}
