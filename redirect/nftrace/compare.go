package nftrace

import (
	"cmp"
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// Comparison is of the kernel's way and the simulated one.
type Comparison struct {
	Same bool   `json:"same"` // they met the same rules and ended alike
	Says string `json:"says"` // for people: that they did, or where they part first
}

// Compare compares the kernel's way with what was simulated for the packet. Rules of others, which
// are not simulated, count only where they end the way.
func (w Way) Compare(fate packet.Fate) Comparison {
	var ours []Rule
	for _, r := range w.Rules {
		if r.Ours {
			ours = append(ours, r)
		}
	}
	for i := range max(len(ours), len(fate.Met)) {
		if i < len(ours) && i < len(fate.Met) && ours[i].Place == Place(fate.Met[i]) {
			continue
		}
		kernel, simulated := "no more rule", "no more"
		if i < len(ours) {
			kernel = ours[i].brief()
		}
		if i < len(fate.Met) {
			simulated = briefly(fate.Met[i])
		}
		return Comparison{Says: fmt.Sprintf("The kernel parts from the simulation at rule %d: it "+
			"met %s, simulated is %s.%s", i+1, kernel, simulated, w.lossWords())}
	}
	if !w.endsAs(fate) {
		return Comparison{Says: fmt.Sprintf("The kernel took it through %s and then parts from "+
			"the simulation: %s, simulated is: %s.%s", count(len(ours)), w.endWords(fate),
			fate.Words(), w.lossWords())}
	}
	return Comparison{Same: true,
		Says: fmt.Sprintf("The kernel took it through %s.", count(len(ours)))}
}

func count(n int) string {
	switch n {
	case 0:
		return "no rule either"
	case 1:
		return "the same rule"
	}
	return fmt.Sprintf("the same %d rules", n)
}

func (r Rule) brief() string {
	if r.Place != "" {
		return fmt.Sprintf("%s (%s)", r.Place, r.Comment)
	}
	return fmt.Sprintf("rule %d of chain %s in table %s (%s)", r.Number, r.Chain, r.Table,
		cmp.Or(r.Comment, r.Text))
}

func briefly(m packet.Met) string {
	if r, ok := m.Rule.(redirect.Rule); ok {
		return fmt.Sprintf("%s (%s)", Place(m), r.Why)
	}
	return Place(m)
}

// lossWords warn of a way that may have holes.
func (w Way) lossWords() string {
	if w.Lost == 0 {
		return ""
	}
	return fmt.Sprintf(" %d reports of the kernel were lost: ask again.", w.Lost)
}

// endsAs reports whether the way ends as simulated.
func (w Way) endsAs(fate packet.Fate) bool {
	switch fate.Outcome {
	case packet.Dropped:
		return w.End.Kind == Dropped
	case packet.Redirected:
		if w.Packet().Bound() && w.End.Kind == Gone { // no route leads by its interface to the pod
			return true
		}
		stays := w.End.Kind == Stays && !w.Packet().Bound()
		leaves := w.End.Kind == Leaves && w.Packet().Bound()
		return (stays || leaves) && w.End.To.Port() == fate.Port
	case packet.Handed:
		return w.End.Kind == Stays && w.End.To == w.Destination
	case packet.Passes:
		if w.In != "" { // the rules do not know which addresses are the pod's
			return w.passes(Stays) || w.passes(Leaves)
		}
		if fate.Local {
			return w.passes(Stays)
		}
		return w.passes(Leaves)
	}
	return false
}

func (w Way) passes(kind string) bool { return w.End.Kind == kind && w.End.To == w.Destination }

// endWords say the kernel's end. What TPROXY hands over is dropped where nobody listens, and what
// is sent by a socket that is bound to an interface leaves by that, redirected or not.
func (w Way) endWords(fate packet.Fate) string {
	if fate.Outcome == packet.Redirected && w.End.Kind == Leaves && w.End.To.Port() == fate.Port {
		return w.End.String() + ", since its socket is bound to that interface"
	}
	if n := len(w.Rules); fate.Outcome == packet.Handed && w.End.Kind == Dropped && n > 0 &&
		w.Rules[n-1].Ours {
		return fmt.Sprintf("it dropped the packet, since nobody listens on port %d with a "+
			"transparent socket", fate.Port)
	}
	return w.End.String()
}
