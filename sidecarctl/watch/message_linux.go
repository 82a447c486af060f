package watch

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// Of linux/netfilter/nfnetlink_conntrack.h, nf_conntrack_common.h and nf_conntrack_tcp.h.
const (
	conntrack   = unix.NFNL_SUBSYS_CTNETLINK << 8
	entryNew    = conntrack     // IPCTNL_MSG_CT_NEW is 0
	entryGet    = conntrack | 1 // IPCTNL_MSG_CT_GET
	entryDelete = conntrack | 2 // IPCTNL_MSG_CT_DELETE
	statistics  = conntrack | 5 // IPCTNL_MSG_CT_GET_STATS

	attrOriginal      = 1  // CTA_TUPLE_ORIG
	attrReply         = 2  // CTA_TUPLE_REPLY
	attrStatus        = 3  // CTA_STATUS
	attrProtocolState = 4  // CTA_PROTOINFO
	attrSent          = 9  // CTA_COUNTERS_ORIG
	attrReceived      = 10 // CTA_COUNTERS_REPLY
	attrID            = 12 // CTA_ID
	attrZone          = 18 // CTA_ZONE

	statusSeenReply = 1 << 1
	statusAssured   = 1 << 2

	stateTimeWait = 7 // TCP_CONNTRACK_TIME_WAIT: both sides have closed it
	stateClose    = 8 // TCP_CONNTRACK_CLOSE: one has reset it
)

// headerLen is that of netfilter's own header: family, version and resource.
const headerLen = 4

// tuple is the addresses of a packet.
type tuple struct {
	protocol redirect.Protocol
	from, to netip.AddrPort
}

// key tells entries of connection tracking apart.
type key struct {
	original tuple
	zone     uint16
	id       uint32
}

// entry is what a message says of one.
type entry struct {
	key
	reply    tuple
	answered bool
	// Of TCP: it was open once. Of UDP: more was said than a question and its answer.
	established bool
	state       byte   // of TCP; 0: the message does not say it
	sent        *Count // nil: the message does not say it
	received    *Count
}

// decode reads the entry of a message.
func decode(data []byte) (e entry, ok bool) {
	if len(data) < headerLen {
		return entry{}, false
	}
	attrs, err := netlink.UnmarshalAttributes(data[headerLen:])
	if err != nil {
		return entry{}, false
	}
	return readEntry(attrs)
}

// readEntry reads one; ok is false for those that are neither of TCP nor of UDP, and for what it
// does not understand.
func readEntry(attrs []netlink.Attribute) (e entry, ok bool) {
	original, ok := readTuple(wire.Find(attrs, attrOriginal))
	if !ok {
		return entry{}, false
	}
	reply, ok := readTuple(wire.Find(attrs, attrReply))
	if !ok || reply.protocol != original.protocol ||
		reply.to.Addr().Is4() != original.from.Addr().Is4() {
		return entry{}, false
	}
	e = entry{key: key{original: original, zone: number16(wire.Find(attrs, attrZone)),
		id: number32(wire.Find(attrs, attrID))}, reply: reply}
	status := number32(wire.Find(attrs, attrStatus))
	e.answered, e.established = status&statusSeenReply != 0, status&statusAssured != 0
	// CTA_PROTOINFO_TCP and CTA_PROTOINFO_TCP_STATE
	if state := nested(wire.Find(attrs, attrProtocolState), 1, 1); len(state) == 1 {
		e.state = state[0]
	}
	e.sent = readCount(wire.Find(attrs, attrSent))
	e.received = readCount(wire.Find(attrs, attrReceived))
	return e, true
}

func readTuple(data []byte) (t tuple, ok bool) {
	const addresses, transport = 1, 2 // CTA_TUPLE_IP and CTA_TUPLE_PROTO
	from, okFrom := netip.AddrFromSlice(either(nested(data, addresses, 1),
		nested(data, addresses, 3))) // CTA_IP_V4_SRC or _V6_SRC
	to, okTo := netip.AddrFromSlice(either(nested(data, addresses, 2),
		nested(data, addresses, 4))) // CTA_IP_V4_DST or _V6_DST
	protocol := nested(data, transport, 1)    // CTA_PROTO_NUM
	source := nested(data, transport, 2)      // CTA_PROTO_SRC_PORT
	destination := nested(data, transport, 3) // CTA_PROTO_DST_PORT
	if !okFrom || !okTo || from.Is4() != to.Is4() || len(protocol) != 1 || len(source) != 2 ||
		len(destination) != 2 {
		return tuple{}, false
	}
	t = tuple{redirect.Protocol(protocol[0]), netip.AddrPortFrom(from, number16(source)),
		netip.AddrPortFrom(to, number16(destination))}
	return t, t.protocol == redirect.TCP || t.protocol == redirect.UDP
}

func readCount(data []byte) *Count {
	packets, bytes := nested(data, 1), nested(data, 2) // CTA_COUNTERS_PACKETS and _BYTES
	if len(packets) != 8 || len(bytes) != 8 {
		return nil
	}
	return &Count{binary.BigEndian.Uint64(packets), binary.BigEndian.Uint64(bytes)}
}

// nested follows types of attributes into data, and returns the value of the last.
func nested(data []byte, types ...uint16) []byte {
	for _, kind := range types {
		attrs, err := netlink.UnmarshalAttributes(data)
		if err != nil {
			return nil
		}
		data = wire.Find(attrs, kind)
	}
	return data
}

func either(a, b []byte) []byte {
	if a != nil {
		return a
	}
	return b
}

func number16(data []byte) uint16 {
	if len(data) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(data)
}

func number32(data []byte) uint32 {
	if len(data) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(data)
}
