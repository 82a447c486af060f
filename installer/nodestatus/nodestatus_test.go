package nodestatus_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

const name = "node-1"

var (
	ours    = corev1.Taint{Key: nodestatus.Taint, Effect: corev1.TaintEffectNoSchedule}
	evictor = corev1.Taint{Key: nodestatus.Taint, Value: "true",
		Effect:    corev1.TaintEffectNoExecute,
		TimeAdded: &metav1.Time{Time: time.Unix(1790000000, 0)}}
	gpu = corev1.Taint{Key: "nvidia.com/gpu", Value: "present",
		Effect: corev1.TaintEffectNoSchedule}
	cordon = corev1.Taint{Key: "node.kubernetes.io/unschedulable",
		Effect: corev1.TaintEffectNoSchedule}
	alike = corev1.Taint{Key: nodestatus.Taint + "-yet", Effect: corev1.TaintEffectNoSchedule}
)

// cluster is an API server that knows one node.
type cluster struct {
	*apiserver.Server
	t *testing.T
}

func newCluster(t *testing.T, node *corev1.Node) (*cluster, *nodestatus.Node) {
	t.Helper()
	c := &cluster{apiserver.Start(t), t}
	node.Name = name
	c.PutNode(node)
	client, err := agent.NewClient(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c, nodestatus.New(client, name)
}

func tainted(taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: taints}}
}

// before has somebody change the node ahead of each of the first n patches.
func (c *cluster) before(n int, change func(*corev1.Node)) {
	c.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch && n > 0 {
				n--
				node := c.Node(name).DeepCopy()
				change(node)
				c.PutNode(node)
			}
			next.ServeHTTP(w, r)
		})
	})
}

func (c *cluster) wantTaints(want ...corev1.Taint) {
	c.t.Helper()
	node := c.Node(name)
	if diff := cmp.Diff(want, node.Spec.Taints); diff != "" && len(want)+len(node.Spec.Taints) > 0 {
		c.t.Errorf("taints (-want +got):\n%s", diff)
	}
	if node.Spec.PodCIDR != "10.0.0.0/24" {
		c.t.Errorf("the rest of the node was changed: %+v", node.Spec)
	}
}

func TestOnlyOurTaintIsRemoved(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		have, want []corev1.Taint
		removed    bool
	}{
		"there is none": {nil, nil, false},
		"only others":   {[]corev1.Taint{gpu, alike}, []corev1.Taint{gpu, alike}, false},
		"alone":         {[]corev1.Taint{ours}, nil, true},
		"among others": {[]corev1.Taint{gpu, ours, cordon}, []corev1.Taint{gpu, cordon},
			true},
		"with each of its kinds": {[]corev1.Taint{ours, gpu, evictor}, []corev1.Taint{gpu}, true},
		"with a value and time":  {[]corev1.Taint{evictor, alike}, []corev1.Taint{alike}, true},
	}
	for title, row := range rows {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			c, node := newCluster(t, tainted(row.have...))
			for i := range 2 { // the second time there is nothing to do
				removed, err := node.RemoveTaint(t.Context())
				if err != nil || removed != (row.removed && i == 0) {
					t.Fatalf("removed: %v, error %v", removed, err)
				}
				c.wantTaints(row.want...)
			}
		})
	}
}

func TestATaintThatComesBackIsRemovedAgain(t *testing.T) {
	t.Parallel()
	c, node := newCluster(t, tainted(ours))
	for range 3 {
		if removed, err := node.RemoveTaint(t.Context()); err != nil || !removed {
			t.Fatalf("removed: %v, error %v", removed, err)
		}
		c.wantTaints()
		c.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: tainted(evictor).Spec})
	}
}

// The places in the list are others by the time the patch comes.
func TestTaintsOfOthersSurviveARace(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		change func(*corev1.Node)
		want   []corev1.Taint
	}{
		"one is added in front": {
			func(n *corev1.Node) {
				n.Spec.Taints = append([]corev1.Taint{cordon},
					n.Spec.Taints...)
			}, []corev1.Taint{cordon, gpu}},
		"one in front is removed": {func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[1:] },
			nil},
		"ours is replaced by one": {func(n *corev1.Node) { n.Spec.Taints[1] = cordon },
			[]corev1.Taint{gpu, cordon}},
		"ours is removed": {func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[:1] },
			[]corev1.Taint{gpu}},
		"ours gets another effect": {func(n *corev1.Node) { n.Spec.Taints[1] = evictor },
			[]corev1.Taint{gpu}},
	}
	for title, row := range rows {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			c, node := newCluster(t, tainted(gpu, ours))
			c.before(1, row.change)
			if _, err := node.RemoveTaint(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.wantTaints(row.want...)
		})
	}
}

func TestARaceThatNeverEndsIsAnError(t *testing.T) {
	t.Parallel()
	c, node := newCluster(t, tainted(gpu, ours))
	c.before(100, func(n *corev1.Node) {
		n.Spec.Taints = append([]corev1.Taint{cordon},
			n.Spec.Taints...)
	})
	removed, err := node.RemoveTaint(t.Context())
	if err == nil || removed || !strings.Contains(err.Error(), nodestatus.Taint) {
		t.Errorf("removed: %v, error %v", removed, err)
	}
	if n := c.Requests(); n > 10 {
		t.Errorf("%d requests", n)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, name, nil)
	rows := map[string]struct {
		spoil func(*cluster)
		words []string
	}{
		"the right is missing": {func(c *cluster) {
			c.Break(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPatch {
						next = apiserver.Say(forbidden)(next)
					}
					next.ServeHTTP(w, r)
				})
			})
		}, []string{"patch node node-1", "forbidden"}},
		"the node is gone": {func(c *cluster) {
			c.Break(apiserver.Say(apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"},
				name)))
		},
			[]string{"read node node-1", "not found"}},
		"the API server is away": {func(c *cluster) { c.Break(apiserver.Cut) },
			[]string{"read node node-1"}},
	}
	for title, row := range rows {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			c, node := newCluster(t, tainted(ours))
			row.spoil(c)
			before := c.Requests()
			_, untaint := node.RemoveTaint(t.Context())
			_, report := node.Report(t.Context(), nodestatus.Condition{Ready: true})
			for _, err := range []error{untaint, report} {
				for _, word := range row.words {
					if err == nil || !strings.Contains(err.Error(), word) {
						t.Errorf("the error lacks %q: %v", word, err)
					}
				}
			}
			if n := c.Requests() - before; n > 4 {
				t.Errorf("%d requests: none of these gets better by trying again at once", n)
			}
			c.Break(nil)
			c.wantTaints(ours)
			if written, err := node.Report(t.Context(),
				nodestatus.Condition{Ready: true}); !written || err != nil {
				t.Errorf("once it is mended, the condition was written: %v, error %v", written, err)
			}
		})
	}
}

func TestAnEndedContextEndsIt(t *testing.T) {
	t.Parallel()
	c, node := newCluster(t, tainted(ours))
	c.Break(apiserver.Hang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := node.RemoveTaint(ctx); err == nil {
		t.Error("no error")
	}
}

func TestInfoIsTheNode(t *testing.T) {
	t.Parallel()
	want := tainted(gpu)
	want.Labels = map[string]string{"kubernetes.io/os": "linux"}
	want.Status.NodeInfo = corev1.NodeSystemInfo{ContainerRuntimeVersion: "containerd://2.1.0",
		OSImage: "Talos (v1.13)"}
	_, node := newCluster(t, want)
	got, err := node.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got.ResourceVersion, got.TypeMeta = "", metav1.TypeMeta{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}
