package nftrace

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kernelrules"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// event is what the kernel reports of a packet: a rule that it met, or the end of a chain.
type event struct {
	id      uint32 // of the packet, as long as it does not come to another interface
	table   string // with its family
	chain   string
	handle  uint64 // of the rule
	kind    uint64 // one of unix.NFT_TRACETYPE_*
	verdict string
	to      string // the chain of a jump

	// The packet by then, in the first event of each chain with a hook only.
	headed  bool
	tuple   tuple
	in, out uint32 // indexes of interfaces, 0: none
}

// isRule reports whether a rule was met. At the end of a chain the kernel reports one that has no
// handle.
func (e event) isRule() bool { return e.kind == unix.NFT_TRACETYPE_RULE && e.handle != 0 }

// tuple is what tells packets apart.
type tuple struct {
	protocol            redirect.Protocol
	source, destination netip.AddrPort
}

// origin is whom a packet comes from, which no rule ahead of source NAT changes.
type origin struct {
	protocol redirect.Protocol
	source   netip.AddrPort
}

func (t tuple) origin() origin { return origin{t.protocol, t.source} }

// newEvent reads a message of the kernel; false says that it is none about a packet.
func newEvent(m netlink.Message) (event, bool) {
	const headerLen = 4
	if uint16(m.Header.Type) != wire.NFTables|unix.NFT_MSG_TRACE || len(m.Data) < headerLen {
		return event{}, false
	}
	attrs, err := netlink.UnmarshalAttributes(m.Data[headerLen:])
	if err != nil {
		return event{}, false
	}
	number := func(kind uint16) uint64 { return wire.Unsigned(wire.Find(attrs, kind)) }
	e := event{
		id: uint32(number(unix.NFTA_TRACE_ID)), handle: number(unix.NFTA_TRACE_RULE_HANDLE),
		table: traces.FamilyName(m.Data[0]) + " " + wire.Text(wire.Find(attrs,
			unix.NFTA_TRACE_TABLE)),
		chain: wire.Text(wire.Find(attrs, unix.NFTA_TRACE_CHAIN)),
		kind:  number(unix.NFTA_TRACE_TYPE),
		in:    uint32(number(unix.NFTA_TRACE_IIF)), out: uint32(number(unix.NFTA_TRACE_OIF)),
	}
	verdict := unix.NFTA_TRACE_VERDICT
	if data := wire.Find(attrs, uint16(verdict)); data != nil {
		inner, err := netlink.UnmarshalAttributes(data)
		if err != nil {
			return event{}, false
		}
		e.verdict = kernelrules.Verdict(wire.Unsigned(wire.Find(inner, unix.NFTA_VERDICT_CODE)))
		e.to = wire.Text(wire.Find(inner, unix.NFTA_VERDICT_CHAIN))
	} else if e.kind == unix.NFT_TRACETYPE_POLICY {
		e.verdict = kernelrules.Verdict(number(unix.NFTA_TRACE_POLICY))
	}
	e.tuple, e.headed = headers(wire.Find(attrs, unix.NFTA_TRACE_NETWORK_HEADER),
		wire.Find(attrs, unix.NFTA_TRACE_TRANSPORT_HEADER))
	return e, true
}

// headers reads the headers of a packet of TCP or UDP.
func headers(network, transport []byte) (tuple, bool) {
	if len(network) < 20 || len(transport) < 4 {
		return tuple{}, false
	}
	sport, dport := binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])
	switch version := network[0] >> 4; {
	case version == 4:
		return tuple{redirect.Protocol(network[9]),
			netip.AddrPortFrom(netip.AddrFrom4([4]byte(network[12:])), sport),
			netip.AddrPortFrom(netip.AddrFrom4([4]byte(network[16:])), dport)}, true
	case version == 6 && len(network) >= 40:
		return tuple{redirect.Protocol(network[6]),
			netip.AddrPortFrom(netip.AddrFrom16([16]byte(network[8:])), sport),
			netip.AddrPortFrom(netip.AddrFrom16([16]byte(network[24:])), dport)}, true
	}
	return tuple{}, false
}
