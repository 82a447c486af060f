package kernelrules

import (
	"fmt"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// words are what the expressions of a rule say, in nft's words. An expression loads a value into a
// register, and one behind it compares it, or does something with it.
type words struct {
	reader  *reader
	table   tableKey
	list    []string
	counter *Counter
	comment string // where iptables-nft keeps it: in a match

	registers map[uint64]operand
	from      string // the lower bound of a range, whose upper one comes next

	// The words that say the family and the protocol, and where they stand in list. They are
	// implied by words about addresses and ports.
	family, protocol string
	familyAt         int
	protocolAt       int
}

// operand is what a register holds: something of the packet, or a value of the rule.
type operand struct {
	name  string // of what the packet has, "" for a value
	kind  kind
	value []byte // of the rule
	mask  []byte // those of its bits that count, nil: all
}

func (w *words) String() string { return strings.Join(w.list, " ") }

func (w *words) say(format string, args ...any) {
	w.list = append(w.list, fmt.Sprintf(format, args...))
}

// add reads an expression.
func (w *words) add(data []byte) error {
	attrs, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return err
	}
	name := text(attrs, unix.NFTA_EXPR_NAME)
	list, err := netlink.UnmarshalAttributes(wire.Find(attrs, unix.NFTA_EXPR_DATA))
	if err != nil {
		return err
	}
	if w.registers == nil {
		w.registers, w.familyAt, w.protocolAt = map[uint64]operand{}, -1, -1
	}
	e := expression{name, list}
	read, known := map[string]func(expression) error{
		"meta": w.meta, "payload": w.payload, "ct": w.ct, "cmp": w.cmp, "bitwise": w.bitwise,
		"byteorder": w.byteorder, "lookup": w.lookup, "immediate": w.immediate,
		"counter": w.count, "redir": w.redir, "tproxy": w.tproxy, "match": w.match,
		"target": w.target,
	}[name]
	if !known {
		w.say("[%s]", name)
		return nil
	}
	return read(e)
}

// expression is one of a rule's.
type expression struct {
	name  string
	attrs []netlink.Attribute
}

func (e expression) number(kind uint16) uint64 { return wire.Unsigned(wire.Find(e.attrs, kind)) }

func (e expression) has(kind uint16) bool { return wire.Find(e.attrs, kind) != nil }

// value is the data of an attribute that holds some.
func (e expression) value(kind uint16) ([]byte, error) {
	inner, err := netlink.UnmarshalAttributes(wire.Find(e.attrs, kind))
	return wire.Find(inner, unix.NFTA_DATA_VALUE), err
}

func (w *words) meta(e expression) error {
	of := operandOf(metas, "meta", e.number(unix.NFTA_META_KEY))
	w.move(of, e, unix.NFTA_META_SREG, unix.NFTA_META_DREG)
	return nil
}

func (w *words) ct(e expression) error {
	of := operandOf(cts, "ct", e.number(unix.NFTA_CT_KEY))
	w.move(of, e, unix.NFTA_CT_SREG, unix.NFTA_CT_DREG)
	return nil
}

func operandOf(known map[uint64]operand, what string, key uint64) operand {
	if of, ok := known[key]; ok {
		return of
	}
	return operand{name: fmt.Sprintf("[%s %d]", what, key)}
}

// move has an expression set something from a register, or load it into one.
func (w *words) move(of operand, e expression, from, into uint16) {
	if e.has(from) {
		w.say("%s set %s", of.name, w.source(e.number(from), of.kind))
		return
	}
	w.registers[e.number(into)] = of
}

// source says what a register holds that something is set to.
func (w *words) source(register uint64, as kind) string {
	from := w.registers[register]
	if from.name != "" {
		return from.name
	}
	return as.text(from.value)
}

func (w *words) payload(e expression) error {
	base, offset := e.number(unix.NFTA_PAYLOAD_BASE), e.number(unix.NFTA_PAYLOAD_OFFSET)
	length := e.number(unix.NFTA_PAYLOAD_LEN)
	if e.has(unix.NFTA_PAYLOAD_SREG) {
		w.say("[payload set]")
		return nil
	}
	var of operand
	switch {
	case base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && length == 2 && offset <= 2:
		of = operand{name: w.port(offset), kind: portKind}
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER:
		of = w.address(offset, length)
	default:
		of = operand{name: fmt.Sprintf("@%d,%d,%d", base, offset*8, length*8)}
	}
	w.registers[e.number(unix.NFTA_PAYLOAD_DREG)] = of
	return nil
}

// port names the source's or the destination's, which implies the protocol.
func (w *words) port(offset uint64) string {
	protocol := w.protocol
	if protocol == "" {
		protocol = "th"
	}
	w.imply(&w.protocolAt)
	return protocol + map[bool]string{true: " sport", false: " dport"}[offset == 0]
}

// address names the source's or the destination's. Of a network nft loads no more than it has to.
func (w *words) address(offset, length uint64) operand {
	family := w.family
	switch w.table.family {
	case unix.NFPROTO_IPV4:
		family = "ipv4"
	case unix.NFPROTO_IPV6:
		family = "ipv6"
	}
	name, known := map[string]string{
		"ipv4 12": "ip saddr", "ipv4 16": "ip daddr", "ipv6 8": "ip6 saddr", "ipv6 24": "ip6 daddr",
	}[fmt.Sprint(family, " ", offset)]
	size := map[string]uint64{"ipv4": 4, "ipv6": 16}[family]
	if !known || length > size {
		return operand{name: fmt.Sprintf("@nh,%d,%d", offset*8, length*8)}
	}
	w.imply(&w.familyAt)
	of := operand{name: name, kind: addressKind}
	if length < size {
		of.mask = make([]byte, length)
		for i := range of.mask {
			of.mask[i] = 0xff
		}
	}
	return of
}

// imply takes back a word that a later one says as well.
func (w *words) imply(at *int) {
	if *at < 0 {
		return
	}
	w.list = append(w.list[:*at], w.list[*at+1:]...)
	removed := *at
	for _, other := range []*int{&w.familyAt, &w.protocolAt} {
		if *other > removed {
			*other--
		}
	}
	*at = -1
}

func (w *words) count(e expression) error {
	w.counter = &Counter{Packets: e.number(unix.NFTA_COUNTER_PACKETS),
		Bytes: e.number(unix.NFTA_COUNTER_BYTES)}
	w.say(counterMark)
	return nil
}

func (w *words) byteorder(e expression) error {
	of := w.registers[e.number(unix.NFTA_BYTEORDER_SREG)]
	of.kind = of.kind.swapped()
	w.registers[e.number(unix.NFTA_BYTEORDER_DREG)] = of
	return nil
}

func (w *words) bitwise(e expression) error {
	of := w.registers[e.number(unix.NFTA_BITWISE_SREG)]
	mask, err := e.value(unix.NFTA_BITWISE_MASK)
	of.mask = mask
	w.registers[e.number(unix.NFTA_BITWISE_DREG)] = of
	return err
}

// verdicts are what ends the way through a chain (linux/netfilter.h, linux/netfilter/nf_tables.h).
var verdicts = map[int32]string{0: "drop", 1: "accept", 2: "stolen", 3: "queue", -1: "continue",
	-2: "break", -3: "jump", -4: "goto", -5: "return"}

func (w *words) immediate(e expression) error {
	data, err := netlink.UnmarshalAttributes(wire.Find(e.attrs, unix.NFTA_IMMEDIATE_DATA))
	if err != nil {
		return err
	}
	register := e.number(unix.NFTA_IMMEDIATE_DREG)
	if register != unix.NFT_REG_VERDICT {
		w.registers[register] = operand{value: wire.Find(data, unix.NFTA_DATA_VALUE)}
		return nil
	}
	verdict, err := netlink.UnmarshalAttributes(wire.Find(data, unix.NFTA_DATA_VERDICT))
	if err != nil {
		return err
	}
	word := Verdict(wire.Unsigned(wire.Find(verdict, unix.NFTA_VERDICT_CODE)))
	if chain := text(verdict, unix.NFTA_VERDICT_CHAIN); chain != "" {
		word += " " + chain
	}
	w.say("%s", word)
	return nil
}

// Verdict is the word for a verdict's number as netlink has it.
func Verdict(code uint64) string {
	word, known := verdicts[int32(uint32(code))]
	if !known {
		return fmt.Sprintf("[verdict %d]", int32(uint32(code)))
	}
	return word
}

func (w *words) redir(e expression) error {
	if !e.has(unix.NFTA_REDIR_REG_PROTO_MIN) {
		w.say("redirect")
		return nil
	}
	w.say("redirect to :%s", w.source(e.number(unix.NFTA_REDIR_REG_PROTO_MIN), portKind))
	return nil
}

// The attributes of tproxy (linux/netfilter/nf_tables.h).
const (
	tproxyFamily = 1
	tproxyPort   = 3
)

func (w *words) tproxy(e expression) error {
	family := map[uint64]string{unix.NFPROTO_IPV4: " ip", unix.NFPROTO_IPV6: " ip6"}
	w.say("tproxy%s to :%s", family[e.number(tproxyFamily)],
		w.source(e.number(tproxyPort), portKind))
	return nil
}
