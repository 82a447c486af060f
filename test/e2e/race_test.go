//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// TestRace has nodes join while pods wait for them.
func TestRace(t *testing.T) {
	r := start(t, cluster.Options{Nodes: oneNode})
	loadProduct(t, r.Node(0)) // not the others: there the agent comes when the test lets it
	values := []string{"image.pullPolicy=Never", "untaint=true", "labelPods=true",
		"repair.interval=1s"}
	r.tellAtTheEnd(t)
	r.helmRun(t, "install", chart(t, values...)...)
	r.awaitProduct(t)
	r.namespace(t, "shop", "restricted")

	t.Run("with the taint no pod starts before the agent", func(t *testing.T) {
		taints := []corev1.Taint{{Key: "sidecar-cni.io/not-ready",
			Effect: corev1.TaintEffectNoSchedule}}
		w := r.waiting(t, "tainted", "node1", meshed)
		n := r.join(t, cluster.NodeOptions{Taints: taints})
		r.awaitAgentWithoutImage(t, n)
		for _, p := range w.pods(t) {
			if p.Spec.NodeName != "" {
				t.Errorf("%s runs on %s", p.Name, p.Spec.NodeName)
			}
		}
		loadProduct(t, n)
		for _, p := range w.await(t) {
			r.expectRedirected(t, &p)
		}
	})
	for _, tt := range []struct {
		mode    string
		runtime cluster.Runtime
		expect  func(*testing.T, *waiting)
	}{
		{"report", cluster.Containerd1, r.expectReported},
		{"repair", cluster.Containerd2, r.expectRepaired},
		{"evict", cluster.Containerd1, r.expectEvicted},
	} {
		t.Run("without the taint they are found: "+tt.mode, func(t *testing.T) {
			r.helmRun(t, "upgrade", chart(t, append(values, "repair.mode="+tt.mode)...)...)
			w := r.waiting(t, tt.mode, fmt.Sprintf("node%d", r.nodes),
				func(space, name string, _ mesh) *corev1.Pod { return unvalidated(space, name) })
			n := r.join(t, cluster.NodeOptions{Runtime: tt.runtime})
			for _, p := range w.await(t) {
				r.expectUntouched(t, &p)
			}
			loadProduct(t, n)
			tt.expect(t, w)
		})
	}
}

func (r *rig) join(t *testing.T, o cluster.NodeOptions) *cluster.Node {
	t.Helper()
	n := r.AddNode(t, o)
	r.nodes++
	return n
}

// awaitAgentWithoutImage waits until the kubelet has tried to start the agent.
func (r *rig) awaitAgentWithoutImage(t *testing.T, n *cluster.Node) {
	t.Helper()
	r.Await(t, "an agent on "+n.Name, func(ctx context.Context) error {
		p, err := r.agent(ctx, n)
		if err != nil {
			return err
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Waiting != nil && s.State.Waiting.Reason == "ErrImageNeverPull" {
				return nil
			}
		}
		return errors.New("it was not tried")
	})
}

// waiting is a Deployment and a Job for a node that is not there yet.
type waiting struct {
	rig         *rig
	space, name string
	replicas    int
}

func (r *rig) waiting(t *testing.T, name, node string,
	pod func(space, name string, m mesh) *corev1.Pod) *waiting {
	t.Helper()
	w := &waiting{r, "shop", name, 2}
	template := pod("shop", name, ordinary)
	template.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": node}
	labels := template.Labels
	_, err := r.Client().AppsV1().Deployments("shop").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels,
				Annotations: template.Annotations}, Spec: template.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	job := template.DeepCopy()
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err = r.Client().BatchV1().Jobs("shop").Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"work": name},
					Annotations: template.Annotations}, Spec: job.Spec,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// pods returns those that are not about to go.
func (w *waiting) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	all, err := w.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (w *waiting) list(ctx context.Context) ([]corev1.Pod, error) {
	all, err := w.rig.Client().CoreV1().Pods(w.space).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	mine := []corev1.Pod{}
	for _, p := range all.Items {
		if p.DeletionTimestamp == nil && (p.Labels["app"] == w.name || p.Labels["work"] == w.name) {
			mine = append(mine, p)
		}
	}
	return mine, nil
}

func (w *waiting) await(t *testing.T) (all []corev1.Pod) {
	t.Helper()
	w.rig.Await(t, "the pods "+w.name, func(ctx context.Context) (err error) {
		all, err = w.list(ctx)
		if err == nil && len(all) != w.replicas {
			err = fmt.Errorf("there are %d", len(all))
		}
		for i := range all {
			err = errors.Join(err, cluster.Ready(&all[i]))
		}
		return err
	})
	return all
}

func isJob(p *corev1.Pod) bool { return p.Labels["work"] != "" }

func (r *rig) expectReported(t *testing.T, w *waiting) {
	t.Helper()
	for _, p := range w.pods(t) {
		r.awaitEvent(t, &p, "SidecarNotRedirected", "its traffic goes past the sidecar; remedy: "+
			"delete the pod to have it created anew")
		r.AwaitPod(t, p.Namespace, p.Name, labelled)
		r.expectUntouched(t, &p)
	}
}

func labelled(p *corev1.Pod) error {
	if got := p.Labels["sidecar-cni.io/redirection"]; got != "missing" {
		return fmt.Errorf("the label of %s is %q", p.Name, got)
	}
	return nil
}

// expectRepaired: what runs is redirected where it runs, and its next connection goes through the
// proxy.
func (r *rig) expectRepaired(t *testing.T, w *waiting) {
	t.Helper()
	for _, p := range w.pods(t) {
		r.awaitEvent(t, &p, "SidecarRedirectedLate", "sidecar-cni has redirected it now")
		r.expectRedirected(t, &p)
		r.AwaitPod(t, p.Namespace, p.Name, func(p *corev1.Pod) error {
			if labelled(p) == nil {
				return fmt.Errorf("%s still has its label", p.Name)
			}
			return nil
		})
	}
}

// expectEvicted: the Deployment's pod comes anew, and the Job's, whose work would be lost, is told
// of.
func (r *rig) expectEvicted(t *testing.T, w *waiting) {
	t.Helper()
	for _, p := range w.pods(t) {
		if isJob(&p) {
			r.awaitEvent(t, &p, "SidecarNotRedirected", "its traffic goes past the sidecar")
			continue
		}
		r.awaitEvent(t, &p, "SidecarPodEvicted", "sidecar-cni has evicted it")
		r.Await(t, "a pod in the place of "+p.Name, func(ctx context.Context) error {
			all, err := w.list(ctx)
			for i := range all {
				if !isJob(&all[i]) && all[i].UID != p.UID && cluster.Ready(&all[i]) == nil {
					r.expectRedirected(t, &all[i])
					return nil
				}
			}
			return errors.Join(err, fmt.Errorf("none among %s", podNames(all)))
		})
	}
}

func podNames(all []corev1.Pod) string {
	names := []string{}
	for _, p := range all {
		names = append(names, p.Name+" "+string(p.Status.Phase))
	}
	return strings.Join(names, ", ")
}
