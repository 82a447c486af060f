package netns

import (
	"net/netip"
	"testing"
)

// Addresses of a pod and its neighbours.
var (
	PodIPv4   = netip.MustParseAddr("10.244.0.2") // on eth0
	PodIPv6   = netip.MustParseAddr("fd00:244::2")
	PeerIPv4  = netip.MustParseAddr("10.244.0.1")
	PeerIPv6  = netip.MustParseAddr("fd00:244::1")
	ExtraIPv4 = netip.MustParseAddr("10.245.0.2") // the pod's, on extra0
	ExtraIPv6 = netip.MustParseAddr("fd00:245::2")
	VMIPv4    = netip.MustParseAddr("10.245.0.1")
	VMIPv6    = netip.MustParseAddr("fd00:245::1")
)

var (
	anyIPv4 = netip.MustParsePrefix("0.0.0.0/0")
	anyIPv6 = netip.MustParsePrefix("::/0")
)

// Options describe a pod that is not the usual one: dual-stack, in our user namespace, its loopback
// interface up.
type Options struct {
	UserNamespace bool // the pod's network namespace belongs to another user namespace
	IPv6Disabled  bool // by sysctl, in the pod only
	LoopbackDown  bool // as in a namespace that nobody has touched yet
}

// A Pod is its own network namespace, with its neighbours. The package documentation draws it.
type Pod struct {
	*NS
	Peer *NS
	VM   *NS
}

// NewPod makes a pod and the world around it. Everything answers at once: there is nothing to wait
// for.
func NewPod(t testing.TB, o Options) *Pod {
	t.Helper()
	p := &Pod{Peer: New(t), VM: New(t)}
	if o.UserNamespace {
		p.NS = NewInUserNamespace(t)
	} else {
		p.NS = New(t)
	}
	pod, peer, vm := newSite(t, p.NS), newSite(t, p.Peer), newSite(t, p.VM)
	defer pod.Close()
	defer peer.Close()
	defer vm.Close()

	p.forward(t)
	if o.IPv6Disabled {
		p.disableIPv6(t)
		pod.noIPv6 = true
	}
	peer.up(loopback)
	vm.up(loopback)
	if !o.LoopbackDown {
		pod.up(loopback)
	}
	eth0, pod0 := connect(pod, "eth0", peer, "pod0")
	extra0, vmEth0 := connect(pod, "extra0", vm, "eth0")

	pod.address(eth0, PodIPv4, PodIPv6, innerLinkLocal)
	peer.address(pod0, PeerIPv4, PeerIPv6, outerLinkLocal)
	pod.address(extra0, ExtraIPv4, ExtraIPv6, innerLinkLocal)
	vm.address(vmEth0, VMIPv4, VMIPv6, outerLinkLocal)

	pod.route(anyIPv4, PeerIPv4)
	pod.route(anyIPv6, PeerIPv6)
	vm.route(anyIPv4, ExtraIPv4)
	vm.route(anyIPv6, ExtraIPv6)
	peer.route(subnet(VMIPv4), PodIPv4)
	peer.route(subnet(VMIPv6), PodIPv6)

	answerAll(peer)

	pod.awaitIPv6(eth0, PodIPv6, innerLinkLocal)
	peer.awaitIPv6(pod0, PeerIPv6, outerLinkLocal)
	pod.awaitIPv6(extra0, ExtraIPv6, innerLinkLocal)
	vm.awaitIPv6(vmEth0, VMIPv6, outerLinkLocal)
	return p
}

// forward lets the pod pass on what the VM sends and no rule captures.
func (p *Pod) forward(t testing.TB) {
	t.Helper()
	p.Sysctl(t, "net/ipv4/ip_forward", "1")
	p.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
}

func (p *Pod) disableIPv6(t testing.TB) {
	t.Helper()
	for _, scope := range []string{"all", "default", "lo"} {
		p.Sysctl(t, "net/ipv6/conf/"+scope+"/disable_ipv6", "1")
	}
}
