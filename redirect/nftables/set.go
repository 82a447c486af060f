package nftables

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// anonymous is the name by which the kernel is asked to name a set itself. Such a set lives and
// dies with its rule, and nobody can change it behind the rule's back.
const anonymous = "__set%d"

// chunk is how many elements go into one message: an attribute ends at 64 KiB.
const chunk = 1000

// set is the list of a rule.
type set struct {
	id       uint32 // within the transaction
	key      uint32 // the kind of values, by nft's number
	size     uint32 // of a value, in bytes
	interval bool   // elements are the bounds of ranges
	elements []element
	text     []string
}

// element is a value or a bound: a range reaches from one to before the next that ends.
type element struct {
	key  []byte
	ends bool
}

func portSet(ports []uint16) *set {
	s := &set{}
	for _, p := range ports {
		s.elements = append(s.elements, element{key: big16(p)})
		s.text = append(s.text, strconv.Itoa(int(p)))
	}
	return s
}

func idSet(ids redirect.IDs) *set {
	s := &set{interval: true}
	for _, r := range ids {
		// Last is never the highest number, so that Last+1 does not overflow.
		s.bounds(big32(r.First), big32(r.Last+1))
		text := strconv.FormatUint(uint64(r.First), 10)
		if r.First != r.Last {
			text = fmt.Sprintf("%d-%d", r.First, r.Last)
		}
		s.text = append(s.text, text)
	}
	return s
}

func addressSet(ranges []addressRange) *set {
	s := &set{interval: true}
	for _, r := range ranges {
		s.bounds(r.first.AsSlice(), r.last.Next().AsSlice())
		s.text = append(s.text, r.String())
	}
	return s
}

// bounds adds a range from first to before end; without end it reaches to the highest value.
func (s *set) bounds(first, end []byte) {
	s.elements = append(s.elements, element{key: first})
	if len(end) > 0 {
		s.elements = append(s.elements, element{key: end, ends: true})
	}
}

// addressRange is the addresses from first to last, both included.
type addressRange struct{ first, last netip.Addr }

// addressRanges joins neighbours; prefixes come sorted and none lies within another.
func addressRanges(prefixes []netip.Prefix) []addressRange {
	var ranges []addressRange
	for _, p := range prefixes {
		r := addressRange{p.Addr(), lastOf(p)}
		if n := len(ranges); n > 0 && ranges[n-1].last.Next() == r.first {
			ranges[n-1].last = r.last
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges
}

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i, mask := range netmask(p) {
		bytes[i] |= ^mask
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// prefix returns the range as a prefix if it is one.
func (r addressRange) prefix() (netip.Prefix, bool) {
	for bits := r.first.BitLen(); bits >= 0; bits-- {
		p, _ := r.first.Prefix(bits)
		if p.Addr() != r.first {
			return netip.Prefix{}, false
		}
		if lastOf(p) == r.last {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// String is the range as nft prints it.
func (r addressRange) String() string {
	if p, ok := r.prefix(); ok {
		return prefixText(p)
	}
	return fmt.Sprintf("%s-%s", r.first, r.last)
}

func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
