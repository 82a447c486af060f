package repair_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/othertools"
)

func TestAReportIsAnEventALabelAndAMetric(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Report)
	n.run(meshed("web-0", nil), ns)
	for range 2 {
		n.want(n.pass(), repair.Missing, repair.Reported)
	}
	event := n.awaitEvent("SidecarNotRedirected")
	if event.Type != "Warning" || event.InvolvedObject.UID != uidOf("web-0") ||
		!strings.Contains(event.Message, "delete the pod") {
		t.Errorf("event %+v", event)
	}
	if got := n.api.Pod("shop", "web-0").Labels; got[repair.Label] != "missing" {
		t.Errorf("labels %v", got)
	}
	if rules(t, ns) != rules(t, netns.New(t)) {
		t.Errorf("rules\n%s", rules(t, ns))
	}
	n.wantMetrics(map[string]float64{"sidecar_cni_checked_pods missing": 1,
		"sidecar_cni_repair_passes_total complete": 2})
}

// wantMetrics compares those that have a label and are not zero.
func (n *node) wantMetrics(want map[string]float64) {
	n.t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	have := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if len(m.GetLabel()) == 1 && value != 0 && !strings.Contains(f.GetName(), "events") {
				have[f.GetName()+" "+m.GetLabel()[0].GetValue()] = value
			}
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		n.t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// A pod whose rules no packet meets, though it has had time for some, is counted: it may have a
// kernel of its own.
func TestRulesThatNoPacketMeets(t *testing.T) {
	t.Parallel()
	const old, young = 11 * time.Minute, 9 * time.Minute
	rows := map[string]struct {
		age      time.Duration
		recorded bool
		call     *netns.Call
		want     float64
	}{
		"for long":                {old, true, nil, 1},
		"since a moment ago":      {young, true, nil, 0},
		"since nobody knows when": {old, false, nil, 0},
		"but it has called somebody": {old, true, &netns.Call{
			Network: "tcp", To: netip.MustParseAddrPort("192.0.2.7:80"),
		}, 0},
		"but it has called by IPv6": {old, true, &netns.Call{
			Network: "tcp", To: netip.MustParseAddrPort("[2001:db8::7]:80"),
		}, 0},
	}
	for _, backend := range backends {
		for name, row := range rows {
			t.Run(backend+"/"+name, func(t *testing.T) {
				t.Parallel()
				pod, n := netns.NewPod(t, netns.Options{}), newNode(t, repair.Report)
				n.backend = backend
				n.run(meshed("web-0", nil), pod.NS)
				if row.recorded {
					n.add("web-0", backend, pod.NS)
					n.age(row.age)
				} else {
					apply(t, pod.NS, backend, policyOf(t, nil))
				}
				if row.call != nil {
					pod.Dial(t, *row.call)
				}
				n.want(n.pass(), repair.Redirected, "")
				families, err := n.registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range families {
					value := f.GetMetric()[0].GetGauge().GetValue()
					if f.GetName() == "sidecar_cni_unhit_pods" && value == row.want {
						return
					}
				}
				t.Errorf("want %v pods without a hit:\n%s", row.want,
					pod.Run(t, "", "nft", "list", "ruleset"))
			})
		}
	}
}

func TestMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	n := newNode(t, repair.Report)
	n.pass()
	problems, err := testutil.GatherAndLint(n.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
}

func TestARepairIsToldOf(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Repair)
	pod := meshed("web-0", nil)
	// An earlier pass in mode report has set the label.
	pod.Labels = map[string]string{repair.Label: "missing", "app": "web"}
	n.run(pod, ns)
	n.want(n.pass(), repair.Missing, repair.Repaired)
	event := n.awaitEvent("SidecarRedirectedLate")
	want := "the pod started without redirection, and sidecar-cni has redirected it now: " +
		"connections that were opened before go on past " +
		"the sidecar until they end; remedy: restart the pod (delete it to have it created anew)"
	if event.Type != "Warning" || event.Message != want {
		t.Errorf("event %s %q, want a warning %q", event.Type, event.Message, want)
	}
	if diff := cmp.Diff(map[string]string{"app": "web"},
		n.api.Pod("shop", "web-0").Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	n.wantMetrics(map[string]float64{
		"sidecar_cni_checked_pods redirected": 1, "sidecar_cni_repair_passes_total complete": 1,
		"sidecar_cni_repairs_total repaired": 1,
	})
}

func TestLabels(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		label   string
		program func(*node, *netns.NS)
		want    string
	}{
		"missing, and labels are off":  {"", func(*node, *netns.NS) {}, ""},
		"missing, under another label": {"example.com/mesh", func(*node, *netns.NS) {}, "missing"},
		"mended by whomever": {repair.Label, func(n *node, ns *netns.NS) {
			n.label("missing")
			ns.Run(t, othertools.IstioInit, "iptables-nft-restore")
		}, ""},
		"not found for now": {repair.Label, func(n *node, _ *netns.NS) {
			n.label("missing")
			n.process(999, 1, netns.New(t).Path(), cgroupOf("web-0"))
		}, "missing"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Report)
			n.config.Label = row.label
			n.run(meshed("web-0", nil), ns)
			row.program(n, ns)
			n.pass()
			got, ok := n.api.Pod("shop", "web-0").Labels[row.label]
			if got != row.want || ok != (row.want != "") {
				t.Errorf("label %q, there: %v, want %q", got, ok, row.want)
			}
		})
	}
}

func (n *node) label(value string) {
	pod := n.api.Pod("shop", "web-0").DeepCopy()
	pod.Labels = map[string]string{repair.Label: value}
	n.api.Put(pod)
}

func TestWhoIsEvicted(t *testing.T) {
	t.Parallel()
	job := func(policy corev1.RestartPolicy, phase corev1.PodPhase) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences[0].Kind, p.Spec.RestartPolicy, p.Status.Phase = "Job", policy, phase
		}
	}
	rows := map[string]struct {
		change func(*corev1.Pod)
		want   repair.Outcome
		why    string
	}{
		"a ReplicaSet's": {func(*corev1.Pod) {}, repair.Evicted, ""},
		"a Job's that may start over": {job(corev1.RestartPolicyOnFailure, corev1.PodRunning),
			repair.Evicted, ""},
		"a Job's that has not begun": {job(corev1.RestartPolicyNever, corev1.PodPending),
			repair.Evicted, ""},
		"a Job's that runs, and only once": {job(corev1.RestartPolicyNever, corev1.PodRunning),
			repair.Spared, "restartPolicy Never"},
		"one without a controller": {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
			repair.Spared, "no controller"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Evict)
			pod := meshed("web-0", nil)
			row.change(pod)
			n.run(pod, ns)
			n.want(n.pass(), repair.Missing, row.want, row.why)
			if there := n.api.Pod("shop", "web-0") != nil; there != (row.want == repair.Spared) {
				t.Errorf("the pod is there: %v", there)
			}
			if rules(t, ns) != rules(t, netns.New(t)) {
				t.Errorf("rules\n%s", rules(t, ns))
			}
			reason := map[repair.Outcome]string{repair.Evicted: "SidecarPodEvicted",
				repair.Spared: "SidecarNotRedirected"}[row.want]
			if event := n.awaitEvent(reason); !strings.Contains(event.Message, row.why) {
				t.Errorf("event %s", event.Message)
			}
		})
	}
}

// evictions counts how often somebody asked for one.
func (n *node) evictions() *int {
	count := 0
	n.api.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/eviction") {
				count++
			}
			next.ServeHTTP(w, r)
		})
	})
	return &count
}

func TestABudgetDefersAnEviction(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Evict)
	n.run(meshed("web-0", nil), ns)
	n.api.Protect("shop", "web-0", true)
	count := n.evictions()
	n.want(n.pass(), repair.Missing, repair.Deferred, "disruption budget")
	n.api.Protect("shop", "web-0", false)
	n.want(n.pass(), repair.Missing, repair.Deferred) // the pause is on
	if *count != 1 || n.api.Pod("shop", "web-0") == nil {
		t.Errorf("%d evictions", *count)
	}
	if n.api.Pod("shop", "web-0").Labels[repair.Label] != "missing" {
		t.Error("no label")
	}
}

// A pod that was created anew under the name is not the one that was looked into.
func TestOnlyThePodThatWasSeenIsEvicted(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Evict)
	n.run(meshed("web-0", nil), ns)
	n.listed = n.pods()
	anew := meshed("web-0", nil)
	anew.UID = "another"
	n.api.Put(anew)
	n.pass()
	if n.api.Pod("shop", "web-0") == nil {
		t.Error("another pod was evicted")
	}
}

// The API server refuses to change a uid, so a label for the pod before does not reach the one
// after.
func TestALabelIsForOnePod(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Report)
	n.run(meshed("web-0", nil), ns)
	var body []byte
	n.api.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/pods/web-0") {
				body, _ = io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			next.ServeHTTP(w, r)
		})
	})
	n.pass()
	want := `{"metadata":{"labels":{"sidecar-cni.io/redirection":"missing"},"uid":"` +
		string(uidOf("web-0")) + `"}}`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}

func TestAnAPIServerThatRefusesOrIsAway(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-0", nil)
	rows := map[string]struct {
		fault apiserver.Fault
		most  int // requests beside those of Events
	}{
		"refuses": {apiserver.Say(forbidden), 40},
		"is away": {apiserver.Cut, 3},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, repair.Evict)
			var all []*netns.NS
			for _, pod := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				all = append(all, netns.New(t))
				n.run(meshed(pod, nil), all[len(all)-1])
			}
			requests := 0
			n.api.Break(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !strings.Contains(r.URL.Path, "/events") {
						requests++
					}
					row.fault(next).ServeHTTP(w, r)
				})
			})
			n.listed = n.pods()
			s := n.pass()
			if len(s.Results) != len(all) || s.Results[0].Outcome != repair.Failed ||
				s.Results[0].Err == nil {
				t.Errorf("results %+v", s.Results)
			}
			if requests > row.most {
				t.Errorf("%d requests", requests)
			}
			n.api.Break(nil)
			for _, x := range n.pass().Results {
				if x.Outcome != repair.Evicted {
					t.Errorf("once it answers: %s %s %v", x.Name, x.Outcome, x.Err)
				}
			}
		})
	}
}

func TestAPassThatIsCutShort(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Repair)
	n.run(meshed("web-0", nil), ns)
	n.listed = n.pods()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	s, err := n.try(ctx)
	if err == nil && len(s.Results) == 0 {
		t.Fatal("neither an error nor a result")
	}
	if rules(t, ns) != rules(t, netns.New(t)) {
		t.Errorf("rules\n%s", rules(t, ns))
	}
	n.want(n.pass(), repair.Missing, repair.Repaired)
}
