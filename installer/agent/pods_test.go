package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

// meshed returns a pod of this node as an injector leaves it.
func meshed(name, uid string) *corev1.Pod {
	user, always := int64(1337), corev1.ContainerRestartPolicyAlways
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(uid),
			Labels:        map[string]string{"app": "web"},
			Annotations:   map[string]string{"sidecar.istio.io/status": "{}"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{
			NodeName: nodeName,
			InitContainers: []corev1.Container{{
				Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, RestartPolicy: &always,
				Image: "proxy",
				Env: []corev1.EnvVar{
					{Name: "ISTIO_META_DNS_CAPTURE", Value: "true"},
					{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
						FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				},
				SecurityContext: &corev1.SecurityContext{RunAsUser: &user, RunAsGroup: &user},
			}},
			Containers: []corev1.Container{{Name: "web", Image: "web"}},
			Volumes:    []corev1.Volume{{Name: "data"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady}}},
	}
}

func (r *rig) names() []string {
	var names []string
	for _, pod := range r.pods.List() {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

func (r *rig) checkNames(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.names()); diff != "" {
		t.Errorf("pods in the cache (-want +got):\n%s", diff)
	}
}

func TestCacheFollowsThePodsOfTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t)
		elsewhere := meshed("elsewhere", "e1")
		elsewhere.Spec.NodeName = "node-2"
		r.api.Put(meshed("web-0", "u0"), meshed("web-1", "u1"), elsewhere)
		if r.pods.Synced() {
			t.Error("it is synced before it runs")
		}
		run(t, r.pods.Run)
		if err := r.pods.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.checkNames(t, "web-0", "web-1")

		r.api.Put(meshed("web-2", "u2"))
		changed := meshed("web-1", "u1")
		changed.Status.Phase = corev1.PodSucceeded
		r.api.Put(changed)
		r.api.Remove(meshed("web-0", "u0"))
		synctest.Wait()
		r.checkNames(t, "web-1", "web-2")
		if got := r.pods.store.get("shop", "web-1").Status.Phase; got != corev1.PodSucceeded {
			t.Errorf("phase %q after a change, want it to have changed", got)
		}
		if r.pods.Len() != 2 {
			t.Errorf("%d pods, want 2", r.pods.Len())
		}
	})
}

// However pods come, streamed, listed or changed, no more of them is kept than is needed.
func TestCacheKeepsStrippedPods(t *testing.T) {
	t.Parallel()
	for name, older := range map[string]bool{"streamed": false,
		"listed, as older servers want it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t)
				if older {
					r.api.WithoutWatchLists()
				}
				r.api.Put(meshed("old", "u0"), meshed("changed", "u1"))
				r.synced(t)
				r.api.Put(meshed("new", "u2"), meshed("changed", "u1"))
				synctest.Wait()
				r.checkNames(t, "changed", "new", "old")
				for _, pod := range r.pods.List() {
					if diff := cmp.Diff(strip(pod), pod); diff != "" {
						t.Errorf("pod %s (-stripped +kept):\n%s", pod.Name, diff)
					}
				}
				if got := testutil.ToFloat64(r.pods.failures); got != 0 {
					t.Errorf("%v failures counted, want none", got)
				}
			})
		})
	}
}

func TestTheEndIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t)
		r.api.Break(apiserver.Hang)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r.pods.Run(ctx)
		if got := testutil.ToFloat64(r.pods.failures); got != 0 || !r.pods.contact.since.IsZero() {
			t.Errorf("%v failures counted, silent since %v; want none", got, r.pods.contact.since)
		}
		if err := r.pods.WaitForSync(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting for a cache that nobody fills ended with %v", err)
		}
	})
}

// Whatever becomes of the API server, what was known stays known, and what is new comes when it is
// back.
func TestTroublesOfTheAPIServer(t *testing.T) {
	t.Parallel()
	say := func(err *apierrors.StatusError) func(*rig) {
		return func(r *rig) { r.api.Break(apiserver.Say(err)); r.api.DropWatches() }
	}
	fault := func(f apiserver.Fault) func(*rig) {
		return func(r *rig) { r.api.Break(f); r.api.DropWatches() }
	}
	mend := func(r *rig) { r.api.Break(nil) }
	tests := map[string]struct {
		begin, end func(*rig)
		lasts      time.Duration
	}{
		"away": {
			func(r *rig) { r.api.Refuse(true); r.api.Break(apiserver.Cut); r.api.DropWatches() },
			func(r *rig) { r.api.Refuse(false); r.api.Break(nil) }, time.Minute},
		"cutting connections":  {fault(apiserver.Cut), mend, time.Minute},
		"breaking answers off": {fault(apiserver.Reset), mend, time.Minute},
		"never answering":      {fault(apiserver.Hang), mend, 10 * time.Minute},
		"slow":                 {fault(apiserver.Slow(20 * time.Second)), mend, time.Minute},
		"a page of a proxy's":  {fault(apiserver.SayText(200, 0, "<html>")), mend, time.Minute},
		"overloaded":           {say(apierrors.NewTooManyRequests("busy", 1)), mend, time.Minute},
		"broken": {say(apierrors.NewInternalError(http.ErrBodyNotAllowed)), mend,
			time.Minute},
		"knowing us no longer": {say(apierrors.NewUnauthorized("Unauthorized")), mend,
			time.Minute},
		"forbidding it": {say(apierrors.NewForbidden(corev1.Resource("pods"), "", nil)),
			mend, time.Minute},
		"gone, as a whole": {say(apierrors.NewResourceExpired("gone")), mend, time.Minute},
		"dropping watches": {func(r *rig) { r.api.DropWatches() }, func(*rig) {}, time.Minute},
		"dropping and a 410": {
			func(r *rig) {
				r.api.Put(meshed("other",
					"o"))
				r.api.Break(apiserver.Cut)
				r.api.DropWatches()
			}, func(r *rig) { r.api.Compact(); r.api.Break(nil) }, time.Minute},
		"without watch lists": {
			func(r *rig) { r.api.WithoutWatchLists(); r.api.Compact(); r.api.DropWatches() },
			func(*rig) {}, time.Minute},
		"ending watches itself": {func(*rig) {}, func(*rig) {}, time.Hour},
	}
	for name, test := range tests {
		t.Run(name+", while running", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t)
				r.api.Put(meshed("old", "u0"))
				run(t, r.pods.Run)
				synctest.Wait()
				r.checkNames(t, "old")
				test.begin(r)
				time.Sleep(test.lasts)
				if a := r.pods.Find(t.Context(), Ref{"shop", "old", "u0"}); a.Verdict != Found {
					t.Errorf("%+v during the trouble, want what was known", a)
				}
				r.api.Put(meshed("new", "u1"))
				test.end(r)
				time.Sleep(3 * time.Minute)
				if !slices.Contains(r.names(), "new") {
					t.Errorf("after the trouble there are %q, want the new pod among them",
						r.names())
				}
			})
		})
		t.Run(name+", from the start", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t)
				test.begin(r)
				run(t, r.pods.Run)
				time.Sleep(test.lasts)
				r.api.Put(meshed("new", "u1"))
				test.end(r)
				time.Sleep(3 * time.Minute)
				if !r.pods.Synced() || !slices.Contains(r.names(), "new") {
					t.Errorf("after the trouble: synced %v, pods %q; want the new one",
						r.pods.Synced(), r.names())
				}
			})
		})
	}
}

// A server that streams no lists is asked for a few pods at a time, and never at version 0, at
// which it sends all.
func TestListsComeInPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t)
		r.api.WithoutWatchLists()
		const pods = 2*pageSize + 1
		var want, asked []string
		for i := range pods {
			pod := meshed(fmt.Sprintf("web-%02d", i), fmt.Sprint(i))
			r.api.Put(pod)
			want = append(want, pod.Name)
		}
		r.api.Break(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if q := req.URL.Query(); !q.Has("watch") {
					asked = append(asked, fmt.Sprintf("limit %s version %q continue %q",
						q.Get("limit"), q.Get("resourceVersion"), q.Get("continue")))
				}
				next.ServeHTTP(w, req)
			})
		})
		r.synced(t)
		r.checkNames(t, want...)
		if diff := cmp.Diff([]string{
			`limit 8 version "" continue ""`, `limit 8 version "" continue "17 shop/web-07"`,
			`limit 8 version "" continue "17 shop/web-15"`,
		}, asked); diff != "" {
			t.Errorf("questions (-want +got):\n%s", diff)
		}
		r.api.Put(meshed("web-99", "new")) // the watch goes on where the first page began
		synctest.Wait()
		r.checkNames(t, append(want, "web-99")...)
	})
}

// The server may have forgotten what the next page is of: then the list begins anew.
func TestAListWhosePagesExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t)
		r.api.WithoutWatchLists()
		var want []string
		for i := range pageSize + 1 {
			pod := meshed(fmt.Sprintf("web-%02d", i), fmt.Sprint(i))
			r.api.Put(pod)
			want = append(want, pod.Name)
		}
		var once sync.Once
		r.api.Break(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Query().Has("continue") {
					once.Do(func() {
						r.api.Put(meshed("web-99", "new"))
						r.api.Compact()
					})
				}
				next.ServeHTTP(w, req)
			})
		})
		r.synced(t)
		r.checkNames(t, append(want, "web-99")...)
	})
}

// recorder notes the questions of an API server's clients.
type recorder struct {
	mu   sync.Mutex
	uris []string
}

func (rec *recorder) fault(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec.mu.Lock()
		rec.uris = append(rec.uris,
			r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("fieldSelector")+" "+
				r.URL.Query().Get("sendInitialEvents"))
		rec.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

func (rec *recorder) take() []string {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	uris := rec.uris
	rec.uris = nil
	return uris
}

// The history of a cluster moves on while nothing happens on the node. Bookmarks tell, so that a
// watch that ends can be taken up where it was, without another list.
func TestQuietNodesAreNotListedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t)
		rec := &recorder{}
		r.api.Break(rec.fault)
		r.api.Put(meshed("old", "u0"))
		run(t, r.pods.Run)
		synctest.Wait()
		selector := "GET /api/v1/pods spec.nodeName=" + nodeName + " "
		if diff := cmp.Diff([]string{selector + "true"}, rec.take()); diff != "" {
			t.Errorf("questions at the start (-want +got):\n%s", diff)
		}
		elsewhere := meshed("elsewhere", "e1")
		elsewhere.Spec.NodeName = "node-2"
		r.api.Put(elsewhere)
		time.Sleep(2 * time.Minute)
		r.api.Compact()
		time.Sleep(10 * time.Minute) // the longest that client-go lets a watch be
		again := slices.Compact(rec.take())
		if diff := cmp.Diff([]string{selector}, again); diff != "" {
			t.Errorf("questions after a watch ended (-want +got):\n%s", diff)
		}
		r.api.Put(meshed("new", "u1"))
		synctest.Wait()
		r.checkNames(t, "new", "old")
	})
}
