package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Config returns an administrator's way to the API server. It works in this process only:
// connections are made from the cluster's network.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Client returns an administrator's client.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Kubeconfig returns the path of an administrator's kubeconfig, as programs find it that Run runs.
func (c *Cluster) Kubeconfig() string { return admin }

// Listen opens a TCP port of this process in the control plane's network until the test ends: the
// API server can call it, as a webhook for one. The address has no names.
func (c *Cluster) Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	l, err := c.site.listen(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Try runs a program beside the control plane, in its network, and returns its standard output. It
// finds the files of the real machine, /run and /proc excepted, and kubectl.
func (c *Cluster) Try(stdin, name string, args ...string) (string, error) {
	return c.site.run(strings.NewReader(stdin), name, args...)
}

// Kubectl runs kubectl as an administrator. A refusal is the end of the test.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.TryKubectl("", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryKubectl is Kubectl for what may be refused, and for what kubectl reads from standard input.
func (c *Cluster) TryKubectl(stdin string, args ...string) (string, error) {
	return c.Try(stdin, "kubectl", append([]string{"--kubeconfig=" + admin}, args...)...)
}

// Apply applies a manifest.
func (c *Cluster) Apply(t testing.TB, manifest string) {
	t.Helper()
	if _, err := c.TryKubectl(manifest, "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// AwaitPod returns a pod as soon as it is as wanted; wanted says what it is not yet.
func (c *Cluster) AwaitPod(t testing.TB, namespace, name string,
	wanted func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	c.Await(t, fmt.Sprintf("pod %s/%s", namespace, name), func(ctx context.Context) (err error) {
		if pod, err = c.client.CoreV1().Pods(namespace).Get(ctx, name,
			metav1.GetOptions{}); err != nil {
			return err
		}
		return wanted(pod)
	})
	return pod
}

// Ready is what most pods are wanted to be.
func Ready(pod *corev1.Pod) error {
	i := slices.IndexFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	switch {
	case i < 0:
		return fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
	case pod.Status.Conditions[i].Status != corev1.ConditionTrue:
		return fmt.Errorf("pod %s is %s: %s", pod.Name, pod.Status.Phase,
			pod.Status.Conditions[i].Message)
	}
	return nil
}

// AwaitRollout returns when a workload, such as daemonset/agent, runs as it is described.
func (c *Cluster) AwaitRollout(t testing.TB, namespace, workload string) {
	t.Helper()
	if _, err := c.TryKubectl("", "--namespace="+namespace, "rollout", "status", workload,
		"--timeout="+awaitTimeout.String()); err != nil {
		c.report(t)
		t.Fatal(err)
	}
}

// report logs what may explain a failure: nodes and pods that are not ready, with the logs and
// events that belong to them.
func (c *Cluster) report(t testing.TB) {
	t.Helper()
	c.reported = true
	if c.APIServer == nil {
		return
	}
	// in a cleanup it has ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	if err := c.apiServerReady(ctx); err != nil {
		t.Logf("the API server: %v\n%s\n%s", err, c.etcd.Log(10), c.APIServer.Log(30))
		return
	}
	for _, n := range c.nodes {
		if err := n.Ready(ctx); err != nil {
			t.Logf("%v\n%s\n%s", err, n.Containerd.Log(15), n.Kubelet.Log(15))
		}
	}
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Log(err)
		return
	}
	for _, p := range pods.Items {
		if err := Ready(&p); err != nil && p.Status.Phase != corev1.PodSucceeded {
			t.Logf("%v\n%s", errors.Join(err, waiting(&p)), c.events(ctx, &p))
		}
	}
}

// waiting says what the containers of a pod wait for.
func waiting(pod *corev1.Pod) error {
	var err error
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil {
			err = errors.Join(err, fmt.Errorf("container %s waits: %s %s", s.Name, w.Reason,
				w.Message))
		}
	}
	return err
}

// events returns what happened to a pod, the latest last.
func (c *Cluster) events(ctx context.Context, pod *corev1.Pod) string {
	events, err := c.client.CoreV1().Events(pod.Namespace).List(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	if err != nil {
		return err.Error()
	}
	lines := []string{}
	for _, e := range events.Items {
		lines = append(lines, fmt.Sprintf("%s (%d times) %s", e.Reason, max(e.Count, 1), e.Message))
	}
	return strings.Join(lines, "\n")
}
