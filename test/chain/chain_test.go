package chain

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

func atLeast(version, least string) bool { return version >= least } // each part has one digit

func TestTheChainAtEveryVersion(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n, ns, pod := newNode(t), netns.New(t), Meshed("web-0", nil)
			n.agent.Put(pod)
			list, at := n.Network(version, n.Bridge(), n.Entry(nil)), Attachment(pod, ns)

			result, err := n.Add(list, at)
			if err != nil {
				t.Fatal(err)
			}
			n.wantUntouchedResult(version, result)
			n.wantRedirected(ns, at)
			n.wantFates(ns, at, result)

			if atLeast(version, "0.4.0") {
				n.wantChecked(list, at, ns)
			}
			for range 2 {
				if err := n.del(list, at); err != nil {
					t.Errorf("DEL: %v", err)
				}
				at.NetNS = ""
			}
			if got := n.records(); got != nil {
				t.Errorf("records after DEL: %q", got)
			}
		})
	}
}

// wantUntouchedResult compares what bridge said, what we were given, what we said, and what the
// runtime got.
func (n *Node) wantUntouchedResult(version string, result types.Result) {
	n.t.Helper()
	bridge, ours := n.Last("bridge"), n.Last("sidecar-cni")
	if diff := cmp.Diff(ours.in["prevResult"], any(ours.out)); diff != "" {
		n.t.Errorf("prevResult (-given +answered):\n%s", diff)
	}
	if diff := cmp.Diff(bridge.out, ours.out); diff != "" {
		n.t.Errorf("result (-bridge +chain):\n%s", diff)
	}
	if result.Version() != version || ours.out["cniVersion"] != version {
		n.t.Errorf("version %s, printed as %v, want %s", result.Version(), ours.out["cniVersion"],
			version)
	}
}

// wantFates makes connections out of the pod and into it, and compares with what the simulation
// says.
func (n *Node) wantFates(ns *netns.NS, at *libcni.RuntimeConf, result types.Result) {
	n.t.Helper()
	current, err := types100.GetResult(result)
	if err != nil {
		n.t.Fatal(err)
	}
	own, _ := netip.AddrFromSlice(current.IPs[0].Address.IP)
	gateway, _ := netip.AddrFromSlice(current.IPs[0].Gateway)
	own, gateway = own.Unmap(), gateway.Unmap()
	sidecar := netns.Identity{UID: 1337, GID: 1337}
	ns.Listen(n.t, netns.Listener{Who: "proxy", As: sidecar, TCP: []uint16{15001, 15006},
		Addr: netip.IPv4Unspecified()})
	ns.Listen(n.t, netns.Listener{Who: "app", As: netns.Identity{UID: 1000, GID: 1000},
		TCP: []uint16{8080, 15020}, Addr: netip.IPv4Unspecified()})
	n.Host.Listen(n.t, netns.Listener{Who: "world", TCP: []uint16{80},
		Addr: netip.IPv4Unspecified()})

	rules := n.Rules(at)
	out := func(as netns.Identity) packet.Packet {
		return packet.Packet{
			Out: "eth0", Protocol: redirect.TCP, Source: netip.AddrPortFrom(own, 40000),
			Destination: netip.AddrPortFrom(gateway, 80),
			Owner:       &packet.Owner{UID: as.UID, GID: as.GID},
		}
	}
	in := func(port uint16) packet.Packet {
		return packet.Packet{
			In: "eth0", Protocol: redirect.TCP, Source: netip.AddrPortFrom(gateway, 40000),
			Destination: netip.AddrPortFrom(own, port),
		}
	}
	for name, c := range map[string]struct {
		from   *netns.NS
		packet packet.Packet
		passes string // who answers where nothing is redirected
	}{
		"the app calls the world":   {ns, out(netns.Identity{UID: 1000, GID: 1000}), "world"},
		"the proxy calls the world": {ns, out(sidecar), "world"},
		"the world calls the app":   {n.Host, in(8080), "app"},
		"the kubelet asks":          {n.Host, in(15020), "app"},
	} {
		fate := simulate.Packet(rules, c.packet)
		want := netns.Report{Who: c.passes, Port: c.packet.Destination.Port(),
			Original: c.packet.Destination}
		if fate.Outcome == packet.Redirected {
			want.Who, want.Port = "proxy", fate.Port
		}
		call := netns.Call{Network: "tcp", To: c.packet.Destination}
		if c.packet.Owner != nil {
			call.As = netns.Identity{UID: c.packet.Owner.UID, GID: c.packet.Owner.GID}
		}
		got := c.from.Dial(n.t, call)
		if !got.Original.IsValid() {
			got.Original = got.Local // the host tracks no connections
		}
		if got.Who != want.Who || got.Port != want.Port || got.Original != want.Original {
			n.t.Errorf("%s: %s, want %s; simulated: %s", name, got, want, fate)
		}
	}
}

// wantChecked breaks a rule and mends it.
func (n *Node) wantChecked(list *libcni.NetworkConfigList, at *libcni.RuntimeConf, ns *netns.NS) {
	n.t.Helper()
	if err := n.check(list, at); err != nil {
		n.t.Errorf("CHECK: %v", err)
	}
	ns.Run(n.t, "", "nft", "flush chain inet sidecar-cni ISTIO_OUTPUT")
	var refusal *types.Error
	if err := n.check(list, at); !errors.As(err, &refusal) || refusal.Code != 104 ||
		!strings.Contains(refusal.Msg, "ISTIO_OUTPUT") {
		n.t.Errorf("CHECK of a pod whose rules are gone: %v", err)
	}
}

func TestGCAndStatusThroughLibcni(t *testing.T) {
	t.Parallel()
	n, kept, lost := newNode(t), netns.New(t), netns.New(t)
	list := n.Network("1.1.0", n.Bridge(), n.Entry(nil))
	first, second := Attachment(Meshed("web-0", nil), kept), Attachment(Meshed("web-1", nil), lost)
	n.agent.Put(Meshed("web-0", nil), Meshed("web-1", nil))
	for _, at := range []*libcni.RuntimeConf{first, second} {
		if _, err := n.Add(list, at); err != nil {
			t.Fatal(err)
		}
	}
	var gcErr, statusErr error
	n.Host.Do(t, func() {
		gcErr = n.cni.GCNetworkList(t.Context(), list, &libcni.GCArgs{
			ValidAttachments: []types.GCAttachment{{ContainerID: first.ContainerID,
				IfName: "eth0"}},
		})
		statusErr = n.cni.GetStatusNetworkList(t.Context(), list)
	})
	if gcErr != nil || statusErr != nil {
		t.Errorf("GC: %v; STATUS: %v", gcErr, statusErr)
	}
	if diff := cmp.Diff([]string{"id-of-web-0:eth0.json"}, n.records()); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	n.wantRedirected(kept, first)
	broken := n.Network("1.1.0", n.Bridge(), n.Entry(Object{"backend": "ebpf"}))
	var refusal *types.Error
	n.Host.Do(t, func() { statusErr = n.cni.GetStatusNetworkList(t.Context(), broken) })
	if !errors.As(statusErr, &refusal) || refusal.Code != 50 {
		t.Errorf("STATUS with a wrong configuration: %v", statusErr)
	}
}

// Multus and single networks begin with us.
func TestWithoutAResultBefore(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n, ns, pod := newNode(t), netns.New(t), Meshed("web-0", nil)
			n.agent.Put(pod)
			list, at := n.Network(version, n.Entry(nil)), Attachment(pod, ns)
			result, err := n.Add(list, at)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Object{"cniVersion": version},
				n.Last("sidecar-cni").out); diff != "" || result.Version() != version {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			n.wantRedirected(ns, at)
			if err := n.del(list, at); err != nil {
				t.Error(err)
			}
		})
	}
}

// A node is upgraded piece by piece: the binary may be older or newer than the entry.
func TestNewerAndOlderConfigurations(t *testing.T) {
	newer := Object{"sidecars": Object{"ambient": true},
		"redirect": Object{"ports": Object{"admin": 15000}}, "dnsCapture": "all"}
	older := Object{"capabilities": nil, "kubeconfig": nil, "deadline": nil}
	for name, entry := range map[string]Object{"newer": newer, "older": older} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, ns, pod := newNode(t), netns.New(t), Meshed("web-0", nil)
			n.agent.Put(pod)
			full := n.Entry(entry)
			for k, v := range full {
				if v == nil {
					delete(full, k)
				}
			}
			list, at := n.Network("1.0.0", n.Bridge(), full), Attachment(pod, ns)
			if _, err := n.Add(list, at); err != nil {
				t.Fatal(err)
			}
			n.wantRedirected(ns, at)
			if warned := strings.Contains(n.Last("sidecar-cni").Stderr,
				`unknown key \"sidecars\"`); warned != (name == "newer") {
				t.Errorf("log: %s", n.Last("sidecar-cni").Stderr)
			}
		})
	}
}

func TestTheAPIServerStandsInForTheAgent(t *testing.T) {
	t.Parallel()
	n, ns, pod := newNode(t), netns.New(t), Meshed("web-0", nil)
	api := apiserver.StartIn(t, n.Host)
	api.Put(pod)
	entry := n.Entry(Object{"agentSocket": filepath.Join(n.Dir, "nobody"),
		"kubeconfig": api.Kubeconfig()})
	at := Attachment(pod, ns)
	if _, err := n.Add(n.Network("1.1.0", n.Bridge(), entry), at); err != nil {
		t.Fatal(err)
	}
	n.wantRedirected(ns, at)
}

// A chain that is refused leaves a pod without its rules, and the runtime cleans up behind it.
func TestARefusalEndsTheChain(t *testing.T) {
	t.Parallel()
	n, ns := newNode(t), netns.New(t)
	pod := Meshed("web-0", map[string]string{
		"traffic.sidecar.istio.io/includeInboundPorts": "eighty"})
	n.agent.Put(pod)
	list, at := n.Network("1.1.0", n.Bridge(), n.Entry(nil)), Attachment(pod, ns)
	_, err := n.Add(list, at)
	var refusal *types.Error
	if !errors.As(err, &refusal) || refusal.Code != 100 ||
		!strings.Contains(refusal.Msg, `includeInboundPorts: "eighty"`) {
		t.Errorf("ADD: %v", err)
	}
	if err := n.del(list, at); err != nil {
		t.Errorf("DEL: %v", err)
	}
	if rules := ns.Run(t, "", "nft", "list", "ruleset"); rules != "" {
		t.Errorf("rules:\n%s", rules)
	}
}

// An entry and a drop-in may both be there for a while.
func TestTwiceInAChain(t *testing.T) {
	t.Parallel()
	n, ns, pod := newNode(t), netns.New(t),
		Meshed("web-0", map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"})
	n.agent.Put(pod)
	list, at := n.Network("1.1.0", n.Bridge(), n.Entry(nil), n.Entry(nil)), Attachment(pod, ns)
	if _, err := n.Add(list, at); err != nil {
		t.Fatal(err)
	}
	n.wantRedirected(ns, at)
	if err := n.check(list, at); err != nil {
		t.Error(err)
	}
	if err := n.del(list, at); err != nil {
		t.Error(err)
	}
}

func TestManyAtOnce(t *testing.T) {
	const many = 110 // pods, as many as a kubelet allows
	n := newNode(t)
	list := n.Network("1.1.0", n.Entry(Object{"deadline": "1m"}))
	pods := make([]*corev1.Pod, many)
	spaces := make([]*netns.NS, many)
	for i := range many {
		pods[i], spaces[i] = Meshed(fmt.Sprintf("web-%d", i), nil), netns.New(t)
		n.agent.Put(pods[i])
	}
	errs := make([]error, many)
	start := make(chan struct{})
	var adds sync.WaitGroup
	for i := range many {
		adds.Go(func() {
			<-start
			_, errs[i] = n.Add(list, Attachment(pods[i], spaces[i]))
		})
	}
	close(start)
	adds.Wait()
	for i := range many {
		if errs[i] != nil { // the deadline would be one
			t.Errorf("%s: %v", pods[i].Name, errs[i])
			continue
		}
		n.wantRedirected(spaces[i], Attachment(pods[i], spaces[i]))
	}
	if got := len(n.records()); got != many {
		t.Errorf("%d records", got)
	}
}

func (n *Node) check(list *libcni.NetworkConfigList, at *libcni.RuntimeConf) error {
	n.t.Helper()
	var err error
	n.Host.Do(n.t, func() { err = n.cni.CheckNetworkList(n.t.Context(), list, at) })
	return err
}

func (n *Node) del(list *libcni.NetworkConfigList, at *libcni.RuntimeConf) error {
	n.t.Helper()
	var err error
	n.Host.Do(n.t, func() { err = n.cni.DelNetworkList(n.t.Context(), list, at) })
	return err
}

func (n *Node) records() []string {
	n.t.Helper()
	entries, err := os.ReadDir(n.state())
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (n *Node) wantRedirected(ns *netns.NS, at *libcni.RuntimeConf) {
	n.t.Helper()
	for _, p := range Verify(n.t, ns, n.Rules(at)) {
		n.t.Errorf("%s: %s", at.ContainerID, p)
	}
}
