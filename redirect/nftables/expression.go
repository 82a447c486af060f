package nftables

import "encoding/binary"

// expression is a step of a rule as the kernel takes it: a name and attributes. It is written out
// here since the libraries for it are built for Linux alone, and rules are shown everywhere.
type expression struct {
	name  string
	attrs []attribute
}

// attribute is a value or, if that is nil, more attributes.
type attribute struct {
	kind  uint16
	value []byte
	inner []attribute
}

// register is the only one that our rules need: a condition is tested as soon as it is loaded.
const register = 1

// Numbers of linux/netfilter.h and linux/netfilter/nf_tables.h: hooks and verdicts, protocols, what
// is loaded, comparisons, flags.
const (
	prerouting = 0
	output     = 3

	drop       = 0
	accept     = 1
	jump       = -3
	returns    = -5
	verdictReg = 0

	protoIPv4 = 2
	protoIPv6 = 10

	interfaceNameSize = 16

	metaMark     = 3
	metaIIFName  = 6
	metaOIFName  = 7
	metaSKUID    = 10
	metaSKGID    = 11
	metaNFProto  = 15
	metaL4Proto  = 16
	ctState      = 0
	ctMark       = 3
	ctZone       = 17
	networkBase  = 1
	transport    = 2
	equals       = 0
	differs      = 1
	atMost       = 3
	atLeast      = 5
	toNetwork    = 1
	inverted     = 1
	portIsStated = 2
)

// The numbers of attributes below are those of the same header, such as NFTA_META_KEY.

// value is an attribute with a number.
func value(kind uint16, n uint32) attribute { return attribute{kind: kind, value: big32(n)} }

// data is the attribute of a value or a verdict (NFTA_DATA_VALUE), within another.
func data(kind uint16, value []byte) attribute {
	return attribute{kind: kind, inner: []attribute{{kind: 1, value: value}}}
}

func zeroEnded(kind uint16, name string) attribute {
	return attribute{kind: kind, value: append([]byte(name), 0)}
}

// meta loads what the kernel knows of a packet.
func meta(key uint32) expression {
	return expression{"meta", []attribute{value(2, key), value(1, register)}}
}

func storeMeta(key uint32) expression {
	return expression{"meta", []attribute{value(2, key), value(3, register)}}
}

// ct loads what connection tracking knows of a packet.
func ct(key uint32) expression {
	return expression{"ct", []attribute{value(2, key), value(1, register)}}
}

func storeCt(key uint32) expression {
	return expression{"ct", []attribute{value(2, key), value(4, register)}}
}

// payload loads bytes of a packet's header.
func payload(base, offset, length uint32) expression {
	return expression{"payload", []attribute{value(1, register), value(2, base),
		value(3, offset), value(4, length)}}
}

func compare(how uint32, with []byte) expression {
	return expression{"cmp", []attribute{value(1, register), value(2, how), data(3, with)}}
}

// equal compares for being the same, or with not for being another.
func equal(with []byte, not bool) expression {
	if not {
		return compare(differs, with)
	}
	return compare(equals, with)
}

// between compares with the bounds of a range, both of which are in it.
func between(first, last []byte) []expression {
	return []expression{compare(atLeast, first), compare(atMost, last)}
}

func masked(mask []byte) expression {
	return expression{"bitwise", []attribute{value(1, register), value(2, register),
		value(3, uint32(len(mask))), data(4, mask), data(5, make([]byte, len(mask)))}}
}

// swapped turns a number of 32 bits into the order of the network.
func swapped() expression {
	return expression{"byteorder", []attribute{value(1, register), value(2, register),
		value(3, toNetwork), value(4, 4), value(5, 4)}}
}

// lookup tests for being in a set.
func lookup(id uint32, not bool) expression {
	attrs := []attribute{value(2, register)}
	if not {
		attrs = append(attrs, value(5, inverted))
	}
	return expression{"lookup", append(attrs, zeroEnded(1, anonymous), value(4, id))}
}

func counter() expression {
	return expression{"counter", []attribute{{kind: 1, value: make([]byte, 8)},
		{kind: 2, value: make([]byte, 8)}}}
}

func load(what []byte) expression {
	return expression{"immediate", []attribute{value(1, register), data(2, what)}}
}

// verdict ends the rule; chain is where a jump leads.
func verdict(code int32, chain string) expression {
	attrs := []attribute{value(1, uint32(code))}
	if chain != "" {
		attrs = append(attrs, zeroEnded(2, chain))
	}
	return expression{"immediate", []attribute{value(1, verdictReg),
		{kind: 2, inner: []attribute{{kind: 2, inner: attrs}}}}}
}

// redirection rewrites the destination to the port that is loaded.
func redirection() expression {
	return expression{"redir", []attribute{value(1, register), value(2, register),
		value(3, portIsStated)}}
}

// handOver gives a packet to who listens on the port that is loaded.
func handOver(protocol uint32) expression {
	return expression{"tproxy", []attribute{value(1, protocol), value(3, register)}}
}

func big16(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

func big32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func native16(n uint16) []byte { return binary.NativeEndian.AppendUint16(nil, n) }

func native32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
