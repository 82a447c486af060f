// Package nftrace asks the kernel for the way that a packet takes through the rules of a pod:
// one that it sends itself as a user of the pod or as a peer, or those that others send.
//
//	way, err := nftrace.Send(ctx, namespace, nftrace.Request{Packet: p, Rules: rules})
//	for _, rule := range way.Rules {
//		fmt.Println(rule.Where, rule.Comment)
//	}
//	fmt.Println(way.End)
//
// What is sent is the first packet of a connection. It is dropped behind the rules, before it
// leaves the pod or reaches who listens, and so nobody hears of it.
//
// Be aware:
//   - The kernel reports the rules of nftables, among them those of iptables-nft. Legacy iptables
//     reports nothing: a pod that has its rules is refused.
//   - The rules that make it report stand in a table of their own, which the kernel removes when
//     its socket is closed, by whatever end of the program. That takes Linux 5.12.
//   - What leaves the pod is dropped ahead of source NAT, and what stays ahead of INPUT's: rules
//     there are not reported. What goes over lo has a connection in conntrack for a moment.
//   - A peer's packet is a frame on the cable to the pod, which takes CAP_NET_RAW on the node.
//     Without, it is a packet of the node itself, which the node's rules may change or drop.
//   - In a namespace in which others trace packets as well, their reports are told apart by the
//     packet's source.
package nftrace

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// Request is a packet that is to be sent.
type Request struct {
	// Packet has an owner, whose ids are those of the pod, or enters the pod. The port that it
	// comes from is chosen by Send, and where it has no source, the kernel chooses that. It leaves
	// as the pod's routes say, which count a link-local destination to the interface Out.
	Packet packet.Packet

	// Nodes are paths of network namespaces in which the other ends of the pod's interfaces may be,
	// such as /proc/1/ns/net, beside the one that this program runs in. A peer's packet is sent
	// from there.
	Nodes []string

	// Rules are those that the pod should have: by them the kernel's are known.
	Rules redirect.Ruleset
}

// Filter says which packets of others are followed: of each connection the first.
type Filter struct {
	Protocol redirect.Protocol // TCP or UDP
	To       netip.AddrPort    // where they go

	// In is the interface by which they enter. Without it they are those that the pod sends.
	In string

	// Out is the interface by which they leave; "": any.
	Out string

	Of     []Owner // whose packets are followed; empty: everybody's
	Except []Owner // whose are not, whatever Of says

	Rules redirect.Ruleset // as in a Request
}

// Owner is all owners of packets with some ids, which are those of the pod.
type Owner struct {
	UID, GID *uint32 // nil: any
}

// Way is how the kernel took a packet.
type Way struct {
	Protocol    string         `json:"protocol"`      // TCP or UDP
	Source      netip.AddrPort `json:"source"`        // at the start
	Destination netip.AddrPort `json:"destination"`   // at the start
	In          string         `json:"in,omitempty"`  // the interface through which it entered
	Out         string         `json:"out,omitempty"` // or by which it would have left
	Rules       []Rule         `json:"rules"`         // that it met, in order
	End         End            `json:"end"`           // of its way

	// How many reports found no room: with any, some rules may be missing.
	Lost uint64 `json:"lost,omitempty"`

	protocol redirect.Protocol
	known    bool // conntrack had its connection before
}

// Rule is a rule of nftables that a packet met.
type Rule struct {
	Table   string `json:"table"`             // with its family, as nft names it
	Chain   string `json:"chain"`             // in that table
	Handle  uint64 `json:"handle"`            // in that table
	Number  int    `json:"number,omitempty"`  // in its chain, from 1; 0: it is gone by now
	Verdict string `json:"verdict"`           // what the rule said, in nft's words
	Comment string `json:"comment,omitempty"` // the reason, if it is ours
	Text    string `json:"text,omitempty"`    // what it does, in nft's words
	Ours    bool   `json:"ours,omitempty"`    // it was written by this project

	// Which rule of the pod's own rules it is, such as "nat ISTIO_OUTPUT 1", if it is one of them.
	Place string `json:"place,omitempty"`
}

// The ends of a way.
const (
	Stays   = "stays"   // in the pod: at To
	Leaves  = "leaves"  // through Interface
	Dropped = "dropped" // by the last rule, or by the policy of Chain
	Gone    = "gone"    // the kernel reported no more of it: routing dropped it, or a filter beside
)

// End is where a way ends.
type End struct {
	Kind      string         `json:"kind"`                // stays, leaves, dropped or gone
	To        netip.AddrPort `json:"to,omitzero"`         // its destination by then
	Interface string         `json:"interface,omitempty"` // by which it leaves
	Chain     string         `json:"chain,omitempty"`     // whose policy dropped it
}

// String says the end in words.
func (e End) String() string {
	switch e.Kind {
	case Stays:
		return fmt.Sprintf("it stays in the pod, at %s", e.To)
	case Leaves:
		return fmt.Sprintf("it leaves through %s to %s", e.Interface, e.To)
	case Dropped:
		if e.Chain != "" {
			return "the policy of " + e.Chain + " dropped it"
		}
		return "the last rule dropped it"
	}
	return "the kernel dropped it beside all rules of nftables: look at the pod's routes, at the " +
		"reverse path filter, and at rules of legacy iptables"
}

// Packet is the packet as it began.
func (w Way) Packet() packet.Packet {
	return packet.Packet{In: w.In, Out: w.Out, Protocol: w.protocol, Source: w.Source,
		Destination: w.Destination}
}

// The errors of a pod that cannot be traced.
var (
	ErrLegacy = errors.New("its rules are those of legacy iptables, which reports no packets: " +
		"look at the rules and their counters")
	ErrOldKernel = errors.New("this kernel cannot remove the tracing rules by itself: that takes " +
		"Linux 5.12")
	ErrNoNFTables = errors.New("this kernel has no nftables, whose rules alone report packets: " +
		"load the module nf_tables")
	ErrNoUplink = errors.New("the interface has no end on the node")
)

// place names a rule of a ruleset, as packet.Met does.
func place(t redirect.Table, chain string, index int) string {
	return fmt.Sprintf("%s %s %d", t, chain, index+1)
}

// Place names the rule that a simulated packet met.
func Place(m packet.Met) string { return place(m.Table, m.Chain, m.Index) }
