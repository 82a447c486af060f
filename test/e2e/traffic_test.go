//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// names is a server of names behind two Services: the one that the kubelet tells pods of, and
// another.
const names = `
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: kube-system}
spec: {clusterIP: %s, selector: {app: dns}, ports: [{port: 53, targetPort: 5353, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere, namespace: kube-system}
spec: {selector: {app: dns}, ports: [{port: 53, targetPort: 5353, protocol: UDP}]}
---
apiVersion: v1
kind: Pod
metadata: {name: dns, namespace: kube-system, labels: {app: dns}}
spec:
  nodeName: node0
  containers: [{name: dns, image: ` + actorImage + `, imagePullPolicy: Never, args: [dns]}]
`

// A kind of pod, and what is special about it.
type kind struct {
	name string
	mesh
	space string
	v4    bool // its proxy knows no IPv6
}

var kinds = []kind{
	{"ordinary", mesh{dns: true}, "shop", false},
	{"native", mesh{dns: true, native: true}, "shop", false},
	{"haproxy", mesh{haproxy: true}, "shop", true},
	{"tproxy", mesh{tproxy: true, dns: true}, "open", false},
	{"native-tproxy", mesh{tproxy: true, native: true}, "open", false},
}

// stage is a pod of each kind, and one that is not meshed, on each node.
type stage struct {
	*rig
	plain  []*corev1.Pod
	meshed map[string][]*corev1.Pod
}

func setStage(t *testing.T, r *rig, families cluster.Families) *stage {
	t.Helper()
	s := &stage{rig: r, meshed: map[string][]*corev1.Pod{}}
	r.loadHAProxy(t)
	r.namespace(t, "shop", "restricted")
	r.namespace(t, "open", "privileged")
	server := cluster.ClusterDNS
	if families == cluster.IPv6 {
		server = cluster.ClusterDNSv6
	}
	r.Apply(t, fmt.Sprintf(names, server))
	for i := range r.nodes {
		node := fmt.Sprintf("node%d", i)
		p := on(node, newPod("shop", "plain-"+node))
		r.create(t, p)
		s.plain = append(s.plain, p)
		for _, k := range kinds {
			if k.v4 && families == cluster.IPv6 {
				continue
			}
			p := on(node, meshed(k.space, k.name+"-"+node, k.mesh))
			r.create(t, p)
			s.meshed[k.name] = append(s.meshed[k.name], p)
		}
	}
	for i := range s.plain {
		s.plain[i] = r.ready(t, s.plain[i])
		for _, pods := range s.meshed {
			pods[i] = r.ready(t, pods[i])
		}
	}
	r.AwaitPod(t, "kube-system", "dns", cluster.Ready)
	return s
}

// addresses of a pod that a kind's proxy can be used for.
func (k kind) addresses(pod *corev1.Pod) []string {
	all := []string{}
	for _, ip := range pod.Status.PodIPs {
		if !k.v4 || !strings.Contains(ip.IP, ":") {
			all = append(all, ip.IP)
		}
	}
	return all
}

func TestTraffic(t *testing.T) {
	for name, tt := range map[string]struct {
		families cluster.Families
		nodes    []cluster.NodeOptions
	}{
		"dual stack, two generations of containerd": {cluster.Dual, bothRuntimes},
		"IPv4": {cluster.IPv4, oneNode},
		"IPv6": {cluster.IPv6, oneNode},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, cluster.Options{Families: tt.families, Nodes: tt.nodes})
			r.install(t)
			s := setStage(t, r, tt.families)
			t.Run("a pod with istio-init is refused where Pod Security is restricted",
				s.refusesInit)
			for i, plain := range s.plain {
				t.Run("pods that are not meshed have no rules, on "+plain.Spec.NodeName,
					func(t *testing.T) { r.expectUntouched(t, plain) })
				for _, k := range kinds {
					if len(s.meshed[k.name]) == 0 {
						continue
					}
					t.Run(fmt.Sprintf("%s on %s", k.name, plain.Spec.NodeName), func(t *testing.T) {
						t.Parallel()
						s.talk(t, k, i)
					})
				}
			}
		})
	}
}

func (s *stage) refusesInit(t *testing.T) {
	pod := meshed("shop", "with-init", mesh{init: true})
	_, err := s.Client().CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) ||
		!strings.Contains(err.Error(),
			`container "istio-init" must not include "NET_ADMIN", "NET_RAW"`) {
		t.Errorf("the API server says: %v", err)
	}
}

// talk has the pod of a kind call and be called, by those of the other node where there is one.
func (s *stage) talk(t *testing.T, k kind, i int) {
	other := (i + 1) % len(s.plain)
	me, plain, peer := s.meshed[k.name][i], s.plain[other], s.meshed[k.name][other]
	s.expectRedirected(t, me)
	for j, address := range k.addresses(me) {
		t.Run("out to "+k.addresses(plain)[j],
			func(t *testing.T) { s.out(t, me, plain, k.addresses(plain)[j]) })
		t.Run("in to "+address, func(t *testing.T) { s.in(t, k, plain, me, address) })
		t.Run("within "+address, func(t *testing.T) { s.within(t, me, address) })
		if me != peer {
			t.Run("both to "+k.addresses(peer)[j],
				func(t *testing.T) { s.both(t, k, me, peer, k.addresses(peer)[j]) })
		}
		t.Run("UDP to "+k.addresses(plain)[j],
			func(t *testing.T) { s.packets(t, me, plain, k.addresses(plain)[j]) })
	}
	if k.dns {
		t.Run("names", func(t *testing.T) { s.names(t, me) })
	}
}

// out: the proxy is told whom the app meant, and calls it in the pod's name.
func (s *stage) out(t *testing.T, from, to *corev1.Pod, address string) {
	const bytes = 1 << 20
	got := lines[talk](t, s.rig, from, "call", "tcp", app(address), fmt.Sprint(bytes))[0]
	want := talk{Me: got.Me, Who: to.Name, Caller: got.Caller, Called: app(address)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Caller == got.Me || host(got.Caller) != host(got.Me) {
		t.Errorf("the app was called by %s, and the caller was %s: want the same address, and "+
			"another connection", got.Caller, got.Me)
	}
	s.expectSeen(t, from, sighting{15001, got.Me, app(address)})
}

// in: the proxy sees the caller, and whom it meant. The app sees the proxy, or under TPROXY the
// caller's address.
func (s *stage) in(t *testing.T, k kind, from, to *corev1.Pod, address string) {
	got := lines[talk](t, s.rig, from, "call", "tcp", app(address), fmt.Sprint(1<<20))[0]
	if want := (talk{Me: got.Me, Who: to.Name, Caller: got.Caller,
		Called: app(address)}); got != want {
		t.Error(cmp.Diff(want, got))
	}
	if want := k.proxyAddress(got.Me); host(got.Caller) != want || got.Caller == got.Me {
		t.Errorf("the app was called by %s, want the proxy's own connection, from %s", got.Caller,
			want)
	}
	s.expectSeen(t, to, sighting{15006, got.Me, app(address)})
}

// proxyAddress is what the app sees of a caller.
func (k kind) proxyAddress(caller string) string {
	switch {
	case k.tproxy:
		return host(caller)
	case strings.HasPrefix(caller, "["):
		return "::6"
	}
	return "127.0.0.6"
}

// both: two proxies in the way, and nothing is lost of many connections.
func (s *stage) both(t *testing.T, k kind, from, to *corev1.Pod, address string) {
	const times = 50
	all := lines[talk](t, s.rig, from, "call", "tcp", app(address), fmt.Sprint(64<<10),
		fmt.Sprint(times))
	if len(all) != times {
		t.Errorf("%d calls of %d were answered", len(all), times)
	}
	for _, got := range all {
		if want := k.proxyAddress(got.Me); got.Who != to.Name || host(got.Caller) != want {
			t.Errorf("%+v: want the app of %s, called by %s", got, to.Name, want)
		}
	}
	last := all[len(all)-1]
	s.expectSeen(t, from, sighting{15001, last.Me, app(address)})
	s.expectSeen(t, to, sighting{15006, host(last.Me), app(address)})
}

// within: what stays within the pod is nobody's business.
func (s *stage) within(t *testing.T, pod *corev1.Pod, address string) {
	loopback := "127.0.0.1"
	if strings.Contains(address, ":") {
		loopback = "::1"
	}
	for _, to := range []string{address, loopback} {
		got := lines[talk](t, s.rig, pod, "call", "tcp", app(to))[0]
		if want := (talk{Me: got.Me, Who: pod.Name, Caller: got.Me, Called: app(to)}); got != want {
			t.Error(cmp.Diff(want, got))
		}
		s.expectUnseen(t, pod, got.Me, app(to))
	}
}

// packets: UDP that is no question for a name passes.
func (s *stage) packets(t *testing.T, from, to *corev1.Pod, address string) {
	got := lines[talk](t, s.rig, from, "call", "udp", app(address))[0]
	if want := (talk{Me: got.Me, Who: to.Name, Caller: got.Me, Called: got.Called}); got != want {
		t.Error(cmp.Diff(want, got))
	}
}

// names: questions to the pod's own server go through the proxy, and every one is answered. Those
// to others do not.
func (s *stage) names(t *testing.T, pod *corev1.Pod) {
	const times = 200
	all := lines[talk](t, s.rig, pod, "ask", "-", "shop.example.com", fmt.Sprint(times))
	if len(all) != times {
		t.Errorf("%d questions of %d were answered", len(all), times)
	}
	for _, got := range all {
		if got.Caller == got.Me {
			t.Errorf("the server was asked by the app, at %s", got.Me)
		}
	}
	s.expectSeen(t, pod, sighting{15053, all[len(all)-1].Me, "shop.example.com"})
	elsewhere, err := s.Client().CoreV1().Services("kube-system").Get(t.Context(), "elsewhere",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := lines[talk](t, s.rig, pod, "ask", "["+elsewhere.Spec.ClusterIP+"]:53",
		"elsewhere.example.com")[0]
	// Its port may be another, when the node has just forwarded the proxy's from the same. So the
	// proxy's word counts, once it has told of something later.
	if host(got.Caller) != host(got.Me) {
		t.Errorf("a server that is not the pod's own was asked by %s, and the asker was %s",
			got.Caller, got.Me)
	}
	later := lines[talk](t, s.rig, pod, "ask", "-", "later.example.com")[0]
	s.expectSeen(t, pod, sighting{15053, later.Me, "later.example.com"})
	s.expectUnseen(t, pod, got.Me, "elsewhere.example.com")
}
