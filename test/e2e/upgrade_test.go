//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const often = 100 * time.Millisecond

// TestComingAndGoing upgrades, removes and installs again, while pods are created all the time.
func TestComingAndGoing(t *testing.T) {
	r := start(t, cluster.Options{Nodes: bothRuntimes})
	before := r.confs(t)
	r.install(t)
	plugin := r.loadOther(t)

	t.Run("upgrade", func(t *testing.T) {
		s := r.stream(t, "upgrade", often, numbered)
		r.helmRun(t, "upgrade", chart(t, other...)...)
		r.awaitProduct(t)
		all := s.end(t)
		r.expectNoFailedSandbox(t, "upgrade")
		r.expectAllRedirected(t, all)
		r.expectNumbers(t, all)
		r.eachNode(func(n *cluster.Node) {
			r.Await(t, "the new plugin on "+n.Name,
				func(context.Context) error {
					return sameContent(n.BinDir()+"/sidecar-cni",
						plugin)
				})
		})
	})
	t.Run("the way back", func(t *testing.T) {
		s := r.stream(t, "back", often, numbered)
		r.helmRun(t, "rollback")
		r.awaitProduct(t)
		all := s.end(t)
		r.expectNoFailedSandbox(t, "back")
		r.expectAllRedirected(t, all)
		r.expectNumbers(t, all)
	})
	t.Run("uninstall", func(t *testing.T) {
		s := r.stream(t, "uninstall", 3*often, unvalidated)
		said := r.helmRun(t, "uninstall")
		t.Logf("helm uninstall: %s", said)
		if diff := cmp.Diff(before, r.confs(t)); diff != "" {
			t.Errorf("the conf directories are not what they were: %s", diff)
		}
		s.end(t)
		r.expectNoFailedSandbox(t, "uninstall")
		r.eachNode(func(n *cluster.Node) {
			after := on(n.Name, unvalidated("uninstall", "after-"+n.Name))
			r.create(t, after)
			r.expectUntouched(t, r.ready(t, after))
		})
		for _, space := range []string{"upgrade", "back", "uninstall"} {
			r.expectDeletable(t, space)
		}
	})
	t.Run("deleted without the hook", r.deletedWithoutHook)
	t.Run("install again", func(t *testing.T) {
		s := r.stream(t, "again", 3*often, unvalidated)
		r.helmRun(t, "install", chart(t)...)
		r.awaitProduct(t)
		s.end(t)
		r.expectNoFailedSandbox(t, "again")
		r.eachNode(func(n *cluster.Node) {
			p := on(n.Name, meshed("again", "after-"+n.Name, ordinary))
			r.create(t, p)
			r.expectRedirected(t, r.ready(t, p))
		})
	})
}

// numbered is a pod with a port of its own that is left alone, so that its rules show by whose
// annotations it was decided.
func numbered(space, name string) *corev1.Pod {
	p := small(space, name)
	p.Annotations[excludePorts] = portOf(name)
	return p
}

const excludePorts = "traffic.sidecar.istio.io/excludeOutboundPorts"

// portOf is 20000 and the number that a stream gives its pods.
func portOf(name string) string {
	_, number, _ := strings.Cut(name, "-")
	return fmt.Sprintf("2%04s", number)
}

// expectNumbers wants the rules of each pod to be by its own annotations.
func (r *rig) expectNumbers(t *testing.T, all []corev1.Pod) {
	t.Helper()
	for i := range all {
		r.expectPort(t, &all[i], portOf(all[i].Name))
	}
}

// deletedWithoutHook leaves nodes whose chain names the plugin, which nobody at the API server
// knows any more: what the refusal says is true, and what it advises helps.
func (r *rig) deletedWithoutHook(t *testing.T) {
	r.helmRun(t, "install", chart(t)...)
	r.awaitProduct(t)
	r.helmRun(t, "uninstall", "--no-hooks")
	r.awaitNoAgents(t)
	r.namespace(t, "left", "restricted")
	r.eachNode(func(n *cluster.Node) {
		waiting := on(n.Name, meshed("left", "meshed-"+n.Name, ordinary))
		r.create(t, waiting)
		r.awaitEvent(t, waiting, "FailedCreatePodSandBox", "401 Unauthorized",
			"its account is gone and this node was not taken out")
	})
	r.helmRun(t, "install", chart(t)...)
	r.awaitProduct(t)
	r.eachNode(func(n *cluster.Node) {
		r.expectRedirected(t, r.ready(t, on(n.Name, meshed("left", "meshed-"+n.Name, ordinary))))
	})
	r.helmRun(t, "uninstall")
}

// confs are the contents of the nodes' conf directories.
func (r *rig) confs(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	r.eachNode(func(n *cluster.Node) {
		err := filepath.WalkDir(n.ConfDir(), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			name, _ := filepath.Rel(n.ConfDir(), path)
			all[n.Name+"/"+name] = string(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return all
}

// sameContent says that files differ.
func sameContent(a, b string) error {
	left, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	right, err := os.ReadFile(b)
	if err == nil && string(left) != string(right) {
		err = errors.New(a + " is another")
	}
	return err
}

// expectDeletable deletes all pods of a namespace and waits until none is left.
func (r *rig) expectDeletable(t *testing.T, space string) {
	t.Helper()
	pods := r.Client().CoreV1().Pods(space)
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	r.Await(t, "the pods of "+space+" to go", func(ctx context.Context) error {
		left, err := pods.List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are left", len(left.Items))
		}
		return err
	})
	r.eachNode(func(n *cluster.Node) {
		r.Await(t, "the sandboxes on "+n.Name+" to go", func(context.Context) error {
			out, err := n.Try("", "ctr", "--namespace=k8s.io", "containers", "list", "--quiet",
				`labels."io.kubernetes.pod.namespace"==`+space)
			if err == nil && out != "" {
				err = fmt.Errorf("there are: %s", out)
			}
			return err
		})
	})
}
