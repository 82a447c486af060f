package redirect

import (
	"fmt"
	"net/netip"
	"strings"
)

// Packet is a packet at the moment at which it enters the pod or is sent by it. One of In and Out
// is set.
type Packet struct {
	In, Out             string         // the interface through which it comes, or would leave
	Protocol            Protocol       // TCP or UDP
	Source, Destination netip.AddrPort // both of one family

	// Of the socket that sends it; nil: no socket, or one without a process.
	Owner *Owner

	Mark, ConnMark uint32 // of the packet, and of its connection
	State          State  // zero: New
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

// Fate is what becomes of a packet, and why.
type Fate struct {
	Outcome        Outcome // Passes if no rule decides otherwise
	Port           uint16  // where it ends if Redirected or Handed
	Mark, ConnMark uint32  // at the end
	Zone           uint16  // of connection tracking

	// The interface by which it leaves: lo after a redirection, or if the mark routes it there.
	Out string
	Met []Met // the rules that it matched, in order, jumps included
}

// Met is a rule that a packet matched.
type Met struct {
	// Where the rule is; Index counts from 0.
	Table Table
	Chain string
	Index int

	Rule Rule // as the ruleset has it
}

// String says the fate and the rules that led to it, one a line.
func (f Fate) String() string {
	var b strings.Builder
	switch f.Outcome {
	case Passes:
		b.WriteString("passes")
	case Redirected:
		fmt.Fprintf(&b, "redirected to port %d", f.Port)
	case Handed:
		fmt.Fprintf(&b, "handed to the transparent listener on port %d", f.Port)
	case Dropped:
		b.WriteString("dropped")
	}
	for _, m := range f.Met {
		fmt.Fprintf(&b, "\n  %s %s %d: %s", m.Table, m.Chain, m.Index+1, m.Rule)
	}
	return b.String()
}

// Simulate plays a packet through the rules as the kernel would.
func Simulate(rs Ruleset, p Packet) Fate {
	if p.State == 0 {
		p.State = New
	}
	s := simulation{rules: rs, packet: p, fate: Fate{Outcome: Passes, Out: p.Out}}
	if p.Out != "" {
		s.send()
	} else {
		s.enter(true)
	}
	s.fate.Mark, s.fate.ConnMark = s.packet.Mark, s.packet.ConnMark
	return s.fate
}

type simulation struct {
	rules  Ruleset
	packet Packet
	fate   Fate
}

// send plays the way out. What stays within the pod then enters it through lo.
func (s *simulation) send() {
	s.pass(Raw, Output)
	mark := s.packet.Mark
	s.pass(Mangle, Output)
	if s.packet.Mark != mark && s.routedHome() {
		s.fate.Out = string(lo) // nat still sees the interface of the first routing decision
	}
	s.nat(Output)
	if s.fate.Outcome == Redirected {
		s.fate.Out = string(lo)
		s.packet.Destination = netip.AddrPortFrom(loopbackOf(s.packet.Destination.Addr()),
			s.fate.Port)
	}
	if s.fate.Out == string(lo) && s.fate.Outcome != Dropped {
		s.packet.In, s.packet.Out, s.packet.Owner = string(lo), "", nil
		s.enter(false)
	}
}

// enter plays the way in. A connection that began within the pod has had its turn at nat on the way
// out.
func (s *simulation) enter(nat bool) {
	s.pass(Raw, Prerouting)
	s.pass(Mangle, Prerouting)
	if nat && s.fate.Outcome == Passes {
		s.nat(Prerouting)
	}
}

// nat is asked about the first packet of a connection; the others follow it.
func (s *simulation) nat(h Hook) {
	if s.packet.State == New || s.packet.State == Related {
		s.pass(NAT, h)
	}
}

func (s *simulation) routedHome() bool {
	for _, r := range s.rules.Routes {
		if r.Mark == s.packet.Mark {
			return true
		}
	}
	return false
}

func loopbackOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// pass plays one table at one hook.
func (s *simulation) pass(t Table, h Hook) {
	if c, ok := s.rules.Chain(t, h.String()); ok && s.fate.Outcome != Dropped {
		s.chain(c)
	}
}

// chain tries the rules from the top; done says that the packet's way through the table is at its
// end.
func (s *simulation) chain(c Chain) (done bool) {
	for i, r := range c.Rules {
		if !r.If.holds(s.packet) {
			continue
		}
		s.fate.Met = append(s.fate.Met, Met{c.Table, c.Name, i, r})
		switch r.Then.Verb {
		case Return:
			return false
		case Jump:
			to, _ := s.rules.Chain(c.Table, r.Then.Chain)
			if s.chain(to) {
				return true
			}
		default:
			if s.act(r.Then) {
				return true
			}
		}
	}
	return false
}

func (s *simulation) act(a Action) (done bool) {
	switch a.Verb {
	case Drop:
		s.fate.Outcome = Dropped
	case Redirect:
		s.fate.Outcome, s.fate.Port = Redirected, a.Port
	case TProxy:
		s.fate.Outcome, s.fate.Port = Handed, a.Port
		s.packet.Mark = a.Mark
	case SetMark:
		s.packet.Mark = a.Mark
		return false
	case SaveMark:
		s.packet.ConnMark = s.packet.Mark
		return false
	case RestoreMark:
		s.packet.Mark = s.packet.ConnMark
		return false
	case SetZone:
		if s.fate.Zone == 0 {
			s.fate.Zone = a.Zone
		}
		return false
	case Return, Accept, Jump:
	}
	return true
}

// holds reports whether a packet meets every condition.
func (m Match) holds(p Packet) bool {
	if m.In != "" && !m.In.Holds(p.In) || m.Out != "" && !m.Out.Holds(p.Out) {
		return false
	}
	if m.Protocol != AnyProtocol && m.Protocol != p.Protocol {
		return false
	}
	return m.holdsAddresses(p) && m.holdsOwner(p.Owner) && m.holdsMarks(p)
}

func (m Match) holdsAddresses(p Packet) bool {
	of, possible := m.For(FamilyOf(p.Destination.Addr()))
	return possible &&
		(of.Source.zero() || of.Source.holds(p.Source.Addr())) &&
		(of.Destination.zero() || of.Destination.holds(p.Destination.Addr())) &&
		(m.SourcePort.zero() || m.SourcePort.holds(p.Source.Port())) &&
		(m.DestinationPort.zero() || m.DestinationPort.holds(p.Destination.Port()))
}

func (m Match) holdsOwner(o *Owner) bool {
	if len(m.UID) == 0 && len(m.GID) == 0 {
		return true
	}
	return o != nil && (len(m.UID) == 0 || m.UID.Holds(o.UID)) &&
		(len(m.GID) == 0 || m.GID.Holds(o.GID))
}

func (m Match) holdsMarks(p Packet) bool {
	return (m.Mark.Value == 0 || m.Mark.holds(p.Mark)) &&
		(m.ConnMark.Value == 0 || m.ConnMark.holds(p.ConnMark)) &&
		(m.State == 0 || m.State&p.State != 0)
}
