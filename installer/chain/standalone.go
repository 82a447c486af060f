package chain

import (
	"bytes"
	"fmt"

	"github.com/containernetworking/cni/pkg/utils"
)

// StandaloneName is our file in Multus' own conf directory.
const StandaloneName = "sidecar-cni.conf"

// InstallStandalone plans a network of our own in Multus' conf directory, for a
// NetworkAttachmentDefinition of that name without a configuration of its own. Multus runs it for
// the pods that ask for it. The runtime's directory is left to Install, which takes out of it what
// was there of ours: afterwards, when the way changes to this one, and before this network is taken
// away, when it changes from it.
func InstallStandalone(d Dir, w Spec) (Plan, error) {
	w, err := w.normal()
	if err != nil {
		return Plan{}, err
	}
	if err := utils.ValidateNetworkName(w.Standalone); err != nil {
		return Plan{}, refuse(BadEntry, "", "NetworkAttachmentDefinition %q: %s", w.Standalone,
			err.Msg)
	}
	t := d.tree()
	for _, name := range t.confs() {
		n, err := t[name].parse()
		if name != StandaloneName && err == nil && n.name == w.Standalone {
			return Plan{}, refuse(Taken, name, "%s is called %q too, and Multus might take that: "+
				"remove it, or configure another name", name, n.name)
		}
	}
	goal := t.clone()
	if f := t[StandaloneName]; f.Err != nil || !same(f.Data, w.standalone()) {
		data, err := pretty(w.standalone())
		if err != nil {
			return Plan{}, refuse(BadEntry, "", "our entry: %v", err)
		}
		goal[StandaloneName] = File{Name: StandaloneName, Data: data, Mode: 0o644}
	}
	p := Plan{Way: Standalone, Primary: StandaloneName, Network: w.Standalone,
		Steps: difference(t, goal)}
	for i := range p.Steps {
		p.Steps[i].Why = fmt.Sprintf("the configuration of the NetworkAttachmentDefinition %q",
			w.Standalone)
	}
	return p, p.check()
}

// standalone is our entry with a name and a version of its own. An entry that has them is another
// plugin's way of thinking.
func (w Spec) standalone() []byte {
	return fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":%q,%s`, w.Standalone,
		bytes.TrimPrefix(w.Entry, []byte("{")))
}

// UninstallStandalone plans what takes us out of Multus' conf directory.
func UninstallStandalone(d Dir) Plan {
	t := d.tree()
	goal := t.clone()
	delete(goal, StandaloneName)
	return Plan{Way: Standalone, Steps: difference(t, goal)}
}

// EvaluateStandalone reports whether Multus' conf directory is as the spec says.
func EvaluateStandalone(d Dir, w Spec) State {
	s := State{Way: Standalone, Primary: StandaloneName}
	p, err := InstallStandalone(d, w)
	if err != nil {
		return s.refused(err)
	}
	s.Network = p.Network
	f := d.tree()[StandaloneName]
	switch {
	case len(p.Steps) == 0:
		s.Effective, s.Reason = true, Effective
		s.Text = fmt.Sprintf("%s serves the NetworkAttachmentDefinition %q", f.Name, p.Network)
	case f.Name == "":
		s.Reason, s.Text = Absent,
			fmt.Sprintf("%s is not there: the next pass writes it", StandaloneName)
	default:
		s.Reason, s.Text = Outdated, fmt.Sprintf("%s is another one than configured: the next "+
			"pass replaces it", f.Name)
	}
	return s
}
