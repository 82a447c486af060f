package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftrace"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/trace"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// ways are what trace shows.
type ways []way

// way is about one pod.
type way struct {
	Pod      string    `json:"pod"`                   // namespace/name, and its kind if it is no Pod
	Outcome  string    `json:"outcome"`               // of the pod: redirected, skipped or refused
	Because  string    `json:"because,omitempty"`     // why it is skipped or refused
	Findings []finding `json:"findings,omitempty"`    // what may mislead about it
	Talks    []talk    `json:"connections,omitempty"` // those that were asked about

	table bool
}

// talk is one connection, and the proxy's onward.
type talk struct {
	About  string     `json:"about,omitempty"`  // who calls whom, with --all
	Legs   []leg      `json:"legs"`             // the sender's, and the proxy's onward
	Kernel *kernelWay `json:"kernel,omitempty"` // of the first leg's packet, if it was really sent
}

// kernelWay is how the kernel took the packet, beside how it was played.
type kernelWay struct {
	// Why the packet could not be sent. If it was, this is left out, and the other two are there.
	Unknown string `json:"unknown,omitempty"`

	Way        *nftrace.Way        `json:"way,omitempty"`        // how the kernel took it
	Comparison *nftrace.Comparison `json:"comparison,omitempty"` // that with how it was played
}

// sent reports whether a packet was really sent, be it by others. Agents of older versions say of
// one that was not more than why.
func (t talk) sent() bool {
	return t.Kernel != nil && t.Kernel.Unknown == "" && t.Kernel.Comparison != nil
}

// parts reports whether the kernel did something else than was played.
func (t talk) parts() bool { return t.sent() && !t.Kernel.Comparison.Same }

// leg is one connection.
type leg struct {
	From    string `json:"from"`              // who begins
	UID     uint32 `json:"uid"`               // the sender's; 0 where it is outside the pod
	Assumed bool   `json:"assumed,omitempty"` // no manifest says the uid
	// What is taken for the sender's gid, where rules ask for it and no manifest says it.
	AssumedGID *uint32 `json:"assumedGid,omitempty"`

	To        string `json:"to"`               // the destination that the sender chose
	Protocol  string `json:"protocol"`         // TCP or UDP
	Interface string `json:"interface"`        // by which it leaves or enters
	Enters    bool   `json:"enters,omitempty"` // it comes from outside the pod
	Rules     []met  `json:"rules,omitempty"`  // those that it met, in order
	Outcome   string `json:"outcome"`          // passes, redirected, handed over or dropped
	Port      uint16 `json:"port,omitempty"`   // of the proxy that gets it
	Peer      bool   `json:"peer,omitempty"`   // somebody outside sends it: it has no uid
	Lost      bool   `json:"lost,omitempty"`   // redirected, and yet nobody gets it

	Notes []string `json:"notes,omitempty"` // what is to be known of it beside the rules
}

// met is a rule that the packet met.
type met struct {
	Where string `json:"where"` // table, chain and number
	Then  string `json:"then"`  // what it does
	Why   string `json:"why"`   // its reason
}

func (s subject) newTalk(t namedTalk, legs []trace.Leg) talk {
	shown := talk{About: t.about}
	for i, l := range legs {
		one := newLeg(l)
		if i > 0 {
			shown.Legs = append(shown.Legs, one)
			continue
		}
		one.Assumed = !t.from.uid && !t.from.Peer
		if t.from.assumesGID() && s.asksForGroups() {
			one.AssumedGID = &l.Sender.GID
		}
		one.Notes = append(one.Notes, t.notes...)
		unheard := t.from.early && l.Fate.Port != 0
		switch {
		case l.Lost:
			one.Notes = append(one.Notes, "what goes to a link-local address cannot leave its "+
				"interface: redirected, it reaches neither the proxy nor anybody else")
		case unheard:
			one.Notes = append(one.Notes, earlyWords(t.from.Name))
		}
		shown.Legs = append(shown.Legs, one)
		if unheard {
			break
		}
	}
	return shown
}

// asksForGroups reports whether rules ask for other groups than the proxy's.
func (s subject) asksForGroups() bool {
	g := s.has().Groups
	return !g.All || len(g.Exclude) > 0
}

func newLeg(l trace.Leg) leg {
	p := l.Packet
	one := leg{From: l.Sender.Name, UID: l.Sender.UID, Peer: l.Sender.Peer,
		To: p.Destination.String(), Protocol: p.Protocol.String(),
		Interface: cmp.Or(p.In, p.Out), Enters: p.In != "", Outcome: l.Fate.Words(), Lost: l.Lost}
	if !l.Lost {
		one.Port = l.Fate.Port
	}
	for _, m := range l.Fate.Met {
		rule, _ := m.Rule.(redirect.Rule)
		one.Rules = append(one.Rules, met{
			Where: fmt.Sprintf("%s %s %d", m.Table, m.Chain, m.Index+1),
			Then:  strings.TrimPrefix(rule.Then.String(), "is "), Why: rule.Why})
	}
	return one
}

// Text writes it for people.
func (all ways) Text(p *view.Page) {
	for i, w := range all {
		if i > 0 {
			p.Blank()
		}
		if w.Outcome != isRedirected || len(all) > 1 || w.table {
			p.Heading(w.Pod + ": " + w.Outcome)
		}
		because := w.Because
		if w.Outcome == isSkipped && len(w.Talks) == 0 {
			because += ": its connections meet no rule of sidecar-cni"
		}
		p.Paragraph(2, because)
		for _, f := range w.Findings {
			f.show(p, 2)
		}
		for j, t := range w.Talks {
			if w.table {
				p.Row(2, t.About, 36, t.ending())
				if !t.same() {
					t.Kernel.text(p, 4)
				}
				continue
			}
			if j > 0 {
				p.Blank()
			}
			t.text(p)
		}
		w.sum(p)
	}
}

// amiss reports whether the pod does not start, the kernel does something else than was played, or
// nothing could be sent of what was to be.
func (w way) amiss() bool {
	n := w.counts()
	return w.Outcome == isRefused || n.same < n.sent || n.asked > 0 && n.sent == 0
}

// counts are of packets: those that were to be sent, those that were, and those of which the kernel
// did what was played.
type counts struct{ asked, sent, same int }

func (w way) counts() (n counts) {
	for _, t := range w.Talks {
		if t.Kernel != nil {
			n.asked++
		}
		if t.sent() {
			n.sent++
		}
		if t.same() {
			n.same++
		}
	}
	return n
}

// sum says of a table how much of it the kernel did as well.
func (w way) sum(p *view.Page) {
	n := w.counts()
	switch {
	case !w.table || n.asked == 0:
	case n.sent == n.asked:
		p.Paragraph(0, fmt.Sprintf("The kernel took %d of %d through the same rules.", n.same,
			n.sent))
	case n.sent == 0:
		p.Wrong(0, fmt.Sprintf("None of the %d could be sent.", n.asked))
	default:
		p.Paragraph(0, fmt.Sprintf("The kernel took %d of the %d that were sent through the same "+
			"rules; %d could not be sent.", n.same, n.sent, n.asked-n.sent))
	}
}

// same reports whether the kernel did what was played.
func (t talk) same() bool { return t.sent() && t.Kernel.Comparison.Same }

func (t talk) text(p *view.Page) {
	for i, l := range t.Legs {
		p.Heading(l.heading())
		var rows [][]string
		for _, m := range l.Rules {
			rows = append(rows, []string{m.Where, m.Then, m.Why})
		}
		p.Table(2, rows)
		p.Paragraph(2, l.end())
		for _, note := range l.Notes {
			p.Odd(2, note)
		}
		if i == 0 {
			t.Kernel.text(p, 0)
		}
	}
}

// text says whether the kernel did the same. Rules are shown where it did not, and those of others.
func (k *kernelWay) text(p *view.Page, indent int) {
	switch {
	case k == nil:
		return
	case k.Way == nil || k.Comparison == nil:
		p.Odd(indent, "The kernel could not be asked: "+k.Unknown)
		return
	case k.Comparison.Same:
		p.Paragraph(indent, k.Comparison.Says)
	default:
		p.Wrong(indent, k.Comparison.Says)
	}
	var rows [][]string
	others := false
	for _, r := range k.Way.Rules {
		others = others || !r.Ours
		where := fmt.Sprintf("%s %s %d", r.Table, r.Chain, r.Number)
		rows = append(rows, []string{cmp.Or(r.Place, where), r.Verdict,
			cmp.Or(r.Comment, r.Text)})
	}
	if k.Comparison.Same && !others {
		return
	}
	p.Paragraph(indent, "All rules that it met, and where it ended:")
	p.Table(indent+2, rows)
	p.Paragraph(indent+2, k.Way.End.String())
}

// heading says who sends what to whom.
func (l leg) heading() string {
	who := l.From
	if !l.Peer {
		who += fmt.Sprintf(" (uid %d", l.UID)
		if l.Assumed {
			who += ", assumed"
		}
		if l.AssumedGID != nil {
			who += fmt.Sprintf(", gid %d, assumed", *l.AssumedGID)
		}
		who += ")"
	}
	way := "leaves through "
	if l.Enters {
		way = "enters through "
	}
	return fmt.Sprintf("%s ──▶ %s, %s, %s%s", who, l.To, l.Protocol, way, l.Interface)
}

// end says where it ends.
func (l leg) end() string {
	switch {
	case l.Lost:
		return "──▶ nobody"
	case l.Port != 0:
		return fmt.Sprintf("──▶ proxy, port %d", l.Port)
	case l.Outcome == (packet.Fate{Outcome: packet.Dropped}).Words():
		return "──▶ dropped"
	case l.Enters || l.Interface == "lo":
		return "──▶ " + l.To + ", in the pod"
	case l.From == "proxy":
		return "──▶ " + l.Interface + " ──▶ " + l.To
	}
	return "──▶ " + l.Interface + " ──▶ " + l.To + ", past the proxy"
}

// ending is the whole of a talk in a few words.
func (t talk) ending() string {
	var parts []string
	for _, l := range t.Legs {
		parts = append(parts, l.end())
	}
	return strings.Join(parts, " ")
}
