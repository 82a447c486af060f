// Package packet has packets as values: one of them, what becomes of it, and classes of packets,
// which are all that some rules cannot tell apart.
//
//	for _, class := range packet.Everything() {
//		in, out := class.Split(packet.Question{Field: packet.Protocol, Set: packet.Numbers(redirect.TCP)})
//	}
//
// Whoever evaluates rules for a class either knows its fate or asks a Question: a field of the
// packets, and the values on which the next rule depends. The class is split there, and each part
// is tried anew. So classes become as small as the rules make them, and no smaller.
package packet

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Packet is a packet at the moment at which it enters the pod or is sent by it. One of In and Out
// is set.
type Packet struct {
	In, Out             string            // the interface through which it comes, or would leave
	Protocol            redirect.Protocol // TCP, UDP or any other
	Source, Destination netip.AddrPort    // both of one family; ports with TCP and UDP only

	// Of the socket that sends it; nil: no socket, or one without a process.
	Owner *Owner

	Mark, ConnMark uint32         // of the packet, and of its connection
	State          redirect.State // one; zero: New
}

// Bound reports whether the packet stays on the interface by which it leaves, whatever becomes of
// its destination: the kernel binds a socket of TCP to the interface of a link-local address that
// it connects to. Such a connection can be redirected, and yet it reaches nobody.
func (p Packet) Bound() bool {
	return p.Out != "" && p.Out != "lo" && p.Protocol == redirect.TCP &&
		p.Destination.Addr().Is6() && p.Destination.Addr().IsLinkLocalUnicast()
}

// Owner is who made a socket.
type Owner struct {
	UID, GID uint32 // as the kernel keeps them with the socket
}

// Outcome is what becomes of a packet.
type Outcome uint8

// The outcomes.
const (
	Passes     Outcome = iota + 1 // to where it was going
	Redirected                    // to Fate.Port of this pod, the destination being rewritten
	Handed                        // to the transparent socket on Fate.Port, else dropped
	Dropped
)

// Fate is what becomes of a packet, or of each packet of a class, and why.
type Fate struct {
	Outcome        Outcome // Passes if no rule decides otherwise
	Port           uint16  // where it ends if Redirected or Handed
	Mark, ConnMark Mark    // at the end
	Zone           uint16  // of connection tracking

	// Of packets that are sent: they leave through lo, since they are for the pod, were
	// redirected, or are routed there by their mark.
	Local bool

	Met []Met // the rules that it matched, in order, jumps included
}

// Mark is the mark of a packet or of its connection at the end of its way.
type Mark struct {
	// NoField, or the field of the packet at the start that it has its value from. That is so for
	// classes only: of a single packet the value is known.
	From Field

	Value uint32 // counts with NoField
}

// In returns the mark as it is for the packets of a class: the number, where they have but one.
func (m Mark) In(c Class) Mark {
	if have := c.Of(m.From); m.From != NoField && have.Single() {
		return Mark{Value: have.Spans()[0].First.Number()}
	}
	return m
}

func (m Mark) String() string {
	switch m.From {
	case PacketMark:
		return "the packet's own mark"
	case ConnMark:
		return "its connection's own mark"
	default:
		return fmt.Sprintf("mark %d", m.Value)
	}
}

// Met is a rule that a packet matched.
type Met struct {
	// Where the rule is; Index counts from 0.
	Table redirect.Table
	Chain string
	Index int

	Rule fmt.Stringer // a redirect.Rule, or a line of a listing
}

func (m Met) String() string {
	return fmt.Sprintf("%s %s %d: %s", m.Table, m.Chain, m.Index+1, m.Rule)
}

// String says the fate and the rules that led to it, one a line.
func (f Fate) String() string {
	var b strings.Builder
	b.WriteString(f.Words())
	for _, m := range f.Met {
		fmt.Fprintf(&b, "\n  %s", m)
	}
	return b.String()
}

// Words says the outcome.
func (f Fate) Words() string {
	switch f.Outcome {
	case Passes:
		return "passes"
	case Redirected:
		return fmt.Sprintf("redirected to port %d", f.Port)
	case Handed:
		return fmt.Sprintf("handed to the transparent listener on port %d", f.Port)
	case Dropped:
		return "dropped"
	}
	return ""
}
