package compare

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// localhost is what loopback may be, the widest first.
var localhost = map[redirect.Family][]netip.Prefix{
	redirect.IPv4: {netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")},
	redirect.IPv6: {netip.MustParsePrefix("::1/128")},
}

// fieldWords says what the fields of a class hold.
type fieldWords struct {
	class packet.Class
	whole packet.Class // all packets of its direction and family
}

func whole(c packet.Class) packet.Class {
	all := packet.Everything()
	return all[slices.IndexFunc(all,
		func(o packet.Class) bool { return o.Leaves == c.Leaves && o.Family == c.Family })]
}

// list says which values a field has: nothing if it has all, and what it lacks if that is shorter.
func (w fieldWords) list(f packet.Field) string {
	have := w.class.Of(f)
	lacks := w.whole.Of(f).Without(have)
	switch {
	case lacks.Empty():
		return ""
	case length(lacks) >= length(have):
		return w.enumerate(f, have)
	case f == packet.Protocol:
		return "everything but " + w.enumerate(f, lacks)
	}
	return "any but " + w.enumerate(f, lacks)
}

// length is how much there is to read: a range is two words.
func length(s packet.Set) int {
	n := 0
	for _, span := range s.Spans() {
		if n++; span.First != span.Last {
			n++
		}
	}
	return n
}

// enumerate joins a list as it is spoken, and counts what nobody would read.
func (w fieldWords) enumerate(f packet.Field, s packet.Set) string {
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

func (w fieldWords) word(f packet.Field, s packet.Span) string {
	switch f {
	case packet.Interface:
		if s.First != s.Last {
			return s.First.Name() + "..."
		}
		return s.First.Name()
	case packet.Source, packet.Destination:
		return networkWord(s.First.Addr(w.class.Family), s.Last.Addr(w.class.Family))
	case packet.Protocol:
		name := redirect.Protocol(s.First.Number()).String()
		if name != "" && s.First == s.Last {
			return name
		}
		return "protocol " + numberWord(s)
	default:
		return numberWord(s)
	}
}

func numberWord(s packet.Span) string {
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
	span := packet.Networks(netip.PrefixFrom(last, last.BitLen())).Spans()[0]
	for bits := range first.BitLen() {
		p := netip.PrefixFrom(first, bits)
		if p == p.Masked() && packet.Networks(p).Spans()[0].Last == span.Last {
			return p.String()
		}
	}
	return fmt.Sprintf("%s to %s", first, last)
}
