// Package trace follows a connection through the rules of a pod: the packet that begins it, the
// rules that it meets, and where the proxy got it, the connection that the proxy opens in its turn.
//
//	legs, err := trace.Follow(pod, trace.Talk{From: trace.Sender{Name: "app", UID: 1000, GID: 1000},
//		To: netip.MustParseAddrPort("10.10.0.43:5432")})
//	for _, leg := range legs {
//		fmt.Println(leg.Packet, leg.Fate)
//	}
//
// Be aware:
//   - It knows rules, not who listens: a connection that is redirected to a port on which nobody
//     listens is refused.
//   - Where the proxy connects to is the proxy's own business. What is followed is a proxy that
//     passes a connection on to where it was going, as Istio's does without a route for it.
package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
)

// Pod is the pod whose rules are followed.
type Pod struct {
	Policy redirect.Policy // from which its rules are compiled
	Addrs  []netip.Addr    // its own; of each family the first is what it sends from
}

// Sender is who begins a connection.
type Sender struct {
	Name string // for people: app, proxy, peer, or a container's name
	Peer bool   // from outside of the pod; then there is no UID and no GID

	// Of the process.
	UID, GID uint32
}

// Talk is what somebody says to somebody.
type Talk struct {
	From      Sender         // who begins
	To        netip.AddrPort // the pod's own address: Self
	UDP       bool           // else TCP
	Interface string         // by which it enters or leaves, unless it stays in the pod; "" is eth0
}

// Leg is one connection of those that a talk becomes.
type Leg struct {
	Sender Sender        // who begins it
	Packet packet.Packet // with which it begins
	Fate   packet.Fate   // of that packet
	Stays  bool          // within the pod
	Lost   bool          // redirected, and yet nobody gets it, see packet.Packet.Bound
}

const (
	usualInterface = "eth0"
	// senderPort is any port from which nobody answers.
	senderPort = 40000
)

// The peers, in the networks that documentation has for itself (RFC 5737, RFC 3849).
var (
	peer4 = netip.MustParseAddr("192.0.2.1")
	peer6 = netip.MustParseAddr("2001:db8::1")
)

// most is how many connections a talk becomes: out by the proxy, and in again where the pod calls
// itself. What the proxy sends is never captured as outbound traffic again, which is a law of
// package redirect.
const most = 3

// Follow plays the first packet of a talk, and of each connection that the proxy opens for it in
// turn.
func Follow(pod Pod, talk Talk) ([]Leg, error) {
	first, err := pod.packet(talk)
	if err != nil {
		return nil, err
	}
	return FollowPacket(pod, talk.From, first), nil
}

// FollowPacket does the same from a packet on that somebody really sends.
func FollowPacket(pod Pod, from Sender, first packet.Packet) []Leg {
	rules := redirect.Compile(pod.Policy)
	legs := []Leg{leg(rules, from, first)}
	for len(legs) < most {
		next, goes := pod.onward(legs[len(legs)-1])
		if !goes {
			break
		}
		legs = append(legs, leg(rules, pod.proxy(), next))
	}
	return legs
}

func leg(rules redirect.Ruleset, from Sender, p packet.Packet) Leg {
	fate := simulate.Packet(rules, p)
	lost := fate.Outcome == packet.Redirected && p.Bound()
	return Leg{Sender: from, Packet: p, Fate: fate, Lost: lost,
		Stays: !lost && (p.Out == lo || fate.Local)}
}

const lo = "lo"

func (pod Pod) proxy() Sender {
	return Sender{Name: "proxy", UID: pod.Policy.Proxy.UIDs[0], GID: pod.Policy.Proxy.GIDs[0]}
}

// packet is the one that begins a talk.
func (pod Pod) packet(talk Talk) (packet.Packet, error) {
	p := packet.Packet{Protocol: redirect.TCP, Destination: talk.To}
	if talk.UDP {
		p.Protocol = redirect.UDP
	}
	through := talk.Interface
	if through == "" {
		through = usualInterface
	}
	to := talk.To.Addr()
	own, known := pod.own(to.Is4())
	switch {
	case !known:
		return p, fmt.Errorf("the pod has no address of the family of %s", to)
	case talk.From.Peer && to.IsLoopback():
		return p, errors.New("a peer cannot reach loopback of the pod")
	case talk.From.Peer && through == lo:
		return p, errors.New("a peer does not enter through lo")
	case !talk.From.Peer && through == lo && !pod.reachesItself(to):
		return p, errors.New("through lo goes only what is for the pod itself")
	case !talk.From.Peer && talk.Interface != "" && through != lo && pod.reachesItself(to):
		return p, errors.New("what is for the pod itself goes through lo: name no other interface")
	case talk.From.Peer:
		p.In, p.Source = through, netip.AddrPortFrom(peerOf(to), senderPort)
		return p, nil
	}
	p.Owner = &packet.Owner{UID: talk.From.UID, GID: talk.From.GID}
	p.Out, p.Source = through, netip.AddrPortFrom(own, senderPort)
	switch {
	case to.IsLoopback(): // the kernel takes the address that is called
		p.Out, p.Source = lo, netip.AddrPortFrom(loopbackOf(to), senderPort)
	case slices.Contains(pod.Addrs, to):
		p.Out, p.Source = lo, netip.AddrPortFrom(to, senderPort)
	}
	return p, nil
}

// reachesItself reports whether what the pod sends to an address stays in it.
func (pod Pod) reachesItself(to netip.Addr) bool {
	return to.IsLoopback() || slices.Contains(pod.Addrs, to)
}

// own is the address that the pod sends from.
func (pod Pod) own(ipv4 bool) (netip.Addr, bool) {
	i := slices.IndexFunc(pod.Addrs, func(a netip.Addr) bool { return a.Is4() == ipv4 })
	if i < 0 {
		return netip.Addr{}, false
	}
	return pod.Addrs[i], true
}

func peerOf(to netip.Addr) netip.Addr {
	if to.Is4() {
		return peer4
	}
	return peer6
}

func loopbackOf(to netip.Addr) netip.Addr {
	if to.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// onward is the packet with which the proxy goes on, if it got the connection: to where it was
// going, and inward from the address by which the rules know such calls.
func (pod Pod) onward(from Leg) (packet.Packet, bool) {
	captured := from.Fate.Outcome == packet.Redirected || from.Fate.Outcome == packet.Handed
	if !captured || from.Lost || from.Fate.Port == pod.Policy.Ports.DNS {
		return packet.Packet{}, false // the resolver's questions are its own
	}
	proxy := pod.proxy()
	p := packet.Packet{Protocol: from.Packet.Protocol, Destination: from.Packet.Destination,
		Owner: &packet.Owner{UID: proxy.UID, GID: proxy.GID}}
	to := p.Destination.Addr()
	if from.Fate.Port == pod.Policy.Ports.Inbound {
		p.Out, p.Source = lo, netip.AddrPortFrom(pod.passthrough(to), senderPort)
		return p, true
	}
	p.Out = from.Packet.Out
	if p.Out == "" { // it entered through an interface of a virtual machine
		p.Out = usualInterface
	}
	own, _ := pod.own(to.Is4()) // there is one: the first packet had it
	p.Source = netip.AddrPortFrom(own, senderPort)
	if p.Out == lo {
		p.Source = netip.AddrPortFrom(from.Packet.Source.Addr(), senderPort)
	}
	return p, true
}

// passthrough is the address from which the proxy calls the app.
func (pod Pod) passthrough(to netip.Addr) netip.Addr {
	for _, a := range pod.Policy.Passthrough {
		if a.Is4() == to.Is4() {
			return a
		}
	}
	return to
}
