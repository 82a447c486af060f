package inspect

import (
	"encoding/binary"
	"net/netip"
)

// An xtTarget is an extension of iptables that a rule ends with: REDIRECT, DNAT or TPROXY, if it
// is of interest.
type xtTarget struct {
	name string
	info []byte // its parameters
	ipv6 bool
}

func (t xtTarget) redirects() bool {
	return t.name == "REDIRECT" || t.name == "DNAT" || t.name == "TPROXY"
}

// The lengths of the parameters tell their versions apart: struct nf_nat_ipv4_multi_range_compat
// and nf_nat_range (linux/netfilter/nf_nat.h), struct xt_tproxy_target_info and its v1
// (linux/netfilter/xt_TPROXY.h).
const (
	natRangeLen = 40
	tproxyV1Len = 26
)

// captures reports whether a target that redirects hands packets to the proxy. Without ports in
// its parameters there are zeros, and it leaves the port as it was.
func (t xtTarget) captures(p Proxy) bool {
	if t.name == "TPROXY" {
		at := 12
		if len(t.info) >= tproxyV1Len {
			at = 24
		}
		return len(t.info) >= at+2 && p.listens(port(t.info[at:]), port(t.info[at:]))
	}
	addr, ports := 8, 16
	if len(t.info) >= natRangeLen {
		addr, ports = 4, 36
	}
	if len(t.info) < ports+4 {
		return false
	}
	to := netip.AddrFrom4([4]byte(t.info[addr:]))
	if t.ipv6 && len(t.info) >= natRangeLen {
		to = netip.AddrFrom16([16]byte(t.info[addr:]))
	}
	first, last := port(t.info[ports:]), port(t.info[ports+2:])
	return p.listens(first, last) && (t.name == "REDIRECT" || p.local(to))
}

func port(data []byte) uint16 { return binary.BigEndian.Uint16(data) }
