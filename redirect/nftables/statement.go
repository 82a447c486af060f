package nftables

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// statement is a rule of one line, once as nft prints it and once as the kernel takes it. Both are
// written in the same place, condition by condition, so that neither can go its own way.
type statement struct {
	words []string
	exprs []expression
	sets  []*set
	why   string
}

func (s *statement) add(text string, exprs ...expression) {
	s.words = append(s.words, text)
	s.exprs = append(s.exprs, exprs...)
}

// String is the line as nft lists it, counters aside.
func (s *statement) String() string {
	return fmt.Sprintf("%s comment %q", strings.Join(s.words, " "), s.why)
}

// translator turns rules into statements and numbers the sets that they need.
type translator struct{ sets uint32 }

// rule translates one rule: a line for both families or, where it has addresses, one for each
// family that it speaks of.
func (t *translator) rule(r redirect.Rule) []*statement {
	if len(r.If.Source.Prefixes) == 0 && len(r.If.Destination.Prefixes) == 0 &&
		r.Then.Verb != redirect.TProxy {
		return t.lines(r, r.If, 0)
	}
	var lines []*statement
	for _, f := range redirect.Families {
		if m, ok := r.If.For(f); ok {
			lines = append(lines, t.lines(r, m, f)...)
		}
	}
	return lines
}

// lines writes a rule for a family; 0 is both. nft's tproxy lets a packet pass for which nobody
// listens, where iptables' drops it, so a drop follows.
func (t *translator) lines(r redirect.Rule, m redirect.Match, f redirect.Family) []*statement {
	s := &statement{why: r.Why}
	t.match(s, m, f)
	act(s, r.Then, f)
	if r.Then.Verb != redirect.TProxy {
		return []*statement{s}
	}
	unheard := &statement{why: r.Why + ": nobody listens"}
	t.match(unheard, m, f)
	act(unheard, redirect.Action{Verb: redirect.Drop}, f)
	return []*statement{s, unheard}
}

// datatype is what the members of a list are: nft's own number for it, by which it prints them, and
// their length.
type datatype struct{ number, size uint32 }

var (
	ipv4Type = datatype{7, 4}
	ipv6Type = datatype{8, 16}
	portType = datatype{13, 2}
	uidType  = datatype{24, 4}
	gidType  = datatype{25, 4}
)

// operand is what a list or a value is compared with.
type operand struct {
	key  string // as nft calls it
	load expression
	kind datatype
}

func (t *translator) match(s *statement, m redirect.Match, f redirect.Family) {
	matchInterface(s, "iifname", metaIIFName, m.In)
	matchInterface(s, "oifname", metaOIFName, m.Out)
	t.matchFamily(s, m, f)
	t.matchTransport(s, m)
	t.matchIDs(s, operand{"meta skuid", meta(metaSKUID), uidType}, m.UID)
	t.matchIDs(s, operand{"meta skgid", meta(metaSKGID), gidType}, m.GID)
	matchMark(s, "meta mark", meta(metaMark), m.Mark)
	matchMark(s, "ct mark", ct(ctMark), m.ConnMark)
	matchState(s, m.State)
}

func matchInterface(s *statement, key string, which uint32, name redirect.Interface) {
	if name == "" {
		return
	}
	text, data := string(name), make([]byte, interfaceNameSize)
	if stem, ok := strings.CutSuffix(text, "+"); ok {
		text, data = stem+"*", []byte(stem)
	} else {
		copy(data, text)
	}
	s.add(fmt.Sprintf("%s %q", key, text), meta(which), equal(data, false))
}

// matchFamily writes the addresses. They imply their family; without any it is said by itself.
func (t *translator) matchFamily(s *statement, m redirect.Match, f redirect.Family) {
	if f == 0 {
		return
	}
	proto := map[redirect.Family]byte{redirect.IPv4: protoIPv4,
		redirect.IPv6: protoIPv6}[f]
	s.exprs = append(s.exprs, meta(metaNFProto), equal([]byte{proto}, false))
	before := len(s.words)
	source, destination, length := uint32(12), uint32(16), uint32(4)
	key, keyType := "ip", ipv4Type
	if f == redirect.IPv6 {
		source, destination, length = 8, 24, 16
		key, keyType = "ip6", ipv6Type
	}
	load := func(offset uint32) expression { return payload(networkBase, offset, length) }
	t.matchAddresses(s, operand{key + " saddr", load(source), keyType}, m.Source)
	t.matchAddresses(s, operand{key + " daddr", load(destination), keyType}, m.Destination)
	if len(s.words) == before {
		s.words = append(s.words, "meta nfproto "+strings.ToLower(f.String()))
	}
}

func (t *translator) matchAddresses(s *statement, op operand, a redirect.Addresses) {
	ranges := addressRanges(a.Prefixes)
	if len(ranges) == 0 {
		return
	}
	if len(ranges) > 1 {
		t.lookup(s, op, a.Not, addressSet(ranges))
		return
	}
	p, ok := ranges[0].prefix()
	switch {
	case !ok:
		s.add(op.key+" "+ranges[0].String(), op.load)
		s.exprs = append(s.exprs, between(ranges[0].first.AsSlice(), ranges[0].last.AsSlice())...)
	case p.Bits() > 0: // else the family says it all
		s.add(op.key+negated(a.Not)+prefixText(p), op.load)
		s.exprs = append(s.exprs, within(p, a.Not)...)
	}
}

// within compares the loaded address with a prefix.
func within(p netip.Prefix, not bool) []expression {
	same := equal(p.Addr().AsSlice(), not)
	if p.IsSingleIP() {
		return []expression{same}
	}
	return []expression{masked(netmask(p)), same}
}

func netmask(p netip.Prefix) []byte {
	mask := make([]byte, p.Addr().BitLen()/8)
	for bit := range p.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return mask
}

func (t *translator) matchTransport(s *statement, m redirect.Match) {
	if m.Protocol == redirect.AnyProtocol {
		return
	}
	s.exprs = append(s.exprs, meta(metaL4Proto), equal([]byte{byte(m.Protocol)}, false))
	name := strings.ToLower(m.Protocol.String())
	if len(m.SourcePort.List) == 0 && len(m.DestinationPort.List) == 0 {
		s.words = append(s.words, "meta l4proto "+name)
	}
	t.matchPorts(s, name+" sport", 0, m.SourcePort)
	t.matchPorts(s, name+" dport", 2, m.DestinationPort)
}

func (t *translator) matchPorts(s *statement, key string, offset uint32, ports redirect.Ports) {
	load := payload(transport, offset, 2)
	switch len(ports.List) {
	case 0:
	case 1:
		s.add(fmt.Sprintf("%s%s%d", key, negated(ports.Not), ports.List[0]), load,
			equal(big16(ports.List[0]), ports.Not))
	default:
		t.lookup(s, operand{key, load, portType}, ports.Not, portSet(ports.List))
	}
}

// matchIDs matches the owner of the socket. The kernel loads an id in the host's byte order, in
// which ranges cannot be compared, so it is turned around for them.
func (t *translator) matchIDs(s *statement, op operand, ids redirect.IDs) {
	switch {
	case len(ids) == 0:
	case len(ids) == 1 && ids[0].First == ids[0].Last:
		s.add(fmt.Sprintf("%s %d", op.key, ids[0].First), op.load,
			equal(native32(ids[0].First), false))
	case len(ids) == 1:
		s.add(fmt.Sprintf("%s %d-%d", op.key, ids[0].First, ids[0].Last), op.load, swapped())
		s.exprs = append(s.exprs,
			between(big32(ids[0].First),
				big32(ids[0].Last))...)
	default:
		s.exprs = append(s.exprs, op.load)
		t.lookup(s, operand{op.key, swapped(), op.kind}, false, idSet(ids))
	}
}

// lookup tests the loaded value against a list.
func (t *translator) lookup(s *statement, op operand, not bool, list *set) {
	t.sets++
	list.id, list.key, list.size = t.sets, op.kind.number, op.kind.size
	s.sets = append(s.sets, list)
	s.add(fmt.Sprintf("%s%s{ %s }", op.key, negated(not), strings.Join(list.text, ", ")), op.load,
		lookup(list.id, not))
}

func matchMark(s *statement, key string, load expression, m redirect.Mark) {
	if m.Value == 0 {
		return
	}
	s.add(fmt.Sprintf("%s%s0x%08x", key, negated(m.Not), m.Value), load,
		equal(native32(m.Value), m.Not))
}

// stateBits are the kernel's own numbers, in the order in which nft prints them.
var stateBits = []struct {
	state redirect.State
	bit   uint32
}{
	{redirect.Invalid, 1},
	{redirect.Established, 2},
	{redirect.Related, 4},
	{redirect.New, 8},
}

func matchState(s *statement, state redirect.State) {
	var names []string
	var mask uint32
	for _, one := range stateBits {
		if state&one.state != 0 {
			names = append(names, one.state.String())
			mask |= one.bit
		}
	}
	if mask == 0 {
		return
	}
	s.add("ct state "+strings.Join(names, ","),
		ct(ctState),
		masked(native32(mask)), equal(make([]byte, 4), true))
}

// act writes what happens, behind a counter.
func act(s *statement, a redirect.Action, f redirect.Family) {
	s.add("counter", counter())
	switch a.Verb {
	case redirect.Return:
		s.add("return", verdict(returns, ""))
	case redirect.Accept:
		s.add("accept", verdict(accept, ""))
	case redirect.Drop:
		s.add("drop", verdict(drop, ""))
	case redirect.Jump:
		s.add("jump "+a.Chain, verdict(jump, a.Chain))
	case redirect.Redirect:
		s.add(fmt.Sprintf("redirect to :%d", a.Port), load(big16(a.Port)),
			redirection())
	case redirect.TProxy:
		protocol, name := uint32(protoIPv4), "ip"
		if f == redirect.IPv6 {
			protocol, name = protoIPv6, "ip6"
		}
		s.add(fmt.Sprintf("tproxy %s to :%d", name, a.Port),
			load(big16(a.Port)),
			handOver(protocol))
		setMark(s, a.Mark)
		s.add("accept", verdict(accept, ""))
	case redirect.SetMark:
		setMark(s, a.Mark)
	case redirect.SaveMark:
		s.add("ct mark set meta mark", meta(metaMark),
			storeCt(ctMark))
	case redirect.RestoreMark:
		s.add("meta mark set ct mark", ct(ctMark),
			storeMeta(metaMark))
	case redirect.SetZone:
		s.add(fmt.Sprintf("ct zone set %d", a.Zone),
			load(native16(a.Zone)),
			storeCt(ctZone))
	}
}

func setMark(s *statement, mark uint32) {
	s.add(fmt.Sprintf("meta mark set 0x%08x", mark), load(native32(mark)),
		storeMeta(metaMark))
}

func negated(not bool) string {
	if not {
		return " != "
	}
	return " "
}
