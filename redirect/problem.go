package redirect

import (
	"fmt"
	"net/netip"
)

// Problem is a difference between the rules that should be in a kernel and those that are.
type Problem struct {
	Where string `json:"where"`          // the chain, the routing policy or the interface
	Rule  int    `json:"rule,omitempty"` // counted from 1; 0: not about a rule
	What  string `json:"what"`           // how they differ, in words
}

func (p Problem) String() string {
	if p.Rule == 0 {
		return fmt.Sprintf("%s: %s", p.Where, p.What)
	}
	return fmt.Sprintf("%s: rule %d: %s", p.Where, p.Rule, p.What)
}

// Line is a rule as a dialect compares it (Key) and shows it (Text).
type Line struct {
	// Rules with the same Key do the same. Text is for people.
	Key, Text string
}

// Compare says how the rules of a chain differ from those that should be there.
func Compare(chain string, want, got []Line) []Problem {
	from := 0
	for from < len(want) && from < len(got) && want[from].Key == got[from].Key {
		from++
	}
	tail := 0
	for tail < len(want)-from && tail < len(got)-from &&
		want[len(want)-1-tail].Key == got[len(got)-1-tail].Key {
		tail++
	}
	missing, unexpected := subtract(want, got, from, tail), subtract(got, want, from, tail)
	var problems []Problem
	add := func(i int, format string, args ...any) {
		problems = append(problems, Problem{chain, i + 1, fmt.Sprintf(format, args...)})
	}
	if len(missing) == 0 && len(unexpected) == 0 {
		for i := from; i < len(want)-tail; i++ {
			if want[i].Key != got[i].Key {
				add(i, "out of order: want %s, found %s", want[i].Text, got[i].Text)
			}
		}
		return problems
	}
	for _, i := range missing {
		if len(want) == len(got) && len(unexpected) > 0 && unexpected[0] == i {
			add(i, "changed: want %s, found %s", want[i].Text, got[i].Text)
			unexpected = unexpected[1:]
			continue
		}
		add(i, "missing: %s", want[i].Text)
	}
	for _, i := range unexpected {
		add(i, "unexpected: %s", got[i].Text)
	}
	return problems
}

// subtract returns the places of the lines that stand in a but not, or less often, in b.
func subtract(a, b []Line, from, tail int) []int {
	count := map[string]int{}
	for _, l := range b[from : len(b)-tail] {
		count[l.Key]++
	}
	var places []int
	for i, l := range a[from : len(a)-tail] {
		if count[l.Key]--; count[l.Key] < 0 {
			places = append(places, from+i)
		}
	}
	return places
}

// Lack is something that the rules need and a kernel or a host does not have.
type Lack struct {
	Feature string // a phrase, such as "lists of ports"
	// of the kernel, which may only have to be loaded; "": it is no module that lacks
	Module string
	Cause  error // why the attempt to use it failed
	Minor  bool  // pods that need it are refused, all others are redirected
}

func (l Lack) String() string {
	if l.Module == "" {
		return fmt.Sprintf("no %s: %v", l.Feature, l.Cause)
	}
	return fmt.Sprintf("no %s (kernel module %s): %v", l.Feature, l.Module, l.Cause)
}

// Module is a part of a kernel that may be a file of its own, to be loaded.
type Module struct {
	Name string // as in /proc/modules
	For  string // a phrase: the feature that needs it
}

// Feature is something that a kernel may lack, with the rule that needs it.
type Feature struct {
	Name  string // a phrase, such as "lists of ports"
	Table Table  // where the rule is tried out
	Rule  Rule   // the kernel refuses it if it lacks the feature
}

// Features lists what the rules of some pod may need, one feature a rule, for the dialects to try
// out.
func Features() []Feature {
	try := func(name string, t Table, m Match, a Action) Feature {
		return Feature{name, t, Rule{"probe", m, a}}
	}
	tcp := Match{Protocol: TCP}
	with := func(set func(*Match)) Match {
		m := tcp
		set(&m)
		return m
	}
	return []Feature{
		try("redirection to local ports", NAT, tcp, Action{Verb: Redirect, Port: 1}),
		try("match of the sending user", NAT, Match{UID: IDs{{1, 2}}}, returns),
		try("match of interfaces and addresses", NAT,
			Match{Out: lo, Destination: Addresses{Not: true, Prefixes: hosts("127.0.0.1", "::1")}},
			returns),
		try("lists of addresses", NAT,
			Match{Destination: Addresses{Prefixes: hosts("192.0.2.1", "192.0.2.3", "2001:db8::1",
				"2001:db8::3")}}, returns),
		try("lists of ports", NAT,
			with(func(m *Match) { m.DestinationPort = Ports{Not: true, List: []uint16{1, 3}} }),
			returns),
		try("match of a connection's state", Mangle,
			with(func(m *Match) { m.State = Established | Related }), returns),
		try("match of marks", Mangle, with(func(m *Match) { m.Mark = Mark{Not: true, Value: 1} }),
			returns),
		try("match of a connection's mark", Mangle,
			with(func(m *Match) { m.ConnMark = Mark{Value: 1} }), returns),
		try("setting of marks", Mangle, tcp, Action{Verb: SetMark, Mark: 1}),
		try("setting of a connection's mark", Mangle, tcp, Action{Verb: SaveMark}),
		try("transparent proxying", Mangle, tcp, Action{Verb: TProxy, Port: 1, Mark: 1}),
		try("connection tracking zones", Raw, Match{Protocol: UDP}, Action{Verb: SetZone, Zone: 1}),
	}
}

func hosts(addrs ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(addrs))
	for i, a := range addrs {
		prefixes[i] = host(netip.MustParseAddr(a))
	}
	return prefixes
}
