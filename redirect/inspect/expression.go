package inspect

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// An evaluation goes through the expressions of a rule of nft, in their order: each leaves values
// in registers, where those behind it find them.
type evaluation struct {
	reader *nftReader
	family byte
	table  string
	loads  []load
	rule   rule
}

// A load is what an expression put into a register: one value, or one of those that a map has.
type load struct {
	at     int // the register's place among them all, in bytes
	values [][]byte
}

// add reads an expression.
func (e *evaluation) add(data []byte) error {
	one, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return err
	}
	attrs, err := netlink.UnmarshalAttributes(wire.Find(one, unix.NFTA_EXPR_DATA))
	if err != nil {
		return err
	}
	switch wire.Text(wire.Find(one, unix.NFTA_EXPR_NAME)) {
	case "immediate":
		value, err := readData(wire.Find(attrs, unix.NFTA_IMMEDIATE_DATA))
		if err != nil {
			return err
		}
		e.take(number(wire.Find(attrs, unix.NFTA_IMMEDIATE_DREG)), []element{value})
	case "lookup":
		into := wire.Find(attrs, unix.NFTA_LOOKUP_DREG)
		if into == nil {
			return nil // in a set: it is a condition
		}
		elements, err := e.reader.elementsOf(e.family, e.table,
			wire.Text(wire.Find(attrs, unix.NFTA_LOOKUP_SET)))
		if err != nil {
			return err
		}
		e.take(number(into), elements)
	case "counter":
		if packets := wire.Find(attrs, unix.NFTA_COUNTER_PACKETS); len(packets) == 8 {
			e.rule.counted, e.rule.packets = true, binary.BigEndian.Uint64(packets)
		}
	case "redir":
		e.redirects(e.ports(attrs, unix.NFTA_REDIR_REG_PROTO_MIN, unix.NFTA_REDIR_REG_PROTO_MAX))
	case "tproxy":
		const registerOfPort = 3 // NFTA_TPROXY_REG_PORT (linux/netfilter/nf_tables.h)
		e.redirects(e.ports(attrs, registerOfPort, 0))
	case "nat":
		if number(wire.Find(attrs, unix.NFTA_NAT_TYPE)) == unix.NFT_NAT_DNAT {
			ports := e.ports(attrs, unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX)
			e.redirects(ports && e.local(attrs))
		}
	case "target": // an extension of iptables, behind iptables-nft
		t := xtTarget{
			name: wire.Text(wire.Find(attrs, unix.NFTA_TARGET_NAME)),
			info: wire.Find(attrs, unix.NFTA_TARGET_INFO),
			ipv6: e.family == unix.NFPROTO_IPV6,
		}
		if t.redirects() {
			e.redirects(t.captures(e.reader.proxy))
		}
	}
	return nil
}

func (e *evaluation) redirects(captures bool) {
	e.rule.redirects, e.rule.captures = true, e.rule.captures || captures
}

// take notes what comes into a register. That of the verdict decides where the packet goes next.
func (e *evaluation) take(register uint32, elements []element) {
	l := load{at: offset(register)}
	for _, one := range elements {
		switch {
		case register != unix.NFT_REG_VERDICT:
			l.values = append(l.values, one.value)
		case one.chain != "":
			e.rule.jumps = append(e.rule.jumps, chainKey(e.family, e.table, one.chain))
		}
	}
	e.loads = append(e.loads, l)
}

// offset is where a register is among them all: each has two numbers, of 16 bytes and, from
// NFT_REG32_00 on, of 4.
func offset(register uint32) int {
	if register >= unix.NFT_REG32_00 {
		return int(register-unix.NFT_REG32_00) * 4
	}
	return int(register-unix.NFT_REG_1) * 16
}

// values returns what may be in a register, as much as size: nothing of one that was not written,
// or by an expression whose values are not known beforehand. A value of several parts, as maps of
// addresses and ports have it, is in several.
func (e *evaluation) values(register []byte, size int) [][]byte {
	if register == nil {
		return nil
	}
	at := offset(number(register))
	var found [][]byte
	for _, l := range slices.Backward(e.loads) {
		for _, v := range l.values {
			if from := at - l.at; from >= 0 && from+size <= len(v) {
				found = append(found, v[from:from+size])
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// ports reports whether the proxy listens on one of the ports that two registers bound; without a
// second it is one port.
func (e *evaluation) ports(attrs []netlink.Attribute, first, last uint16) bool {
	from, to := e.values(wire.Find(attrs, first), 2), e.values(wire.Find(attrs, last), 2)
	for i, v := range from {
		end := v
		if len(to) == len(from) {
			end = to[i]
		}
		if e.reader.proxy.listens(port(v), port(end)) {
			return true
		}
	}
	return false
}

// local reports whether a DNAT may lead to this pod.
func (e *evaluation) local(nat []netlink.Attribute) bool {
	size := 4
	if number(wire.Find(nat, unix.NFTA_NAT_FAMILY)) == unix.NFPROTO_IPV6 {
		size = 16
	}
	addrs := e.values(wire.Find(nat, unix.NFTA_NAT_REG_ADDR_MIN), size)
	return slices.ContainsFunc(addrs, func(v []byte) bool {
		addr, _ := netip.AddrFromSlice(v)
		return e.reader.proxy.local(addr)
	})
}
