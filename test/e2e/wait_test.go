//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// TestNobodyHome takes away agents, credentials and API server. What is not meshed starts all the
// same; what is meshed waits, says why, and starts by itself.
func TestNobodyHome(t *testing.T) {
	r := start(t, cluster.Options{Nodes: bothRuntimes})
	r.install(t)
	r.namespace(t, "shop", "restricted")
	r.sendAgentsAway(t)
	plain, waiting := []*corev1.Pod{}, []*corev1.Pod{}
	r.eachNode(func(n *cluster.Node) {
		if err := os.RemoveAll(filepath.Join(n.ConfDir(), "sidecar-cni.d")); err != nil {
			t.Fatal(err)
		}
		n.Containerd.Stop(t) // so that no pod starts before the API server is gone
		plain = append(plain, on(n.Name, newPod("shop", "plain-"+n.Name)))
		waiting = append(waiting, on(n.Name, meshed("shop", "meshed-"+n.Name, ordinary)))
	})
	for i := range plain {
		plain[i] = r.bind(t, plain[i])
		waiting[i] = r.bind(t, waiting[i])
	}
	r.APIServer.Kill(t)
	r.eachNode(func(n *cluster.Node) { n.Containerd.Start(t) })

	for _, pod := range plain {
		r.Await(t, "the app of "+pod.Name+" to run",
			func(context.Context) error { return r.runs(t, pod) })
		r.expectUntouched(t, pod)
	}
	for _, pod := range waiting {
		n := r.node(t, pod)
		r.Await(t, "a refusal of "+pod.Name, func(context.Context) error {
			if !strings.Contains(n.Kubelet.Log(200), "remedy: check that the sidecar-cni agent "+
				"runs on this node") {
				return errors.New("none in the kubelet's log")
			}
			return nil
		})
		if err := r.runs(t, pod); err == nil {
			t.Errorf("the app of %s runs", pod.Name)
		}
	}
	r.APIServer.Start(t)
	for _, pod := range waiting {
		r.awaitEvent(t, pod, "FailedCreatePodSandBox", `plugin type="sidecar-cni" failed (add)`,
			"no usable kubeconfig", "check that the sidecar-cni agent runs on this node")
	}
	r.haveAgentsBack(t)
	for _, pod := range waiting {
		r.expectRedirected(t, r.ready(t, pod))
	}
}

// TestAPIServerAway has meshed pods start from what the agents know.
func TestAPIServerAway(t *testing.T) {
	r := start(t, cluster.Options{Nodes: bothRuntimes})
	r.install(t)
	r.namespace(t, "shop", "restricted")
	pods := []*corev1.Pod{}
	r.eachNode(func(n *cluster.Node) {
		known, err := r.metric(t.Context(), n, "sidecar_cni_cached_pods")
		if err != nil {
			t.Fatal(err)
		}
		n.Containerd.Stop(t) // so that the pod does not start before the API server is gone
		pods = append(pods, r.bind(t, on(n.Name, meshed("shop", "meshed-"+n.Name, ordinary))))
		r.awaitMetric(t, n, func(v float64) bool { return v > known }, "sidecar_cni_cached_pods")
	})
	r.APIServer.Kill(t)
	r.eachNode(func(n *cluster.Node) { n.Containerd.Start(t) })
	for _, pod := range pods {
		r.Await(t, "the app of "+pod.Name+" to run",
			func(context.Context) error { return r.runs(t, pod) })
		r.expectRedirected(t, pod)
	}
	r.APIServer.Start(t) // for those who tell what went wrong
}

// sendAgentsAway leaves the DaemonSet, and no node for it.
func (r *rig) sendAgentsAway(t *testing.T) {
	t.Helper()
	r.patchAgents(t, `{"spec":{"template":{"spec":{"nodeSelector":{"example.com/nowhere":"true"}}}}}`)
	r.awaitNoAgents(t)
}

// awaitNoAgents waits until nobody answers the plugin.
func (r *rig) awaitNoAgents(t *testing.T) {
	t.Helper()
	r.Await(t, "the agents to go", func(ctx context.Context) error {
		pods, err := r.Client().CoreV1().Pods(home).List(ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + release})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d are there", len(pods.Items))
		}
		return err
	})
}

func (r *rig) haveAgentsBack(t *testing.T) {
	t.Helper()
	r.patchAgents(t, `{"spec":{"template":{"spec":{"nodeSelector":{"example.com/nowhere":null}}}}}`)
}

func (r *rig) patchAgents(t *testing.T, patch string) {
	t.Helper()
	_, err := r.Client().AppsV1().DaemonSets(home).Patch(t.Context(), release,
		types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// bind creates a pod and waits until its node's kubelet knows of it.
func (r *rig) bind(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	made, err := r.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := r.node(t, pod)
	r.Await(t, "the kubelet to know of "+pod.Name, func(context.Context) error {
		for line := range strings.Lines(n.Kubelet.Log(500)) {
			if strings.Contains(line, "SyncLoop ADD") &&
				strings.Contains(line, pod.Namespace+"/"+pod.Name) {
				return nil
			}
		}
		return errors.New("its log does not say so")
	})
	return made
}

// runs says why a pod's app does not, as the node's processes show.
func (r *rig) runs(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	n := r.node(t, pod)
	all, err := processes(n, pod)
	if err != nil {
		return err
	}
	for _, pid := range all {
		command, _ := os.ReadFile(n.File("/proc/" + pid + "/cmdline")) // it may have ended
		if string(command) == "/actor\x00app\x00" {
			return nil
		}
	}
	return fmt.Errorf("none of its %d processes is the app", len(all))
}

// awaitEvent waits for an Event about a pod whose message has all words, and returns the message.
func (r *rig) awaitEvent(t *testing.T, pod *corev1.Pod, reason string, words ...string) string {
	t.Helper()
	message := ""
	r.Await(t, fmt.Sprintf("an event %s of %s", reason, pod.Name), func(ctx context.Context) error {
		events, err := r.Client().CoreV1().Events(pod.Namespace).List(ctx,
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name + ",reason=" +
				reason})
		if err != nil {
			return err
		}
		said := []string{}
		for _, e := range events.Items {
			if containsAll(e.Message, words) {
				message = e.Message
				return nil
			}
			said = append(said, e.Message)
		}
		return fmt.Errorf("no event with %q among %q", words, said)
	})
	return message
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
