package kernelrules

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// layout is how the kernel keeps the rules of a family of legacy iptables: where in an entry its
// fields are (struct ipt_entry, linux/netfilter_ipv4/ip_tables.h, and its neighbour for IPv6).
type layout struct {
	name     string
	family   redirect.Family
	domain   int
	level    int
	addr     int // how long an address is
	protocol int
	inverted int
	targets  int // the offset of the target, and behind it that of the next entry
	counters int
	matches  int
}

var layouts = []layout{
	{"ip", redirect.IPv4, unix.AF_INET, unix.IPPROTO_IP, 4, 80, 83, 88, 96, 112},
	{"ip6", redirect.IPv6, unix.AF_INET6, unix.IPPROTO_IPV6, 16, 128, 132, 140, 152, 168},
}

// The kernel's interface (linux/netfilter/x_tables.h).
const (
	legacyInfo    = 64
	legacyEntries = 65
	infoLen       = 84 // struct ipt_getinfo, whose last word is the length of the entries
	entriesHead   = 40 // of struct ipt_get_entries
	tableNameLen  = 32
	extensionHead = 32 // of a match or a target: its length, its name, its revision
	maxLegacy     = 16 << 20
)

var errBroken = errors.New("the kernel's table is not as linux/netfilter_ipv4/ip_tables.h says")

// ReadLegacy lists the tables of legacy iptables of the namespace of the calling thread, in nft's
// words. Their rules have no handles.
func ReadLegacy() ([]Table, error) {
	var all []Table
	for _, l := range layouts {
		names, err := traces.LegacyTables(l.family)
		if err != nil {
			return nil, err
		}
		slices.Sort(names)
		for _, name := range names {
			t, err := l.read(name)
			if err != nil {
				return nil, fmt.Errorf("read table %s of legacy iptables for %s: %w", name,
					l.family, err)
			}
			all = append(all, t)
		}
	}
	return all, nil
}

// read reads a table. One that changed its length meanwhile is read again.
func (l layout) read(name string) (Table, error) {
	fd, err := unix.Socket(l.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Table{}, err
	}
	defer unix.Close(fd)
	const tries = 5
	for range tries {
		info := make([]byte, infoLen)
		copy(info, name)
		if err := wire.Getsockopt(fd, l.level, legacyInfo, info); err != nil {
			return Table{}, err
		}
		size := binary.NativeEndian.Uint32(info[infoLen-4:])
		if size > maxLegacy {
			return Table{}, wire.ErrTooMuch
		}
		all := make([]byte, entriesHead+int(size))
		copy(all, name)
		binary.NativeEndian.PutUint32(all[tableNameLen:], size)
		err := wire.Getsockopt(fd, l.level, legacyEntries, all)
		if err == nil {
			return l.parse(name, hooksOf(info), all[entriesHead:])
		}
		if !errors.Is(err, unix.EAGAIN) {
			return Table{}, err
		}
	}
	return Table{}, errors.New("it changed while it was read, again and again")
}

// hooksOf returns where the chains of hooks begin: behind the name of the table is a bit for each
// hook that it has, and then the offset of each.
func hooksOf(info []byte) map[int]string {
	hooks := map[int]string{}
	valid := binary.NativeEndian.Uint32(info[tableNameLen:])
	for hook := range unix.NF_INET_NUMHOOKS {
		if valid&(1<<hook) != 0 {
			at := int(binary.NativeEndian.Uint32(info[tableNameLen+4*(1+hook):]))
			hooks[at] = hookNames[hook]
		}
	}
	return hooks
}

// legacyEntry is one of a table, at an offset.
type legacyEntry struct {
	layout
	at   int
	data []byte
}

func (l layout) entry(table []byte, at int) (legacyEntry, error) {
	rest := table[at:]
	if len(rest) < l.matches {
		return legacyEntry{}, errBroken
	}
	next := int(binary.NativeEndian.Uint16(rest[l.targets+2:]))
	if next < l.matches || next > len(rest) {
		return legacyEntry{}, errBroken
	}
	e := legacyEntry{l, at, rest[:next]}
	if target := e.target(); target < l.matches || next < target+extensionHead+4 {
		return legacyEntry{}, errBroken
	}
	return e, nil
}

func (e legacyEntry) target() int { return int(binary.NativeEndian.Uint16(e.data[e.targets:])) }

// parse reads the entries of a table. A chain begins at a hook's offset, or behind an entry with
// the target ERROR, which has its name.
func (l layout) parse(name string, hooks map[int]string, data []byte) (Table, error) {
	t := Table{Family: l.name, Name: name, Flags: "legacy", Chains: []Chain{}}
	begins := map[int]string{} // chains, by offset
	var entries []legacyEntry
	for at := 0; at < len(data); {
		e, err := l.entry(data, at)
		if err != nil {
			return t, err
		}
		entries = append(entries, e)
		at += len(e.data)
		if hook, ok := hooks[e.at]; ok {
			begins[e.at] = strings.ToUpper(hook)
		}
		if kind, info := extension(e.data[e.target():]); kind == "ERROR" {
			begins[at] = wire.Text(info)
		}
	}
	for _, e := range entries {
		if chain, ok := begins[e.at]; ok && e.at < len(data) {
			t.Chains = append(t.Chains, Chain{Name: chain, Base: base(name, hooks[e.at])})
		}
		if kind, _ := extension(e.data[e.target():]); kind == "ERROR" || len(t.Chains) == 0 {
			continue
		}
		c := &t.Chains[len(t.Chains)-1]
		c.Rules = append(c.Rules, e.rule(begins))
	}
	for i := range t.Chains {
		t.Chains[i].end()
	}
	return t, nil
}

// base is what a hook's chain has. Legacy tables have no order that a number would say.
func base(table, hook string) *Base {
	if hook == "" {
		return nil
	}
	return &Base{Type: map[bool]string{true: "nat", false: "filter"}[table == "nat"], Hook: hook,
		Policy: "accept"}
}

// end takes the last rule of a chain for what it is: the policy, which nobody wrote as a rule.
func (c *Chain) end() {
	if len(c.Rules) == 0 {
		return
	}
	last := c.Rules[len(c.Rules)-1]
	c.Rules = c.Rules[:len(c.Rules)-1]
	if c.Base != nil && strings.HasSuffix(last.Text, "drop") {
		c.Base.Policy = "drop"
	}
}

// extension reads the name and the parameters of a match or a target.
func extension(data []byte) (string, []byte) {
	return wire.Text(data[2 : extensionHead-1]), data[extensionHead:]
}

// The bits by which an entry says that a condition is inverted.
const (
	notIn          = 0x01
	notOut         = 0x02
	notSource      = 0x08
	notDestination = 0x10
	notProtocol    = 0x40
)

// rule reads an entry. begins has the names of the chains that it may jump to.
func (e legacyEntry) rule(begins map[int]string) Rule {
	w := &words{table: tableKey{family: map[redirect.Family]byte{
		redirect.IPv4: unix.NFPROTO_IPV4, redirect.IPv6: unix.NFPROTO_IPV6}[e.family]},
		familyAt: -1, protocolAt: -1}
	not := func(bit byte) string {
		if e.data[e.inverted]&bit != 0 {
			return "!= "
		}
		return ""
	}
	names := 4 * e.addr
	w.device("iifname", not(notIn), e.data[names:names+16], e.data[names+32:])
	w.device("oifname", not(notOut), e.data[names+16:names+32], e.data[names+48:])
	w.network(e.name+" saddr", not(notSource), e.data[:e.addr], e.data[2*e.addr:3*e.addr])
	w.network(e.name+" daddr", not(notDestination), e.data[e.addr:2*e.addr],
		e.data[3*e.addr:4*e.addr])
	if p := binary.NativeEndian.Uint16(e.data[e.protocol:]); p != 0 {
		w.protocol, w.protocolAt = protocolKind.text([]byte{byte(p)}), len(w.list)
		w.say("meta l4proto %s%s", not(notProtocol), w.protocol)
	}
	for at := e.matches; at+extensionHead <= e.target(); {
		size := int(binary.NativeEndian.Uint16(e.data[at:]))
		if size < extensionHead || at+size > e.target() {
			break
		}
		w.xtMatch(extension(e.data[at : at+size]))
		at += size
	}
	w.say(counterMark)
	w.verdict(e, begins)
	return Rule{Text: w.String(), Comment: strings.TrimPrefix(w.comment, iptables.Tag),
		Ours: strings.HasPrefix(w.comment, iptables.Tag), Counter: &Counter{
			Packets: binary.NativeEndian.Uint64(e.data[e.counters:]),
			Bytes:   binary.NativeEndian.Uint64(e.data[e.counters+8:])}}
}

// device says an interface, of whose name the mask tells how much counts.
func (w *words) device(word, not string, name, mask []byte) {
	if name[0] == 0 {
		return
	}
	counts := bytes.TrimRight(mask[:16], "\x00")
	w.say("%s %s%s", word, not, nameKind.text(name[:len(counts)]))
}

func (w *words) network(word, not string, addr, mask []byte) {
	switch {
	case isZero(mask, make([]byte, len(mask))):
		return
	case isZero([]byte{0xff}, mask[len(mask)-1:]) && isPrefix(mask):
		w.say("%s %s%s", word, not, addressKind.text(addr))
	default:
		w.say("%s %s%s", word, not, networkText(addr, mask, len(addr)))
	}
}

// verdict says what an entry does with a packet. The standard target, which has no name, jumps to
// an offset, or it is a verdict below zero.
func (w *words) verdict(e legacyEntry, begins map[int]string) {
	name, info := extension(e.data[e.target():])
	if name != "" {
		w.xtTarget(name, info)
		return
	}
	const returns = -5
	switch verdict := int32(binary.NativeEndian.Uint32(info)); {
	case verdict == returns:
		w.say("return")
	case verdict < 0:
		w.say("%s", Verdict(uint64(-verdict-1)))
	default:
		if chain, ok := begins[int(verdict)]; ok {
			w.say("jump %s", chain)
		} // else to the entry behind it: a rule without a target
	}
}
