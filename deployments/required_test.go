//go:build e2e

package deployments_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// status is what an injector leaves at the pods that it has put a sidecar into, required what has
// the runtime insist on a plugin.
const (
	status   = "sidecar.istio.io/status"
	required = "required-plugins.noderesource.dev"
)

// requiring creates pods with every value by which one could do without the guard.
func requiring(t *testing.T, c *cluster.Cluster) {
	awaitPolicy(t, c)
	const wanted = "want a JSON list of names"
	with := func(more ...string) map[string]string {
		all := map[string]string{status: "{}", required + "/pod": `["sidecar-cni"]`}
		for i := 0; i < len(more); i += 2 {
			all[required+more[i]] = more[i+1]
		}
		return all
	}
	pod := func(value string) map[string]string { return with("/pod", value) }
	for _, x := range []struct {
		name        string
		annotations map[string]string
		refused     string
	}{
		{"as the injector makes it", with(), ""},
		{"beside another plugin", pod(`["other", "sidecar-cni"]`), ""},
		{"with room", pod(`[ "sidecar-cni" , "10-other" ]`), ""},
		{"all three keys", with("", `["sidecar-cni"]`, "/container.web", `["sidecar-cni","x"]`), ""},
		{"no annotation", map[string]string{status: "{}"}, required + "/pod: " + wanted},
		{"the plain key only", map[string]string{status: "{}", required: `["sidecar-cni"]`},
			required + "/pod: " + wanted},
		{"a container's key only",
			map[string]string{status: "{}", required + "/container.web": `["sidecar-cni"]`},
			required + "/pod: " + wanted},
		{"an empty list", pod(`[]`), required + "/pod: " + wanted},
		{"nothing", pod(``), wanted},
		{"null", pod(`null`), wanted},
		{"no list", pod(`sidecar-cni`), wanted},
		{"a list of YAML", pod("- sidecar-cni"), wanted},
		{"no quotes", pod(`[sidecar-cni]`), wanted},
		{"other quotes", pod(`['sidecar-cni']`), wanted},
		{"other letters", pod(`["Sidecar-CNI"]`), wanted},
		{"a name that begins alike", pod(`["sidecar-cni-2"]`), wanted},
		{"a name that ends alike", pod(`["x-sidecar-cni"]`), wanted},
		{"another plugin alone", pod(`["other"]`), wanted},
		{"in a comment", pod(`[] # ["sidecar-cni"]`), wanted},
		{"in a comment of the next line", pod("[]\n# [\"sidecar-cni\"]"), wanted},
		{"in a second document", pod("[]\n---\n[\"sidecar-cni\"]"), wanted},
		{"a list in the list", pod(`[["sidecar-cni"]]`), wanted},
		{"a character by its number", pod(`["\u0073idecar-cni"]`), wanted},
		{"a line behind it", pod("[\"sidecar-cni\"]\n"), wanted},
		{"a container's own empty list", with("/container.web", `[]`),
			required + "/container.web: " + wanted},
		{"a list for a container that is not there", with("/container.debug", `["other"]`),
			required + "/container.debug: " + wanted},
		{"the plain key with an empty list", with("", `[]`), required + ": " + wanted},
		{"a pod of no mesh", nil, ""},
		{"a pod of no mesh that requires nothing", map[string]string{required + "/pod": `[]`}, ""},
		{"a key of somebody else's",
			map[string]string{status: "{}", required + "/pod": `["sidecar-cni"]`,
				required + ".example/pod": `[]`}, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			refusal(t, try(t, c, "default", false, x.annotations), x.refused)
		})
	}
	bare := map[string]string{status: "{}"}
	t.Run("in an excluded namespace", func(t *testing.T) {
		refusal(t, try(t, c, "kube-system", false, bare), "")
	})
	t.Run("in the release's namespace", func(t *testing.T) {
		refusal(t, try(t, c, "mesh", false, bare), "")
	})
	t.Run("in the host's network", func(t *testing.T) {
		refusal(t, try(t, c, "default", true, bare), "")
	})
}

// changing changes pods afterwards: what has the runtime insist stays, and nothing else is held.
func changing(t *testing.T, c *cluster.Cluster) {
	awaitPolicy(t, c)
	makeInjected(t, c, "new", map[string]string{status: "{}", required + "/pod": `["sidecar-cni"]`})
	makeInjected(t, c, "plain", nil)
	annotate := func(key, value string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value)
	}
	const emptied, wanted = `"[]"`, "want a JSON list of names"
	for _, x := range []struct{ name, pod, sub, patch, refused string }{
		{"the list is emptied", "new", "", annotate(required+"/pod", emptied), wanted},
		{"the key is taken away", "new", "", annotate(required+"/pod", "null"), wanted},
		{"a container gets a list of its own", "new", "",
			annotate(required+"/container.web", emptied), wanted},
		{"the plain key is added", "new", "", annotate(required, emptied), wanted},
		{"by way of the status", "new", "status", annotate(required+"/pod", emptied), wanted},
		{"another plugin is added", "new", "", annotate(required, `"[\"sidecar-cni\",\"x\"]"`), ""},
		{"another annotation", "new", "", annotate("team", `"mesh"`), ""},
		{"an old pod's list is emptied", "old", "", annotate(required+"/pod", emptied), wanted},
		{"an old pod's other annotation", "old", "", annotate("team", `"mesh"`), ""},
		{"an old pod's annotation by way of the status", "old", "status",
			annotate("network", `"done"`), ""},
		{"an old pod's label", "old", "", `{"metadata":{"labels":{"team":"mesh"}}}`, ""},
		{"an old pod's status", "old", "status", `{"status":{"message":"fine"}}`, ""},
		{"a label of an old pod with a crowd of annotations", "crowded", "",
			`{"metadata":{"labels":{"team":"mesh"}}}`, ""},
		{"its status", "crowded", "status", `{"status":{"message":"fine"}}`, ""},
		{"another annotation of it", "crowded", "", annotate("a0", `"2"`), ""},
		{"it catches up", "crowded", "", annotate(required+"/pod", `"[\"sidecar-cni\"]"`), ""},
		{"its list is emptied", "crowded", "", annotate(required+"/pod", emptied), wanted},
		{"an old pod catches up", "old", "", annotate(required+"/pod", `"[\"sidecar-cni\"]"`), ""},
		{"a pod of no mesh requires nothing", "plain", "", annotate(required+"/pod", emptied), ""},
		{"and says that it has a sidecar", "plain", "", annotate(status, `"{}"`), wanted},
	} {
		t.Run(x.name, func(t *testing.T) {
			var subresources []string
			if x.sub != "" {
				subresources = append(subresources, x.sub)
			}
			_, err := c.Client().CoreV1().Pods("default").Patch(t.Context(), x.pod,
				types.MergePatchType, []byte(x.patch), metav1.PatchOptions{}, subresources...)
			refusal(t, err, x.refused)
		})
	}
	t.Run("an old pod is deleted", func(t *testing.T) { ending(t, c) })
}

// ending deletes a pod that the policy would not let in, and takes its finalizer away then.
func ending(t *testing.T, c *cluster.Cluster) {
	pods := c.Client().CoreV1().Pods("default")
	if err := pods.Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Patch(t.Context(), "held", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Await(t, "the pod to be gone", func(ctx context.Context) error {
		if _, err := pods.Get(ctx, "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// crowd are annotations of a meshed pod: a thousand, and with their keys nearly as long as an API
// server takes them. The evaluation of a policy may cost only so much, and more is a refusal.
func crowd() map[string]string {
	all := map[string]string{status: "{}"}
	for i := range 1000 {
		all[fmt.Sprintf("a%d", i)] = strings.Repeat("x", 250)
	}
	return all
}

// injected is a pod as an injector could have left it.
func injected(name string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
}

func makeInjected(t *testing.T, c *cluster.Cluster, name string, annotations map[string]string,
	finalizers ...string) {
	t.Helper()
	pod := injected(name, annotations)
	pod.Finalizers = finalizers
	c.Await(t, "pod "+name, func(ctx context.Context) error {
		_, err := c.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// try asks whether a pod would be let in.
func try(t *testing.T, c *cluster.Cluster, namespace string, hostNetwork bool,
	annotations map[string]string) error {
	t.Helper()
	pod := injected("try", annotations)
	pod.Spec.HostNetwork = hostNetwork
	_, err := c.Client().CoreV1().Pods(namespace).Create(t.Context(), pod,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// refusal compares an error with the words that a refusal should have; none are no refusal.
func refusal(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil ||
		want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)) {
		t.Errorf("%v, want %q", err, want)
	}
}

// awaitPolicy waits until the API server knows the policy.
func awaitPolicy(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	c.Await(t, "the policy to be in force", func(context.Context) error {
		if try(t, c, "default", false, map[string]string{status: "{}"}) == nil {
			return errors.New("a pod is let in that requires nothing")
		}
		return nil
	})
}
