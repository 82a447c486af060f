package packet

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// localhost is what loopback may be, the widest first.
var localhost = map[redirect.Family][]netip.Prefix{
	redirect.IPv4: {netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")},
	redirect.IPv6: {netip.MustParsePrefix("::1/128")},
}

// fieldWords says what the fields of a class hold.
type fieldWords struct {
	class Class
	whole Class // all packets of its direction and family
}

// list says which values a field has: nothing if it has all, and what it lacks if that is shorter.
func (w fieldWords) list(f Field) string {
	have := w.class.Of(f)
	lacks := w.whole.Of(f).Without(have)
	switch {
	case lacks.Empty():
		return ""
	case length(lacks) >= length(have):
		return w.enumerate(f, have)
	case f == Protocol:
		return "everything but " + w.enumerate(f, lacks)
	}
	return "any but " + w.enumerate(f, lacks)
}

// length is how much there is to read: a range is two words.
func length(s Set) int {
	n := 0
	for _, span := range s.Spans() {
		if n++; span.First != span.Last {
			n++
		}
	}
	return n
}

// enumerate joins a list as it is spoken, and counts what nobody would read.
func (w fieldWords) enumerate(f Field, s Set) string {
	const most = 8
	var words []string
	for _, span := range s.Spans() {
		words = append(words, w.word(f, span))
	}
	switch n := len(words); {
	case n == 1:
		return words[0]
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), n-most)
	default:
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
}

func (w fieldWords) word(f Field, s Span) string {
	switch f {
	case Interface:
		name := s.First.Name()
		switch {
		case s.First == s.Last:
			return name
		case nameValue(name, 0) != s.First: // not this one
			return name + " with something behind it"
		}
		return name + "..."
	case Source, Destination:
		return networkWord(s.First.Addr(w.class.Family), s.Last.Addr(w.class.Family))
	case Protocol:
		name := redirect.Protocol(s.First.Number()).String()
		if name != "" && s.First == s.Last {
			return name
		}
		return "protocol " + numberWord(s)
	default:
		return numberWord(s)
	}
}

func numberWord(s Span) string {
	if s.First == s.Last {
		return fmt.Sprint(s.First.Number())
	}
	return fmt.Sprintf("%d to %d", s.First.Number(), s.Last.Number())
}

// networkWord is a network where a span is one.
func networkWord(first, last netip.Addr) string {
	if first == last {
		return first.String()
	}
	span := Networks(netip.PrefixFrom(last, last.BitLen())).Spans()[0]
	for bits := range first.BitLen() {
		p := netip.PrefixFrom(first, bits)
		if p == p.Masked() && Networks(p).Spans()[0].Last == span.Last {
			return p.String()
		}
	}
	return fmt.Sprintf("%s-%s", first, last)
}
