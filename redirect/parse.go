package redirect

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	maxID       = 1<<32 - 2 // the kernel keeps the highest number for "nobody"
	noID        = 1<<32 - 1
	maxText     = 256 << 10 // what the API server allows all annotations of an object together
	maxItemText = 64        // of a user's text in a message
	maxNamed    = 8         // mistakes of one key that are named
	maxCIDRs    = 16384
	maxNames    = 256 // interfaces
	maxGroups   = 64
	maxIDRanges = 1024
)

// Mistake is one wrong item of what a pod asks for.
type Mistake struct {
	Key  string // the annotation or variable, as the user wrote it
	Item string // the offending part
	Want string // what would be accepted
}

func (m Mistake) String() string {
	return fmt.Sprintf("%s: %s: want %s", m.Key, shorten(m.Item), m.Want)
}

// Mistakes is the error of a pod that is ours and asks for something impossible.
type Mistakes []Mistake

func (ms Mistakes) Error() string {
	lines := make([]string, len(ms))
	for i, m := range ms {
		lines[i] = m.String()
	}
	return strings.Join(lines, "; ")
}

// shorten quotes a user's text, control characters escaped, and no more of it than somebody would
// read.
func shorten(s string) string {
	if len(s) <= maxItemText {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%q and %d bytes more", s[:maxItemText], len(s)-maxItemText)
}

// reader collects what is wrong with the values of one key.
type reader struct {
	key       string
	dropEmpty bool // empty items of a list are passed over
	mistakes  Mistakes
	unnamed   int
	ignored   Mistakes // values that count as if the pod had not said them
}

func (r *reader) mistake(item, want string) {
	if len(r.mistakes) < maxNamed {
		r.mistakes = append(r.mistakes, Mistake{r.key, item, want})
		return
	}
	r.unnamed++
	r.mistakes[maxNamed-1] = Mistake{r.key, fmt.Sprintf("%d more items", r.unnamed+1),
		r.mistakes[maxNamed-1].Want}
}

// list splits a value into items; an empty value is an empty list.
func (r *reader) list(value string, most int) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	if n := strings.Count(value, ",") + 1; n > most {
		r.mistake(fmt.Sprintf("a list of %d items", n), fmt.Sprintf("at most %d", most))
		return nil
	}
	items := strings.Split(value, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	if r.dropEmpty {
		items = slices.DeleteFunc(items, func(item string) bool { return item == "" })
	}
	return items
}

// bool reads a value as the programs do that obey it. What they cannot read is false to them, and
// so it is here.
func (r *reader) bool(value string) bool {
	b, err := strconv.ParseBool(value)
	if err != nil {
		r.ignored = append(r.ignored, Mistake{r.key, value, wantBool})
	}
	return b
}

func (r *reader) port(value string) uint16 {
	port, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
	if err != nil {
		r.mistake(value, wantPort)
	}
	return uint16(port)
}

// listener reads the port of one of the proxy's listeners for TCP of all kinds. The proxy could not
// tell that traffic from what has a listener of its own. What the cluster has set stays: there the
// pod has made no mistake.
func (r *reader) listener(value string, others Listen, port *uint16) {
	n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
	one := uint16(n)
	if err != nil || one == 0 || one != *port && (one == others.Tunnel || one == others.DNS) {
		r.mistake(value, fmt.Sprintf("a port from 1 to 65535, without %d for tunnels and %d for "+
			"name service", others.Tunnel, others.DNS))
		return
	}
	*port = one
}

func (r *reader) ports(value string) []uint16 {
	var ports []uint16
	for _, item := range r.list(value, 1<<16) {
		ports = append(ports, r.port(item))
	}
	return sorted(ports)
}

func parseID(item string) (id uint32, ok bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(item), 10, 32)
	return uint32(n), err == nil && n <= maxID
}

func (r *reader) id(value string) uint32 {
	id, ok := parseID(value)
	if !ok {
		r.mistake(value, wantID)
	}
	return id
}

func (r *reader) ids(value string, most int) []uint32 {
	var ids []uint32
	for _, item := range r.list(value, most) {
		ids = append(ids, r.id(item))
	}
	return sorted(ids)
}

func (r *reader) idRanges(value string) IDs {
	var ids IDs
	for _, item := range r.list(value, maxIDRanges) {
		from, to, isRange := strings.Cut(item, "-")
		if !isRange {
			to = from
		}
		first, ok1 := parseID(from)
		last, ok2 := parseID(to)
		switch {
		case !ok1 || !ok2:
			r.mistake(item, wantIDRange)
		case last < first:
			r.mistake(item, "a range from the lower to the higher id")
		default:
			ids = append(ids, IDRange{first, last})
		}
	}
	return mergeIDs(ids)
}

// cidrs returns the prefixes and whether one of them was written as an address of loopback.
func (r *reader) cidrs(value string) (prefixes []netip.Prefix, loopback bool) {
	for _, item := range r.list(value, maxCIDRs) {
		p, err := netip.ParsePrefix(item)
		if err != nil {
			r.mistake(item, wantCIDR)
			continue
		}
		p = unmap(p)
		loopback = loopback || p.Addr().IsLoopback()
		prefixes = append(prefixes, p.Masked())
	}
	return outermost(prefixes), loopback
}

// unmap turns an IPv4-mapped IPv6 prefix into the IPv4 one: a kernel never sees the mapped form on
// the wire.
func unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

func (r *reader) interfaces(value string) []Interface {
	var names []Interface
	for _, item := range r.list(value, maxNames) {
		if !ValidInterface(item) {
			r.mistake(item, wantInterface)
			continue
		}
		names = append(names, Interface(item))
	}
	names = sorted(names)
	return slices.DeleteFunc(slices.Clone(names), func(name Interface) bool {
		return slices.ContainsFunc(names, func(other Interface) bool {
			return other != name && among([]Interface{other}, name)
		})
	})
}

// ValidInterface reports whether a text can be an interface's name, or the beginning of some with a
// + behind it. It is stricter than the kernel: letters, digits and a few signs, so that no dialect
// has to quote.
func ValidInterface(name string) bool {
	stem := strings.TrimSuffix(name, "+")
	if stem == "" || stem == "." || stem == ".." || stem[0] == '-' || len(name) > 15 {
		return false
	}
	return !strings.ContainsFunc(stem, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		digit := c >= '0' && c <= '9'
		return !letter && !digit && !strings.ContainsRune("._-@~", c)
	})
}

// outermost sorts prefixes, IPv4 first, and drops those that lie within another.
func outermost(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range prefixes {
		if n := len(out); n > 0 && out[n-1].Contains(p.Addr()) {
			continue
		}
		out = append(out, p)
	}
	return out
}

// mergeIDs sorts ranges and joins those that overlap or touch.
func mergeIDs(ids IDs) IDs {
	slices.SortFunc(ids, func(a, b IDRange) int { return cmp.Compare(a.First, b.First) })
	var out IDs
	for _, r := range ids {
		if n := len(out); n > 0 && uint64(r.First) <= uint64(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}

func sorted[T cmp.Ordered](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
