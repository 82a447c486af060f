package xtables

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

const (
	maxText  = 8 << 20 // bytes of a listing
	maxRules = 1 << 16 // of a listing; redirect.MaxRules is below it
	maxWords = 255     // of a rule, as with iptables-restore
	maxDepth = 64      // of jumps; nftables allows 16
	maxWalk  = 1 << 18 // rules and conditions that a packet may meet at a hook
)

// tables lists the chains that each table has from the start. Table 0 is not evaluated.
var tables = map[string]struct {
	table redirect.Table
	hooks string
}{
	"raw":      {redirect.Raw, "PREROUTING OUTPUT"},
	"mangle":   {redirect.Mangle, "PREROUTING INPUT FORWARD OUTPUT POSTROUTING"},
	"nat":      {redirect.NAT, "PREROUTING INPUT OUTPUT POSTROUTING"},
	"filter":   {0, "INPUT FORWARD OUTPUT"},
	"security": {0, "INPUT FORWARD OUTPUT"},
}

var (
	counters = regexp.MustCompile(`^\[\d+:\d+\]\s*`)
	words    = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"|[^\s"]+|"`)
)

// listing reads the text of one family.
type listing struct {
	family redirect.Family
	hooks  map[place]*chain // what it finds
	done   map[string]bool  // the tables so far
	rules  int              // so far
	at     rule             // the line that an error is about

	name   string            // of the open table; empty outside of one
	chains map[string]*chain // of the open table
	jumps  []*rule           // of the open table
}

func (l *listing) read(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("%d bytes, and %d are the most that is read", len(text), maxText)
	}
	number := 0
	for text := range strings.Lines(text) {
		number++
		l.at = rule{number: number, text: line(strings.TrimSpace(text))}
		if err := l.line(string(l.at.text)); err != nil {
			const shown = 80
			return fmt.Errorf("line %d: %.*q: %w", l.at.number, shown, l.at.text, err)
		}
	}
	if l.name != "" {
		return fmt.Errorf("line %d: table %s ends without COMMIT", number, l.name)
	}
	return nil
}

func (l *listing) line(text string) error {
	switch {
	case strings.HasSuffix(text, "is incompatible, use 'nft' tool."): // iptables-nft-save's words
		return errors.New("the listing lacks the rules of this table")
	case text == "" || text[0] == '#':
		return nil
	case text[0] == '*':
		return l.open(strings.TrimSpace(text[1:]))
	case l.name == "":
		return errors.New("not in a table")
	case text == "COMMIT":
		return l.commit()
	case text[0] == ':':
		found := strings.Fields(text[1:])
		if len(found) == 3 && counters.FindString(found[2]) == found[2] {
			found = found[:2]
		}
		if len(found) != 2 {
			return errors.New("want :CHAIN POLICY [packets:bytes]")
		}
		return l.declare(found[0], found[1])
	}
	text = counters.ReplaceAllString(text, "")
	l.at.text = line(text)
	var found []string
	for _, word := range words.FindAllStringSubmatch(text, maxWords+1) {
		switch {
		case word[0] == `"`:
			return errors.New("a quote is not closed")
		case word[0][0] == '"':
			word[0] = word[1] // with its backslashes, which only comments have
		}
		found = append(found, word[0])
	}
	if len(found) < 2 || len(found) > maxWords {
		return fmt.Errorf("want a command, a chain and at most %d words", maxWords)
	}
	return l.command(found[0], found[1], found[2:])
}

// open begins a table. It may not come twice: whether the second would add to the first is a matter
// of an option of iptables-restore.
func (l *listing) open(name string) error {
	table, known := tables[name]
	switch {
	case !known:
		return fmt.Errorf("%.40q: unknown table", name)
	case l.name != "" || l.done[name]:
		return fmt.Errorf("table %s was here already, or another one lacks COMMIT", name)
	}
	l.name, l.done[name], l.chains, l.jumps = name, true, map[string]*chain{}, nil
	for hook := range strings.FieldsSeq(table.hooks) {
		c := &chain{table: table.table, name: hook, hook: true}
		for _, h := range asked {
			if hook == h.String() && table.table != 0 {
				c.asked, l.hooks[place{l.family, table.table, h}] = true, c
			}
		}
		l.chains[hook] = c
	}
	return nil
}

var asked = []redirect.Hook{redirect.Prerouting, redirect.Output}

// declare creates a chain, whose policy is a dash, or sets the policy of a hook.
func (l *listing) declare(name, policy string) error {
	c := l.chains[name]
	_, target := targets[name]
	switch hook := c != nil && c.hook; {
	case hook && (policy == "ACCEPT" || policy == "DROP" && c.asked):
		c.drops = policy == "DROP"
	case hook || policy != "-":
		return fmt.Errorf("%.40q: not a policy that %.40q can have", policy, name)
	case c != nil || target || strings.Contains(" "+tables["mangle"].hooks+" ", " "+name+" ") ||
		name == "" || name[0] == '-' || name[0] == '!':
		return fmt.Errorf("%.40q: no name for a new chain", name)
	default:
		l.chains[name] = &chain{table: tables[l.name].table, name: name,
			asked: tables[l.name].table != 0}
	}
	return nil
}

// command reads a line that iptables would take behind -t TABLE.
func (l *listing) command(verb, name string, rest []string) error {
	c := l.chains[name]
	switch verb {
	case "-N", "--new-chain":
		return l.declare(name, strings.Join(append(rest, "-"), " "))
	case "-P", "--policy":
		return l.declare(name, strings.Join(rest, " "))
	case "-A", "--append", "-I", "--insert":
	default:
		return fmt.Errorf("%.40q: unknown command", verb)
	}
	switch l.rules++; {
	case c == nil:
		return fmt.Errorf("%.40q: no chain of table %s", name, l.name)
	case c.table == 0:
		return fmt.Errorf("rules of table %s are not evaluated", l.name)
	case l.rules > maxRules:
		return fmt.Errorf("more than %d rules", maxRules)
	}
	place := len(c.rules)
	if verb == "-I" || verb == "--insert" {
		place = 0
		if n, err := strconv.Atoi(strings.Join(rest[:min(1, len(rest))], "")); err == nil {
			place, rest = n-1, rest[1:]
		}
	}
	if place < 0 || place > len(c.rules) {
		return fmt.Errorf("%d: want a place from 1 to %d", place+1, len(c.rules)+1)
	}
	return l.insert(c, place, rest)
}

func (l *listing) insert(c *chain, place int, rest []string) error {
	r := l.at
	d := &draft{rule: &r, family: l.family, table: c.table}
	if err := d.read(rest); err != nil {
		return err
	}
	if !c.asked && r.verb != redirect.Return && r.verb != redirect.Accept {
		return fmt.Errorf("%s: only RETURN and ACCEPT are evaluated here", c.name)
	}
	if r.verb == redirect.Jump {
		l.jumps = append(l.jumps, &r)
	}
	c.rules = slices.Insert(c.rules, place, &r)
	return nil
}

// commit ends a table: jumps find their chains.
func (l *listing) commit() error {
	for _, r := range l.jumps {
		if r.chain = l.chains[r.to]; r.chain == nil || r.chain.hook {
			l.at = *r
			return fmt.Errorf("%.40q: no known target, and no chain of table %s", r.to, l.name)
		}
	}
	for _, h := range asked {
		if c := l.chains[h.String()]; c != nil {
			met := 0
			if err := l.visit(c, h, &met, 0); err != nil {
				return err
			}
		}
	}
	l.name = ""
	return nil
}

// visit goes wherever packets can from a hook. The kernel refuses loops and rules out of place.
func (l *listing) visit(c *chain, h redirect.Hook, met *int, depth int) error {
	for _, r := range c.rules {
		if *met += 1 + len(r.conditions); *met > maxWalk || depth > maxDepth {
			l.at = *r
			return errors.New("a packet would meet too many rules, or jump in a loop")
		}
		if r.hook != redirect.NoHook && r.hook != h {
			l.at = *r
			return fmt.Errorf("reached from %s, works from %s only", h, r.hook)
		}
		if r.chain != nil {
			if err := l.visit(r.chain, h, met, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
