package chain

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

// Install returns the steps that put the entry into the chain; none if it is there already. An
// error, a *Refusal, says why that cannot be; then nothing is changed, and what there is of ours
// stays.
func Install(d Dir, w Spec) (Plan, error) {
	w, err := w.normal()
	if err != nil {
		return Plan{}, err
	}
	return install(d.tree(), w)
}

func install(t tree, w Spec) (Plan, error) {
	if _, err := t.joined(w); reason(err) == OtherMesh {
		return Plan{}, err
	}
	base := t.without()
	n, err := base.joined(w)
	if reason(err) == NoNetwork {
		// The network plugin took its network away: what we made of it must not keep the node
		// looking well.
		if left := difference(t, base); len(left) > 0 {
			return Plan{Steps: left}, nil
		}
	}
	if err != nil {
		return Plan{}, err
	}
	way, err := w.choose(n)
	if err != nil {
		return Plan{}, err
	}
	goal, err := base.with(t, n, claim{way, w.Entry})
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Way: way, Primary: n.file.Name, Network: n.name, Steps: difference(t, goal)}
	if err := p.check(); err != nil {
		return Plan{}, err
	}
	if s := goal.look(w); way != Standalone && !s.Effective {
		return Plan{}, refuse(Shadowed, s.Primary, "%s would be loaded in spite of our changes "+
			"to %s: remove it", s.Primary, p.Primary)
	}
	return p, nil
}

// joined is the network that the runtime loads, if there is no other mesh in it.
func (t tree) joined(w Spec) (*network, error) {
	n, err := t.loaded(w)
	if err != nil {
		return nil, err
	}
	return n, n.mesh()
}

func (t tree) loaded(w Spec) (*network, error) {
	f, err := t.first(w)
	if err != nil {
		return nil, err
	}
	return t.load(f.Name, w.LoadsDropIns)
}

// first is the file that the runtime loads. Where none can be loaded, the error is about the
// first.
func (t tree) first(w Spec) (File, error) {
	f, err := t.primary()
	if err != nil || !w.SkipsBroken {
		return f, err
	}
	for _, name := range t.confs() {
		if n, err := t.load(name, w.LoadsDropIns); err == nil && len(n.chain()) > 0 {
			return t[name], nil
		}
	}
	return f, nil
}

// claim is a way and what goes it.
type claim struct {
	way   Way
	entry []byte
}

// with adds us to a directory that is without us. What is in the directory now stays if it is
// right.
func (t tree) with(now tree, n *network, c claim) (tree, error) {
	goal := t.clone()
	var err error
	switch {
	case c.way == DropIn:
		err = goal.dropIn(now, n, c)
	case c.way == Owned:
		var f File
		f, err = n.copied(c)
		f.Name = ownedName
		goal[ownedName] = f
	case c.way == Inline && n.list:
		if f := now[n.file.Name]; settled(f, c.entry) {
			goal[f.Name] = f
			break
		}
		f := n.file
		f.Data, err = appendOurs(f.Data, c.entry)
		goal[f.Name] = f
	case c.way == Inline:
		err = goal.wrap(now, n, c)
	}
	return goal, err
}

func (t tree) clone() tree { return t.dir().tree() }

func (t tree) dropIn(now tree, n *network, c claim) error {
	if f, ok := t[n.name]; ok && !f.Mode.IsDir() {
		return refuse(Taken, n.name, "%s is a file: no place for drop-ins of the network; rename "+
			"it, or configure another way", n.name)
	}
	if d, ok := now[n.name]; ok {
		t[n.name] = d
	} else if !now.inside(n.name) {
		t[n.name] = File{Name: n.name, Mode: fs.ModeDir | 0o755}
	}
	data, err := pretty(c.entry)
	if err != nil {
		return err
	}
	t.put(now, File{Name: n.dropIn(), Data: data, Mode: n.file.Mode})
	// A drop-in of a network that another file has taken the place of stays: when that file goes,
	// the runtime loads the network at once, before any pass.
	for _, conf := range t.confs() {
		other, err := t[conf].parse()
		if name := other.dropIn(); err == nil && other.name != n.name && now.has(name) {
			if d, ok := now[other.name]; ok {
				t[other.name] = d
			}
			t.put(now, File{Name: name, Data: data, Mode: now[name].Mode})
		}
	}
	return nil
}

// put sets a file of ours, or leaves it as it is if it says the same.
func (t tree) put(now tree, f File) {
	if there := now[f.Name]; there.Err == nil && same(there.Data, f.Data) {
		f = there
	}
	t[f.Name] = f
}

// wrap makes a list of a single plugin and moves the original out of the runtime's sight.
func (t tree) wrap(now tree, n *network, c claim) error {
	original := n.file.Name
	name, saved := wrapName(original), original+SavedSuffix
	if t.has(name) {
		return refuse(Taken, name, "%s is there beside %s: one of them has to go before the "+
			"other can be chained to", name, original)
	}
	list, err := n.copied(c)
	if err != nil {
		return err
	}
	list.Name, list.Data = name, mark(list.Data, original)
	if f := now[name]; current(f, n.file) {
		list.Data = f.Data
		if !settled(f, c.entry) {
			if list.Data, err = removeOurs(f); err == nil {
				list.Data, err = appendOurs(list.Data, c.entry)
			}
		}
	}
	t[name], t[saved] = list, File{Name: saved, Data: n.file.Data, Mode: n.file.Mode}
	delete(t, original)
	return err
}

// current reports whether a wrapping list is of the original as it is now. What others added to it
// is then kept.
func current(list, original File) bool {
	if list.Err != nil || wrapped(list.Data) != original.Name {
		return false
	}
	all, err := plugins(list.Data)
	return err == nil && len(all) > 0 && bytes.Equal(all[0].of(list.Data), original.indented())
}

// copied is the network as a list with our entry, under its own name.
func (n *network) copied(c claim) (File, error) {
	f := n.file
	if !n.list {
		f.Data = n.asList()
	}
	var err error
	f.Data, err = appendOurs(f.Data, c.entry)
	return f, err
}

// Uninstall returns the steps that take us out, whatever way we got in, and brings back what was
// wrapped. An error without steps is about a file that may have our entry and cannot be edited, or
// about what would leave the runtime without its network. Of the spec only SkipsBroken counts.
func Uninstall(d Dir, w Spec) (Plan, error) {
	w = Spec{SkipsBroken: w.SkipsBroken}
	t := d.tree()
	base := t.without()
	p := Plan{Steps: difference(t, base)}
	if err := p.check(); err != nil {
		return Plan{}, err
	}
	if len(p.Steps) == 0 {
		return p, t.leftOver(w)
	}
	_, before := t.loaded(w)
	n, after := base.loaded(w)
	switch {
	case after == nil:
		p.Primary, p.Network = n.file.Name, n.name
	case before == nil && reason(after) != NoNetwork:
		return Plan{}, after
	}
	return p, nil
}

// leftOver finds what could not be cleaned. Of the files that cannot be read only the one that the
// runtime loads counts: a dangling link of somebody else's is nothing of ours. What is ours by its
// name is removed unread.
func (t tree) leftOver(w Spec) error {
	var errs []error
	for i, name := range t.confs() {
		f := t[name]
		n, err := f.parse()
		switch {
		case f.Err != nil && (i > 0 || w.SkipsBroken):
		case err != nil && (f.Err != nil || strings.Contains(string(f.Data), names.Plugin)):
			errs = append(errs, err)
		case err == nil && f.carriesUs():
			errs = append(errs, n.chainable())
		}
	}
	return errors.Join(errs...)
}
