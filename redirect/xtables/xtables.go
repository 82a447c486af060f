// Package xtables reads rules as iptables-save prints them and as iptables-restore is given them,
// and says what becomes of packets.
//
//	tables, err := xtables.Read(ipv4, ipv6)
//	fate, question := tables.Fate(class)
//
// It is written from what iptables and the kernel do and shares no code with the dialect that
// writes such rules, so that each can be held against the other. What it does not know is an error.
//
// Be aware: it knows what redirects a pod. REDIRECT and TPROXY need a port, marks have no mask,
// users are numbers. Tables and hooks that cannot redirect must let everything pass. Packets are
// not fragments, and nat is not asked for those that TPROXY took, though the kernel would.
package xtables

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// Tables is the rules of both families.
type Tables struct {
	// Routed lists the marks whose packets the policy routing delivers within the pod. No listing
	// has them: who calls Fate sets them before.
	Routed []uint32

	chains map[place]*chain
}

type place struct {
	family       redirect.Family
	table, chain string
}

type chain struct {
	table redirect.Table // 0: one that cannot redirect
	name  string
	hook  bool // entered by packets; else by jumps only
	idle  bool // a hook that cannot redirect
	drops bool // the policy of a hook
	rules []*rule
}

type rule struct {
	text       string
	line       int           // its number
	conditions []condition   // all of them must hold
	verb       redirect.Verb // 0: it only counts packets
	chain      *chain        // that it jumps to
	number     uint16        // the port or the zone
	mark       *uint32       // nil: not changed
}

func (r *rule) String() string { return r.text }

// condition asks whether the value of a field is in a set, or with not whether it is outside.
type condition struct {
	field packet.Field
	set   packet.Set
	not   bool
}

// A packet has two interfaces for rules. Where it has not come in, or does not leave, the name is
// empty.
const (
	in  = packet.Interface
	out = packet.State + 1
)

// Read reads the listings of both families; an empty one has no rules. The error names the line.
func Read(ipv4, ipv6 string) (*Tables, error) {
	t := &Tables{chains: map[place]*chain{}}
	for i, text := range []string{ipv4, ipv6} {
		l := &listing{family: redirect.Families[i], chains: t.chains}
		if err := l.read(text); err != nil {
			return nil, fmt.Errorf("read %s rules: %w", l.family, err)
		}
	}
	return t, nil
}

const (
	maxText  = 4 << 20 // bytes of a listing
	maxLine  = 4 << 10 // bytes of a line; iptables-restore takes 10 KB
	maxLines = 1 << 16 // of a listing; redirect.MaxRules is below it
	maxWalk  = 1 << 23 // rules and conditions that a packet may meet at a hook
)

var (
	tables = map[string]redirect.Table{"raw": redirect.Raw, "mangle": redirect.Mangle,
		"nat": redirect.NAT, "filter": 0, "security": 0}
	hooks = []string{"PREROUTING", "OUTPUT", "INPUT", "FORWARD", "POSTROUTING"}
	busy  = hooks[:2] // can redirect

	unreadable  = regexp.MustCompile(`[^\t -~]`)
	declaration = regexp.MustCompile(`^(?:-N\s+(\S+)|:(\S+)\s+(\S+)(?:\s+\[\d+:\d+\])?)$`)
	addition    = regexp.MustCompile(
		`^(?:\[\d+:\d+\]\s*)?(-A\s+(\S+)|-I\s+(\S+)(?:\s+([1-9]\d{0,5}))?)(\s.*)?$`)
)

// listing reads the text of one family.
type listing struct {
	family redirect.Family
	chains map[place]*chain // of both families
	table  string           // the open one; empty outside of one
	at     rule             // the line that an error is about
}

func (l *listing) place(chain string) place { return place{l.family, l.table, chain} }

func (l *listing) read(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("%d bytes, and %d are the most that is read", len(text), maxText)
	}
	for text := range strings.Lines(text) {
		l.at = rule{line: l.at.line + 1, text: strings.Trim(text, " \t\n")}
		if err := l.statement(l.at.text); err != nil {
			return fmt.Errorf("line %d: %.80q: %w", l.at.line, l.at.text, err)
		}
	}
	if l.table != "" {
		return fmt.Errorf("line %d: table %s ends without COMMIT", l.at.line, l.table)
	}
	return nil
}

func (l *listing) statement(text string) error {
	switch {
	case strings.HasSuffix(text, "is incompatible, use 'nft' tool."): // iptables-nft-save's words
		return errors.New("the listing lacks the rules of this table")
	case len(text) > maxLine || l.at.line > maxLines:
		return fmt.Errorf("want lines of %d bytes, and %d of them, at most", maxLine, maxLines)
	case text == "" || text[0] == '#':
		return nil
	case unreadable.MatchString(text):
		return errors.New("want printable ASCII")
	case text[0] == '*':
		return l.open(strings.TrimSpace(text[1:]))
	case l.table == "":
		return errors.New("not in a table")
	case text == "COMMIT":
		return l.commit()
	}
	if found := declaration.FindStringSubmatch(text); found != nil {
		return l.declare(found[1]+found[2], cmp.Or(found[3], "-"))
	}
	if found := addition.FindStringSubmatch(text); found != nil {
		l.at.text = found[1] + found[5]
		return l.add(found[2], found[3], found[4], found[5])
	}
	return errors.New("want -A CHAIN, -I CHAIN, -N CHAIN or :CHAIN POLICY")
}

// open begins a table. It may not come twice: whether the second would add to the first is a matter
// of an option of iptables-restore.
func (l *listing) open(name string) error {
	table, known := tables[name]
	if !known || l.table != "" || l.chains[place{l.family, name, hooks[0]}] != nil {
		return fmt.Errorf("%.40q: no known table, or a second one, or COMMIT is missing", name)
	}
	l.table = name
	for _, hook := range hooks {
		idle := table == 0 || !slices.Contains(busy, hook)
		l.chains[l.place(hook)] = &chain{table: table, name: hook, hook: true, idle: idle}
	}
	return nil
}

// declare creates a chain, whose policy is a dash, or sets the policy of a hook.
func (l *listing) declare(name, policy string) error {
	c := l.chains[l.place(name)]
	switch {
	case c == nil && policy == "-":
		l.chains[l.place(name)] = &chain{table: tables[l.table], name: name}
	case c != nil && c.hook && (policy == "ACCEPT" || policy == "DROP" && !c.idle):
		c.drops = policy == "DROP"
	default:
		return fmt.Errorf("%.40q: exists already, or cannot have policy %.40q", name, policy)
	}
	return nil
}

// add appends a rule to one chain, or inserts it into the other.
func (l *listing) add(appendTo, insertInto, place, text string) error {
	c := l.chains[l.place(appendTo+insertInto)]
	number, _ := strconv.Atoi(cmp.Or(place, "1"))
	switch {
	case c == nil:
		return fmt.Errorf("no such chain in table %s", l.table)
	case insertInto == "":
		number = len(c.rules) + 1
	case number > len(c.rules)+1:
		return fmt.Errorf("%d: want a place from 1 to %d", number, len(c.rules)+1)
	}
	d := &draft{rule: l.at, listing: l}
	if err := d.read(text); err != nil {
		return err
	}
	if c.idle && d.rule.verb != redirect.Return && d.rule.verb != redirect.Accept {
		return fmt.Errorf("%s: only RETURN and ACCEPT are evaluated here", c.name)
	}
	c.rules = slices.Insert(c.rules, number-1, &d.rule)
	return nil
}

// commit ends a table.
func (l *listing) commit() error {
	for _, hook := range busy {
		if _, err := l.visit(l.chains[l.place(hook)], hook, map[*chain]int{}); err != nil {
			return err
		}
	}
	l.table = ""
	return nil
}

// visit goes wherever packets can from a hook, and returns how much they may meet. The kernel
// refuses loops and rules out of place.
func (l *listing) visit(c *chain, hook string, known map[*chain]int) (met int, err error) {
	if n, ok := known[c]; ok {
		return n, nil
	}
	known[c] = maxWalk // for whoever comes back before it is known
	for _, r := range c.rules {
		met += 1 + len(r.conditions)
		if r.verb == redirect.Jump {
			n, err := l.visit(r.chain, hook, known)
			if met += n; err != nil {
				return 0, err
			}
		}
		l.at = *r
		switch {
		case met > maxWalk:
			return 0, errors.New("a packet would meet too many rules, or jump in a loop")
		case r.verb == redirect.TProxy && hook != "PREROUTING":
			return 0, fmt.Errorf("reached from %s, works from PREROUTING only", hook)
		}
	}
	known[c] = met
	return met, nil
}
