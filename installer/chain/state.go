package chain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

// State is what the runtime makes of a directory.
type State struct {
	Effective bool   // our entry is whole, once, in the right place, in what the runtime loads
	Reason    Reason // one of Reasons
	Way       Way    // in which our entry is there, if it is
	Primary   string // the file that the runtime loads
	Network   string // the name of the network in Primary; empty if unknown
	Text      string // a sentence with the file and the remedy
}

// Reason is one of a closed set of words, for the label of a metric.
type Reason string

// The reasons. After Absent, Outdated, Misplaced, Repeated and Stale the next pass mends it; the
// others wait for somebody.
const (
	Effective  Reason = "effective"
	Absent     Reason = "absent"     // our entry is not in the chain
	Outdated   Reason = "outdated"   // it is another one than the spec's
	Misplaced  Reason = "misplaced"  // it is not the last of the list
	Repeated   Reason = "repeated"   // it is there more than once
	Stale      Reason = "stale"      // our copy or our wrapping is not of what is there now
	NoNetwork  Reason = "no_network" // there is no file to load
	Unreadable Reason = "unreadable" // a file could not be read
	Broken     Reason = "broken"     // a file does not parse, or not as a network
	Empty      Reason = "empty"      // a network without another plugin
	// the network's CNI version knows no chains, or is too new for us
	Version   Reason = "version"
	OtherMesh Reason = "other_mesh"  // another mesh's redirect plugin is in the chain
	Taken     Reason = "taken"       // a name that is needed is somebody else's
	Shadowed  Reason = "shadowed"    // another file would be loaded in spite of ours
	NoDropIns Reason = "no_drop_ins" // the way is not open with this runtime or network
	Multus    Reason = "multus"      // the way is not open with Multus
	NoMultus  Reason = "no_multus"   // the way needs Multus
	// the way is not open where the runtime loads several networks
	ManyNetworks Reason = "many_networks"
	BadEntry     Reason = "bad_entry" // the spec's entry is none
)

// Reasons lists them all.
var Reasons = []Reason{
	Effective, Absent, Outdated, Misplaced, Repeated, Stale, NoNetwork, Unreadable, Broken, Empty,
	Version, OtherMesh, Taken,
	Shadowed, NoDropIns, Multus, NoMultus, ManyNetworks, BadEntry,
}

// Refusal is the error of a directory in which nothing can be done as it is.
type Refusal struct {
	Reason Reason // one of Reasons, not Effective
	File   string // empty if it is about none
	Text   string // a sentence with the file and the remedy
}

func (r *Refusal) Error() string { return r.Text }

func refuse(reason Reason, file, format string, args ...any) error {
	return &Refusal{Reason: reason, File: file, Text: fmt.Sprintf(format, args...)}
}

// Evaluate reports whether a directory is as the spec says, and if not, why.
func Evaluate(d Dir, w Spec) State {
	w, err := w.normal()
	if err != nil {
		return State{}.refused(err)
	}
	t := d.tree()
	s := t.look(w)
	p, err := install(t, w)
	switch {
	case reason(err) == OtherMesh:
		// Also where the runtime loads a copy of ours from before.
		return s.refused(err)
	case err == nil && p.Way == Standalone:
		return State{Effective: true, Reason: Effective, Way: p.Way, Primary: s.Primary,
			Network: s.Network,
			Text: fmt.Sprintf("%s begins with Multus: pods are redirected that ask for a "+
				"NetworkAttachmentDefinition %q", s.Primary, w.Standalone)}
	case s.Effective && err == nil && p.renews(s.Primary):
		s.Effective, s.Reason = false, Stale
		s.Text = fmt.Sprintf("%s is not what the network plugin has written since: the next pass "+
			"mends it", s.Primary)
	case !s.Effective && err != nil:
		return s.refused(err)
	}
	return s
}

// renews reports whether a plan is about a list of ours in which our entry is whole, but the
// network is not.
func (p Plan) renews(list string) bool {
	return p.Primary == "" || slices.ContainsFunc(p.Steps, func(s Step) bool {
		return s.Op == Write && s.Name == list && File{Name: s.Name, Data: s.Data}.carriesUs()
	})
}

func (s State) refused(err error) State {
	s.Effective, s.Reason, s.Text = false, reason(err), err.Error()
	if r, ok := errors.AsType[*Refusal](err); ok {
		s.Primary = cmp.Or(s.Primary, r.File)
	}
	return s
}

func reason(err error) Reason {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Reason
	}
	return ""
}

// look returns what the runtime makes of a directory, whatever a pass would do.
func (t tree) look(w Spec) State {
	f, err := t.first(w)
	s := State{Primary: f.Name}
	if err != nil {
		return s.refused(err)
	}
	n, err := t.load(f.Name, w.LoadsDropIns)
	if err != nil {
		return s.refused(err)
	}
	s.Network = n.name
	if err := n.mesh(); err != nil {
		return s.refused(err)
	}
	return n.find(s, w)
}

// find looks for our entry in a network.
func (n *network) find(s State, w Spec) State {
	var ours []entry
	for _, e := range n.chain() {
		if e.ours() {
			ours = append(ours, e)
		}
	}
	report := func(reason Reason, format string, args ...any) State {
		s.Reason, s.Text = reason, fmt.Sprintf(format, args...)
		return s
	}
	if len(ours) == 0 {
		return report(Absent, "%s has no entry of type %s: the next pass puts it there", s.Primary,
			names.Plugin)
	}
	e := ours[0]
	s.Way = n.way(e)
	switch {
	case len(ours) == len(n.chain()):
		return s.refused(n.chainable())
	case len(ours) > 1:
		return report(Repeated, "%s has our entry %d times: the next pass leaves one", s.Primary,
			len(ours))
	case !same(e.data, w.Entry):
		return report(Outdated, "%s has another entry than configured: the next pass replaces it",
			e.file)
	case s.Way != DropIn && !n.inline[len(n.inline)-1].ours():
		return report(Misplaced,
			"%s has our entry before others: the next pass moves it to the end", e.file)
	}
	s.Effective = true
	return report(Effective, "%s runs our entry from %s", s.Primary, e.file)
}

func (n *network) way(e entry) Way {
	switch e.file {
	case ownedName:
		return Owned
	case n.file.Name:
		return Inline
	}
	return DropIn
}
