//go:build e2e

package e2e_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// TestReboot cuts the power: of each node, and then of all nodes and the API server at once. Nobody
// lends a hand afterwards.
func TestReboot(t *testing.T) {
	r := start(t, cluster.Options{Nodes: bothRuntimes})
	r.install(t)
	r.namespace(t, "shop", "restricted")
	plain, inMesh := []*corev1.Pod{}, []*corev1.Pod{}
	r.eachNode(func(n *cluster.Node) {
		plain = append(plain, on(n.Name, newPod("shop", "plain-"+n.Name)))
		inMesh = append(inMesh, on(n.Name, meshed("shop", "ordinary-"+n.Name, ordinary)),
			on(n.Name, meshed("shop", "native-"+n.Name, mesh{native: true})))
	})
	all := append(append([]*corev1.Pod{}, plain...), inMesh...)
	for _, p := range all {
		r.create(t, p)
	}
	for _, p := range all {
		r.ready(t, p)
	}
	for i := range r.nodes {
		t.Run(r.Node(i).Name, func(t *testing.T) {
			r.Node(i).Reboot(t)
			r.expectBack(t, plain, inMesh, r.Node(i).Name, 1)
		})
	}
	t.Run("everything at once", func(t *testing.T) {
		r.eachNode(func(n *cluster.Node) { n.Kill(t) })
		r.APIServer.Kill(t)
		serves := make(chan bool)
		go func() { // a kube-proxy is not ready without it
			defer close(serves)
			r.APIServer.Start(t)
		}()
		r.eachNode(func(n *cluster.Node) { n.Start(t) })
		<-serves
		r.expectBack(t, plain, inMesh, "", 2)
	})
}

// expectBack waits for the pods of a node, or of all, to have been started so many times more, and
// looks at them.
func (r *rig) expectBack(t *testing.T, plain, inMesh []*corev1.Pod, node string, times int32) {
	t.Helper()
	again := func(p *corev1.Pod) error {
		for _, s := range p.Status.ContainerStatuses {
			if s.Name == "app" && s.RestartCount < times {
				return fmt.Errorf("the app of %s was started again %d times", p.Name,
					s.RestartCount)
			}
		}
		return cluster.Ready(p)
	}
	from := r.AwaitPod(t, plain[0].Namespace, plain[0].Name, cluster.Ready)
	for _, p := range plain {
		if node == "" || p.Spec.NodeName == node {
			r.expectUntouched(t, r.AwaitPod(t, p.Namespace, p.Name, again))
		}
	}
	for _, p := range inMesh {
		if node != "" && p.Spec.NodeName != node {
			continue
		}
		p = r.AwaitPod(t, p.Namespace, p.Name, again)
		r.expectRedirected(t, p)
		for _, ip := range p.Status.PodIPs {
			got := lines[talk](t, r, from, "call", "tcp", app(ip.IP))[0]
			r.expectSeen(t, p, sighting{15006, got.Me, app(ip.IP)})
		}
	}
	r.awaitProduct(t)
}
