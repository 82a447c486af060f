package kernelrules

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/legacy"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// fields are where an entry has what it matches: the addresses are its beginning.
type fields struct {
	addr     int // how long an address is
	protocol int
	inverted int
}

var fieldsOf = map[redirect.Family]fields{redirect.IPv4: {4, 80, 83}, redirect.IPv6: {16, 128, 132}}

// ReadLegacy lists the tables of legacy iptables of the namespace of the calling thread, in nft's
// words. Their rules have no handles.
func ReadLegacy() ([]Table, error) {
	var all []Table
	for _, l := range legacy.Layouts {
		names, err := traces.LegacyTables(l.Family)
		if err != nil {
			return nil, err
		}
		slices.Sort(names)
		for _, name := range names {
			read, err := l.Read(name)
			var t Table
			if err == nil {
				t, err = legacyTable(read)
			}
			if err != nil {
				return nil, fmt.Errorf("read table %s of legacy iptables for %s: %w", name,
					l.Family, err)
			}
			all = append(all, t)
		}
	}
	return all, nil
}

// legacyTable says what is in a table. A chain begins at a hook's offset, or behind an entry that
// has its name.
func legacyTable(read legacy.Table) (Table, error) {
	t := Table{Family: read.Layout.Name, Name: read.Name, Flags: "legacy", Chains: []Chain{}}
	entries, err := read.Entries()
	if err != nil {
		return t, err
	}
	begins := map[int]string{} // chains, by offset
	for _, e := range entries {
		if hook, ok := read.Hooks[e.At]; ok {
			begins[e.At] = strings.ToUpper(hookNames[hook])
		}
		if name, ok := e.Begins(); ok {
			begins[e.Next()] = name
		}
	}
	for _, e := range entries {
		if chain, ok := begins[e.At]; ok {
			c := Chain{Name: chain}
			if hook, ok := read.Hooks[e.At]; ok {
				c.Base = base(read.Name, hookNames[hook])
			}
			t.Chains = append(t.Chains, c)
		}
		if _, begins := e.Begins(); begins || len(t.Chains) == 0 {
			continue
		}
		c := &t.Chains[len(t.Chains)-1]
		c.Rules = append(c.Rules, legacyRule(read.Layout, e, begins))
	}
	for i := range t.Chains {
		t.Chains[i].end()
	}
	return t, nil
}

// priorities are the order in which the kernel calls legacy tables at a hook, which it registers
// and does not list (enum nf_ip_hook_priorities); nat's are those of dstnat before the routing
// decision and where packets are made, and of srcnat behind it.
var priorities = map[string]int32{"raw": -300, "mangle": -150, "nat": -100, "filter": 0,
	"security": 50}

// base is what a hook's chain has.
func base(table, hook string) *Base {
	b := &Base{Type: "filter", Hook: hook, Priority: priorities[table], Policy: "accept"}
	if table == "nat" {
		b.Type = "nat"
		if hook == "input" || hook == "postrouting" {
			b.Priority = 100
		}
	}
	return b
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

// The bits by which an entry says that a condition is inverted.
const (
	notIn          = 0x01
	notOut         = 0x02
	notSource      = 0x08
	notDestination = 0x10
	notProtocol    = 0x40
)

// legacyRule reads an entry. begins has the names of the chains that it may jump to.
func legacyRule(l legacy.Layout, e legacy.Entry, begins map[int]string) Rule {
	of := fieldsOf[l.Family]
	w := &words{table: tableKey{family: map[redirect.Family]byte{
		redirect.IPv4: unix.NFPROTO_IPV4, redirect.IPv6: unix.NFPROTO_IPV6}[l.Family]},
		familyAt: -1, protocolAt: -1}
	not := func(bit byte) string {
		if e.Data[of.inverted]&bit != 0 {
			return "!= "
		}
		return ""
	}
	names := 4 * of.addr
	w.device("iifname", not(notIn), e.Data[names:names+16], e.Data[names+32:])
	w.device("oifname", not(notOut), e.Data[names+16:names+32], e.Data[names+48:])
	w.network(l.Name+" saddr", not(notSource), e.Data[:of.addr], e.Data[2*of.addr:3*of.addr])
	w.network(l.Name+" daddr", not(notDestination), e.Data[of.addr:2*of.addr],
		e.Data[3*of.addr:4*of.addr])
	if p := binary.NativeEndian.Uint16(e.Data[of.protocol:]); p != 0 {
		w.protocol, w.protocolAt = protocolKind.text([]byte{byte(p)}), len(w.list)
		w.say("meta l4proto %s%s", not(notProtocol), w.protocol)
	}
	for matches := e.Matches(); len(matches) >= legacy.ExtensionHead; {
		size := int(binary.NativeEndian.Uint16(matches))
		if size < legacy.ExtensionHead || size > len(matches) {
			break
		}
		w.xtMatch(legacy.Extension(matches[:size]))
		matches = matches[size:]
	}
	w.say(counterMark)
	w.verdict(e, begins)
	r := Rule{Text: w.String(), Comment: strings.TrimPrefix(w.comment, iptables.Tag),
		Ours: strings.HasPrefix(w.comment, iptables.Tag), Counter: &Counter{}}
	r.Counter.Packets, r.Counter.Bytes = e.Counter()
	return r
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

// verdict says what an entry does with a packet.
func (w *words) verdict(e legacy.Entry, begins map[int]string) {
	if name, info := e.Target(); name != "" {
		w.xtTarget(name, info)
		return
	}
	const returns = -5
	switch verdict, ok := e.Verdict(); {
	case !ok:
	case verdict == returns:
		w.say("return")
	case verdict < 0:
		w.say("%s", Verdict(uint64(-verdict-1)))
	default:
		if chain, ok := begins[verdict]; ok {
			w.say("jump %s", chain)
		} // else to the entry behind it: a rule without a target
	}
}
