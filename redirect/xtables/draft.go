package xtables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// draft is a rule that is being read.
type draft struct {
	rule     *rule
	family   redirect.Family
	table    redirect.Table
	options  []available
	modules  []*loaded
	protocol redirect.Protocol // AnyProtocol: no single one
}

// available is an option that may still be given, of the module that has it.
type available struct {
	option option
	of     *loaded
}

type loaded struct {
	module module
	name   string
	given  bool // an option of it
}

// read reads what stands behind the chain.
func (d *draft) read(words []string) error {
	d.load("", general)
	for len(words) > 0 {
		not := words[0] == "!" && len(words) > 1
		if not {
			words = words[1:]
		}
		name := words[0]
		i := d.find(name)
		if i < 0 {
			return fmt.Errorf("%.40q: unknown option, or given twice", name)
		}
		o := d.options[i]
		o.of.given = true
		if i > 0 { // -m, the first, may be repeated
			d.options = slices.Delete(d.options, i, i+1)
		}
		if words = words[1:]; o.option.read == nil {
			if not || d.rule.verb != 0 {
				return fmt.Errorf("%s: out of place", name)
			}
			d.rule.verb = o.option.verb
			continue
		}
		if len(words) == 0 {
			return fmt.Errorf("%s: the value is missing", name)
		}
		if err := o.option.read(d, words[0], not); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		words = words[1:]
	}
	for _, m := range d.modules {
		if err := d.check(m); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// find looks for an option in what was named last. The module of the protocol need not be named.
func (d *draft) find(name string) int {
	for i, o := range slices.Backward(d.options) {
		if slices.Contains(strings.Fields(o.option.names), name) {
			return i
		}
	}
	protocol := strings.ToLower(d.protocol.String())
	m, known := matches[protocol]
	named := func(m *loaded) bool { return m.name == protocol }
	if !known || slices.ContainsFunc(d.modules, named) {
		return -1
	}
	d.load(protocol, m)
	return d.find(name)
}

func (d *draft) load(name string, m module) {
	l := &loaded{module: m, name: name}
	d.modules = append(d.modules, l)
	for _, o := range m.options {
		d.options = append(d.options, available{o, l})
	}
}

func (d *draft) match(name string, not bool) error {
	m, known := matches[name]
	if !known || not {
		return wanted("a known match", name)
	}
	d.load(name, m)
	return nil
}

func (d *draft) jump(name string, not bool) error {
	m, known := targets[name]
	if name == "" || not {
		return wanted("a target", name)
	}
	if !known {
		m.verb, d.rule.to = redirect.Jump, name
	}
	d.rule.verb = m.verb
	d.load(name, m)
	return nil
}

// check reports what iptables or the kernel would refuse about a module of a finished rule.
func (d *draft) check(l *loaded) error {
	m, port := l.module, d.rule.verb == redirect.Redirect || d.rule.verb == redirect.TProxy
	_, target := targets[l.name]
	if m.hook != redirect.NoHook {
		d.rule.hook = m.hook
	}
	switch {
	case m.tables != nil && !slices.Contains(m.tables, d.table):
		return fmt.Errorf("not evaluated in table %s", d.table)
	case m.protocols != nil && !slices.Contains(m.protocols, d.protocol):
		return fmt.Errorf("needs -p with one of %v", m.protocols)
	case m.needs && !l.given, target && (d.rule.verb == 0 || port && d.rule.port == 0):
		return errors.New("an option is missing")
	}
	return nil
}
