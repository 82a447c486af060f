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

// TestKindsOfPods has pods of every kind on both runtimes.
func TestKindsOfPods(t *testing.T) {
	r := start(t, cluster.Options{Nodes: bothRuntimes})
	r.install(t)
	r.namespace(t, "shop", "restricted")
	r.namespace(t, "open", "privileged")
	outside := on("node0", newPod("shop", "outside"))
	r.create(t, outside)
	outside = r.ready(t, outside)
	r.eachNode(func(n *cluster.Node) {
		for name, f := range map[string]func(*testing.T, *cluster.Node, *corev1.Pod){
			"a StatefulSet's pod under its old name": r.statefulSet,
			"a Job's pod":                            r.job,
			"a pod in the host's network":            r.hostNetwork,
			"init containers":                        r.initContainers,
		} {
			t.Run(name+" on "+n.Name, func(t *testing.T) {
				t.Parallel()
				f(t, n, outside)
			})
		}
	})
	t.Run("a pod with users of its own on node0", func(t *testing.T) {
		t.Parallel()
		r.hostUsers(t, r.Node(0), outside) // containerd 1.6 cannot
	})
}

// statefulSet: the name is the same at once, the pod is not.
func (r *rig) statefulSet(t *testing.T, n *cluster.Node, _ *corev1.Pod) {
	name := "set-" + n.Name
	template := on(n.Name, meshed("shop", name, ordinary))
	_, err := r.Client().AppsV1().StatefulSets("shop").Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels,
				Annotations: template.Annotations}, Spec: template.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := r.AwaitPod(t, "shop", name+"-0", cluster.Ready)
	for range 3 {
		r.expectRedirected(t, pod)
		old := pod.UID
		if err := r.Client().CoreV1().Pods("shop").Delete(t.Context(), pod.Name,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Fatal(err)
		}
		pod = r.AwaitPod(t, "shop", pod.Name, func(p *corev1.Pod) error {
			if p.UID == old {
				return fmt.Errorf("%s is the old one", p.Name)
			}
			return cluster.Ready(p)
		})
	}
	r.expectRedirected(t, pod)
}

// job: its one call goes through the proxy, and it ends, since the sidecar is a native one.
func (r *rig) job(t *testing.T, n *cluster.Node, to *corev1.Pod) {
	name := "job-" + n.Name
	template := on(n.Name, newPod("shop", name))
	address := app(to.Status.PodIP)
	template.Spec.Containers[0] = actor("app", appUser, "call", "tcp", address, "1000")
	mesh{native: true}.inject(&template.ObjectMeta, &template.Spec)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := r.Client().BatchV1().Jobs("shop").Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: template.Labels,
					Annotations: template.Annotations}, Spec: template.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	r.Await(t, "the job to be done", func(ctx context.Context) error {
		all, err := r.Client().CoreV1().Pods("shop").List(ctx,
			metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		if len(all.Items) != 1 || all.Items[0].Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("its pods are %s", podNames(all.Items))
		}
		pod = all.Items[0]
		return nil
	})
	log, err := r.Client().CoreV1().Pods("shop").GetLogs(pod.Name,
		&corev1.PodLogOptions{Container: "app"}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := decode[talk](string(log))
	if err != nil || len(all) != 1 {
		t.Fatalf("the job said %q", log)
	}
	r.expectSeen(t, &pod, sighting{15001, all[0].Me, address})
}

// hostNetwork: the node's own network is never touched, whatever the pod's annotations say.
func (r *rig) hostNetwork(t *testing.T, n *cluster.Node, _ *corev1.Pod) {
	before := n.Run(t, "", "nft", "list", "tables")
	p := on(n.Name, unvalidated("open", "host-"+n.Name))
	p.Spec.HostNetwork = true
	p.Spec.Containers = []corev1.Container{actor("istio-proxy", proxyUser, "proxy", "sidecar")}
	r.create(t, p)
	r.ready(t, p)
	if after := n.Run(t, "", "nft", "list", "tables"); strings.Contains(after, "sidecar-cni") {
		t.Errorf("the node's tables were\n%sand are\n%s", before, after)
	}
}

// initContainers run before the proxy does: by default they have no network, with the annotation
// they have.
func (r *rig) initContainers(t *testing.T, n *cluster.Node, to *corev1.Pod) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		sidecar     bool
		works       bool
	}{
		"without": {},
		"bypass":  {map[string]string{"sidecar-cni.io/initContainers": "bypass"}, false, true},
		"uids": {map[string]string{"sidecar-cni.io/excludeOutboundUIDs": fmt.Sprint(initUser)},
			false, true},
		"native": {nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod("shop", "init-"+name+"-"+n.Name)
			p.Spec.InitContainers = []corev1.Container{actor("early", initUser, "call", "tcp",
				app(to.Status.PodIP))}
			mesh{native: tt.sidecar, annotations: tt.annotations}.inject(&p.ObjectMeta, &p.Spec)
			r.create(t, on(n.Name, p))
			if tt.works {
				r.expectRedirected(t, r.ready(t, p))
				return
			}
			r.AwaitPod(t, "shop", p.Name, func(p *corev1.Pod) error {
				for _, s := range p.Status.InitContainerStatuses {
					if s.Name == "early" && (s.State.Terminated != nil ||
						s.LastTerminationState.Terminated != nil) {
						return nil
					}
				}
				return errors.New("the init container has not ended")
			})
			// Its call leads to a proxy that does not run yet.
			r.awaitSaid(t, p, "early", "connection refused")
		})
	}
}

const initUser = 2000

// hostUsers: its network namespace belongs to its own user namespace, in which rules of iptables
// could not tell users.
func (r *rig) hostUsers(t *testing.T, n *cluster.Node, to *corev1.Pod) {
	p := on(n.Name, meshed("shop", "users-"+n.Name, mesh{native: true}))
	p.Spec.HostUsers = new(false)
	r.create(t, p)
	p = r.ready(t, p)
	pids, err := processes(n, p)
	if err != nil {
		t.Fatal(err)
	}
	if users := strings.Fields(readFile(t, n, "/proc/"+pids[0]+"/uid_map")); users[1] == "0" {
		t.Errorf("the pod's users are the node's: %v", users)
	}
	r.expectRedirected(t, p)
	got := lines[talk](t, r, p, "call", "tcp", app(to.Status.PodIP))[0]
	r.expectSeen(t, p, sighting{15001, got.Me, app(to.Status.PodIP)})
}
