package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// reader puts an option's value into the rule.
type reader func(d *draft, value string, not bool) error

// asks reads a value as a condition: one of the fields is in the set, or with ! none of them is.
func asks(read func(redirect.Family, string) (packet.Set, error), fields ...packet.Field) reader {
	return func(d *draft, value string, not bool) error {
		set, err := read(d.family, value)
		var tests []test
		for _, f := range fields {
			tests = append(tests, test{f, set, not})
		}
		d.needs(not, tests...)
		return err
	}
}

// needs adds tests to the rule, all of which or one of which must hold.
func (d *draft) needs(all bool, tests ...test) {
	for all && len(tests) > 1 {
		d.needs(false, tests[0])
		tests = tests[1:]
	}
	d.rule.conditions = append(d.rule.conditions, tests)
}

// asksOwner knows that a packet without a socket has no owner, and so meets what is negated.
func asksOwner(f packet.Field) reader {
	return func(d *draft, value string, not bool) error {
		set, err := numbers(value, "-", 32)
		d.needs(!not, test{packet.Socket, packet.Range(1, 1), not}, test{f, set, not})
		return err
	}
}

// asksConnMark knows that an invalid packet has no connection, and meets not even what is negated.
func asksConnMark(d *draft, value string, not bool) error {
	d.needs(true, test{packet.State, packet.Numbers(redirect.Invalid), true})
	return asks(marks, packet.ConnMark)(d, value, not)
}

func asksProtocol(d *draft, value string, not bool) error {
	p, known := protocols[strings.ToLower(value)]
	if n, err := number(value, 8); err == nil {
		p, known = redirect.Protocol(n), true
	}
	set := packet.Numbers(p)
	if p == redirect.AnyProtocol {
		set = packet.Range(0, math.MaxUint8)
	}
	d.needs(true, test{packet.Protocol, set, not})
	if !not {
		d.protocol = p
	}
	if !known {
		return wanted("a protocol", value)
	}
	return nil
}

// protocols are those that iptables knows by name without the help of the host.
var protocols = map[string]redirect.Protocol{"all": 0, "icmp": 1, "tcp": 6, "udp": 17, "dccp": 33,
	"gre": 47, "esp": 50, "ah": 51, "icmpv6": 58, "ipv6-icmp": 58, "sctp": 132, "udplite": 136}

// sets reads a number that is no condition. Marks may have all bits as their mask.
func sets(bits int, set func(*rule, uint32)) reader {
	return func(d *draft, value string, not bool) error {
		n, err := wholeMark(value, bits)
		if set(d.rule, n); not {
			return errors.New("cannot be negated")
		}
		return err
	}
}

func setPort(r *rule, n uint32) { r.port = uint16(n) }
func setZone(r *rule, n uint32) { r.zone = uint16(n) }
func setMark(r *rule, n uint32) { r.mark = &n }

// setTProxyMark knows what iptables-save prints for TPROXY without a mark.
func setTProxyMark(d *draft, value string, not bool) error {
	if value == "0x0/0x0" && !not {
		return nil
	}
	return sets(32, setMark)(d, value, not)
}

// only reads a value that must be one of these; without any, it does not matter.
func only(values ...string) reader {
	return func(_ *draft, value string, not bool) error {
		if not || len(values) > 0 && !slices.Contains(values, value) {
			return wanted(strings.Join(values, " or "), value)
		}
		return nil
	}
}

func wanted(what, value string) error { return fmt.Errorf("%.40q: want %s", value, what) }

// number reads a number as C does: 0x begins a hexadecimal one, 0 an octal one.
func number(s string, bits int) (uint32, error) {
	n, err := strconv.ParseUint(s, 0, bits)
	if err != nil || strings.ContainsAny(s, "_oO") || strings.HasPrefix(strings.ToLower(s), "0b") {
		return 0, wanted(fmt.Sprintf("a number of %d bits", bits), s)
	}
	return uint32(n), nil
}

func wholeMark(s string, bits int) (uint32, error) {
	value, mask, masked := strings.Cut(s, "/")
	if n, err := number(mask, 32); masked && (bits < 32 || err != nil || n != math.MaxUint32) {
		return 0, wanted("a number without a mask, or of 32 bits with 0xffffffff", s)
	}
	return number(value, bits)
}

func marks(_ redirect.Family, s string) (packet.Set, error) {
	n, err := wholeMark(s, 32)
	return packet.Numbers(n), err
}

// numbers reads a number, or two with a sign between them.
func numbers(s, sign string, bits int) (packet.Set, error) {
	from, to, two := strings.Cut(s, sign)
	first, err := number(from, bits)
	last := first
	if two && err == nil {
		last, err = number(to, bits)
	}
	if err == nil && first > last {
		err = wanted("the lower number first", s)
	}
	return packet.Range(first, last), err
}

// ports reads a port, or two of which one may be missing.
func ports(_ redirect.Family, s string) (packet.Set, error) {
	if strings.HasPrefix(s, ":") {
		s = "0" + s
	}
	if strings.HasSuffix(s, ":") {
		s += strconv.Itoa(math.MaxUint16)
	}
	return numbers(s, ":", 16)
}

func portList(_ redirect.Family, s string) (all packet.Set, err error) {
	const most = 15
	if strings.Count(s, ",") >= most {
		return all, wanted(fmt.Sprintf("at most %d ports", most), s)
	}
	for item := range strings.SplitSeq(s, ",") {
		set, err := numbers(item, ":", 16)
		if err != nil {
			return all, err
		}
		all = packet.Union(all, set)
	}
	return all, nil
}

func states(_ redirect.Family, s string) (all packet.Set, err error) {
	for word := range strings.SplitSeq(s, ",") {
		i := slices.IndexFunc(redirect.States,
			func(s redirect.State) bool { return strings.EqualFold(s.String(), word) })
		if i < 0 {
			return all, wanted("new, established, related or invalid", word)
		}
		all = packet.Union(all, packet.Numbers(redirect.States[i]))
	}
	return all, nil
}

func names(_ redirect.Family, s string) (packet.Set, error) {
	if s == "" || len(s) > 15 {
		return packet.Set{}, wanted("a name of 1 to 15 bytes", s)
	}
	return packet.Names(redirect.Interface(s)), nil
}

// network reads an address, alone or with the length or, for IPv4, the bits of a mask.
func network(f redirect.Family, s string) (packet.Set, error) {
	address, mask, masked := strings.Cut(s, "/")
	a, _ := netip.ParseAddr(address)
	if m, err := netip.ParseAddr(mask); err == nil && m.Is4() {
		four := m.As4()
		n := binary.BigEndian.Uint32(four[:])
		if mask = "none"; n<<bits.OnesCount32(n) == 0 {
			mask = strconv.Itoa(bits.OnesCount32(n))
		}
	} else if !masked {
		mask = strconv.Itoa(a.BitLen())
	}
	p, err := netip.ParsePrefix(address + "/" + mask)
	if err != nil || redirect.FamilyOf(p.Addr()) != f {
		return packet.Set{}, wanted("an "+f.String()+" network", s)
	}
	return packet.Networks(p), nil
}
