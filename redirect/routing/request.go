//go:build linux

package routing

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// loIndex is the kernel's number for lo in every network namespace (LOOPBACK_IFINDEX in its
// sources).
const loIndex = 1

// request is a step in rtnetlink's terms.
type request struct {
	kind   uint16 // the message that adds it; the next two of rtnetlink's numbers remove and list
	header []byte
	attrs  []netlink.Attribute
	list   wire.Message
	same   func(wire.Object) bool
}

func (s step) request() request {
	switch s.what {
	case anAddress:
		return addressRequest(s.address, s.family)
	case aRoute:
		return routeRequest(s.policy, s.family)
	default:
		return ruleRequest(s.policy, s.family)
	}
}

func (s step) add() wire.Message {
	r := s.request()
	return wire.Message{
		Type: r.kind, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL | unix.NLM_F_ACK, Header: r.header,
		Attrs: r.attrs,
	}
}

func (s step) remove() wire.Message {
	r := s.request()
	return wire.Message{Type: r.kind + 1, Flags: unix.NLM_F_ACK, Header: r.header, Attrs: r.attrs}
}

func (s step) present(socket *wire.Socket) (bool, error) {
	r := s.request()
	objects, err := socket.Dump(r.list)
	if err != nil {
		return false, fmt.Errorf("look for what this adds: %s: %w", s.command, err)
	}
	return slices.ContainsFunc(objects, r.same), nil
}

// raiseLo is an ifinfomsg of rtnetlink(7): the flags, and which of them change.
var raiseLo = wire.Message{
	Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_ACK,
	Header: slices.Concat(make([]byte, 4), number(loIndex), number(unix.IFF_UP),
		number(unix.IFF_UP)),
}

// addressRequest writes an ifaddrmsg: family, length of the prefix, flags, scope, interface.
func addressRequest(p netip.Prefix, f redirect.Family) request {
	addr := p.Addr().AsSlice()
	return request{
		kind: unix.RTM_NEWADDR,
		header: append([]byte{inet(f), byte(p.Bits()), unix.IFA_F_NODAD,
			unix.RT_SCOPE_UNIVERSE}, number(loIndex)...),
		attrs: []netlink.Attribute{{Type: unix.IFA_LOCAL, Data: addr},
			{Type: unix.IFA_ADDRESS, Data: addr}},
		list: addressesOf(f),
		same: func(o wire.Object) bool {
			return onLo(o) && int(o.Header[1]) == p.Bits() &&
				bytes.Equal(wire.Find(o.Attrs, unix.IFA_ADDRESS), addr)
		},
	}
}

// routeRequest writes an rtmsg: family, lengths of destination and source, tos, table, protocol,
// scope, type, flags. The table is an attribute, since it has room for 32 bits there.
func routeRequest(r redirect.PolicyRoute, f redirect.Family) request {
	table, lo := number(r.Table), number(loIndex)
	return request{
		kind: unix.RTM_NEWROUTE,
		header: append([]byte{inet(f), 0, 0, 0, unix.RT_TABLE_UNSPEC, unix.RTPROT_BOOT,
			unix.RT_SCOPE_HOST, unix.RTN_LOCAL}, number(0)...),
		attrs: []netlink.Attribute{{Type: unix.RTA_TABLE, Data: table},
			{Type: unix.RTA_OIF, Data: lo}},
		list: wire.Message{Type: unix.RTM_GETROUTE,
			Header: append([]byte{inet(f)}, make([]byte, 11)...)},
		same: func(o wire.Object) bool {
			return o.Header[1] == 0 && o.Header[7] == unix.RTN_LOCAL &&
				bytes.Equal(wire.Find(o.Attrs, unix.RTA_TABLE), table) &&
				bytes.Equal(wire.Find(o.Attrs, unix.RTA_OIF), lo)
		},
	}
}

// ruleRequest writes a fib_rule_hdr: family, lengths of destination and source, tos, table, two
// unused, action, flags.
func ruleRequest(r redirect.PolicyRoute, f redirect.Family) request {
	mark, table := number(r.Mark), number(r.Table)
	return request{
		kind: unix.RTM_NEWRULE,
		header: append([]byte{inet(f), 0, 0, 0, unix.RT_TABLE_UNSPEC, 0, 0, unix.FR_ACT_TO_TBL},
			number(0)...),
		attrs: []netlink.Attribute{{Type: unix.FRA_FWMARK, Data: mark},
			{Type: unix.FRA_TABLE, Data: table}},
		list: rulesOf(f),
		same: func(o wire.Object) bool {
			return bytes.Equal(wire.Find(o.Attrs, unix.FRA_FWMARK), mark) &&
				bytes.Equal(wire.Find(o.Attrs, unix.FRA_TABLE), table)
		},
	}
}

func addressesOf(f redirect.Family) wire.Message {
	return wire.Message{Type: unix.RTM_GETADDR, Header: append([]byte{inet(f)}, make([]byte, 7)...)}
}

func rulesOf(f redirect.Family) wire.Message {
	return wire.Message{Type: unix.RTM_GETRULE,
		Header: append([]byte{inet(f)}, make([]byte, 11)...)}
}

// onLo reports whether an ifaddrmsg is about lo.
func onLo(o wire.Object) bool { return bytes.Equal(o.Header[4:8], number(loIndex)) }

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func inet(f redirect.Family) byte {
	if f == redirect.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
