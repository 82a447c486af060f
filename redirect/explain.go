package redirect

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Explain says in sentences what the rules do, in the order in which a packet meets them, for
// somebody who knows networks and has never seen this project.
func Explain(rs Ruleset) string {
	var b strings.Builder
	for _, c := range rs.Chains {
		fmt.Fprintf(&b, "%s\n", c)
		for i, r := range c.Rules {
			fmt.Fprintf(&b, "  %d. %s\n", i+1, r)
		}
		b.WriteString("\n")
	}
	for _, p := range rs.Addresses {
		fmt.Fprintf(&b, "The address %s is added to lo.\n", p.Addr())
	}
	for _, r := range rs.Routes {
		fmt.Fprintf(&b, "Packets with mark %d are delivered within the pod whatever their "+
			"destination (routing table %d).\n", r.Mark, r.Table)
	}
	return b.String()
}

// String is the heading of a chain.
func (c Chain) String() string {
	when := map[Table]string{Raw: "before connections are tracked", Mangle: "every packet",
		NAT: "the first packet of a connection"}[c.Table]
	switch c.Hook {
	case Prerouting:
		return fmt.Sprintf("What enters the pod (%s %s, %s):", c.Table, c.Name, when)
	case Output:
		return fmt.Sprintf("What the pod sends (%s %s, %s):", c.Table, c.Name, when)
	case NoHook:
	}
	return fmt.Sprintf("%s (%s):", c.Name, c.Table)
}

// String says the rule as a sentence.
func (r Rule) String() string {
	subject := r.If.String()
	return fmt.Sprintf("%s %s: %s.", strings.ToUpper(subject[:1])+subject[1:], r.Then, r.Why)
}

// String says which packets match.
func (m Match) String() string {
	words := []string{"every packet"}
	if m.Protocol != AnyProtocol {
		words[0] = m.Protocol.String()
	}
	add := func(format string, value string) {
		if value != "" {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add("in state %s", m.State.String())
	add("with %s", m.Mark.words("mark"))
	add("of a connection with %s", m.ConnMark.words("mark"))
	add("that enters through %s", m.In.words())
	add("that leaves through %s", m.Out.words())
	add("from %s", m.Source.words())
	add("from %s", m.SourcePort.words())
	add("to %s", m.Destination.words())
	add("to %s", m.DestinationPort.words())
	add("sent by uid %s", m.UID.words())
	add("sent by gid %s", m.GID.words())
	return strings.Join(words, " ")
}

// String says what happens.
func (a Action) String() string {
	switch a.Verb {
	case Return:
		return "is left alone"
	case Accept:
		return "passes"
	case Drop:
		return "is dropped"
	case Jump:
		return "goes through " + a.Chain
	case Redirect:
		return fmt.Sprintf("is redirected to port %d", a.Port)
	case TProxy:
		return fmt.Sprintf("is handed to the transparent listener on port %d with mark %d, or "+
			"dropped if nobody listens", a.Port, a.Mark)
	case SetMark:
		return fmt.Sprintf("gets mark %d", a.Mark)
	case SaveMark:
		return "leaves its mark on its connection"
	case RestoreMark:
		return "gets the mark of its connection"
	case SetZone:
		return fmt.Sprintf("is tracked in zone %d", a.Zone)
	}
	return fmt.Sprintf("meets the unknown verb %d", a.Verb)
}

func (i Interface) words() string {
	if stem, ok := strings.CutSuffix(string(i), "+"); ok {
		return "an interface called " + stem + "..."
	}
	return string(i)
}

func (m Mark) words(noun string) string {
	switch {
	case m.Value == 0:
		return ""
	case m.Not:
		return fmt.Sprintf("any %s but %d", noun, m.Value)
	}
	return fmt.Sprintf("%s %d", noun, m.Value)
}

func (a Addresses) words() string {
	words := make([]string, len(a.Prefixes))
	for i, p := range a.Prefixes {
		words[i] = prefixWords(p)
	}
	return not(a.Not) + enumerate(words)
}

// prefixWords leaves out the length of a single address.
func prefixWords(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func (p Ports) words() string {
	if p.zero() {
		return ""
	}
	words := make([]string, len(p.List))
	for i, port := range p.List {
		words[i] = strconv.Itoa(int(port))
	}
	if p.Not {
		return "any port but " + enumerate(words)
	}
	if len(words) > 1 {
		return "ports " + enumerate(words)
	}
	return "port " + enumerate(words)
}

func (ids IDs) words() string {
	words := make([]string, len(ids))
	for i, r := range ids {
		words[i] = strconv.FormatUint(uint64(r.First), 10)
		if r.Last != r.First {
			words[i] += " to " + strconv.FormatUint(uint64(r.Last), 10)
		}
	}
	return enumerate(words)
}

func not(no bool) string {
	if no {
		return "anywhere but "
	}
	return ""
}

// enumerate joins a list as it is spoken, and counts what nobody would read.
func enumerate(words []string) string {
	const most = 8
	switch n := len(words); {
	case n == 0:
		return ""
	case n == 1:
		return words[0]
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), n-most)
	default:
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
}
