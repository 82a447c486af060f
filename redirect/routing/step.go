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

// step is one address, route or rule.
type step struct {
	command string // of iproute2, for people
	where   string
	family  redirect.Family

	kind   uint16 // the message that adds it; the next two of rtnetlink's numbers remove and list
	header []byte
	attrs  []netlink.Attribute
	list   wire.Message
	same   func(wire.Object) bool
}

func (s step) add() wire.Message {
	return wire.Message{
		Type: s.kind, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL | unix.NLM_F_ACK, Header: s.header,
		Attrs: s.attrs,
	}
}

func (s step) remove() wire.Message {
	return wire.Message{Type: s.kind + 1, Flags: unix.NLM_F_ACK, Header: s.header, Attrs: s.attrs}
}

func (s step) present(socket *wire.Socket) (bool, error) {
	objects, err := socket.Dump(s.list)
	if err != nil {
		return false, fmt.Errorf("look for what this adds: %s: %w", s.command, err)
	}
	return slices.ContainsFunc(objects, s.same), nil
}

// steps lists what the ruleset asks for, in the order of adding.
func steps(rs redirect.Ruleset, families []redirect.Family) []step {
	var steps []step
	for _, a := range rs.Addresses {
		if slices.Contains(families, redirect.FamilyOf(a.Addr())) {
			steps = append(steps, addressStep(a))
		}
	}
	for _, r := range rs.Routes {
		for _, f := range families {
			steps = append(steps, routeStep(r, f), ruleStep(r, f))
		}
	}
	return steps
}

// raiseLo is an ifinfomsg of rtnetlink(7): the flags, and which of them change.
var raiseLo = wire.Message{
	Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_ACK,
	Header: slices.Concat(make([]byte, 4), number(loIndex), number(unix.IFF_UP),
		number(unix.IFF_UP)),
}

// addressStep writes an ifaddrmsg: family, length of the prefix, flags, scope, interface.
func addressStep(p netip.Prefix) step {
	family := redirect.FamilyOf(p.Addr())
	addr := p.Addr().AsSlice()
	return step{
		command: fmt.Sprintf("ip address add %s dev lo", p), where: "lo", family: family,
		kind: unix.RTM_NEWADDR,
		header: append([]byte{inet(family), byte(p.Bits()), unix.IFA_F_NODAD,
			unix.RT_SCOPE_UNIVERSE}, number(loIndex)...),
		attrs: []netlink.Attribute{{Type: unix.IFA_LOCAL, Data: addr},
			{Type: unix.IFA_ADDRESS, Data: addr}},
		list: addressesOf(family),
		same: func(o wire.Object) bool {
			return onLo(o) && int(o.Header[1]) == p.Bits() &&
				bytes.Equal(wire.Find(o.Attrs, unix.IFA_ADDRESS), addr)
		},
	}
}

// routeStep writes an rtmsg: family, lengths of destination and source, tos, table, protocol,
// scope, type, flags. The table is an attribute, since it has room for 32 bits there.
func routeStep(r redirect.PolicyRoute, f redirect.Family) step {
	table, lo := number(r.Table), number(loIndex)
	return step{
		command: fmt.Sprintf("ip %sroute add local default dev lo table %d", option(f), r.Table),
		where:   fmt.Sprintf("routing table %d", r.Table), family: f,
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

// ruleStep writes a fib_rule_hdr: family, lengths of destination and source, tos, table, two
// unused, action, flags.
func ruleStep(r redirect.PolicyRoute, f redirect.Family) step {
	mark, table := number(r.Mark), number(r.Table)
	return step{
		command: fmt.Sprintf("ip %srule add fwmark 0x%x lookup %d", option(f), r.Mark, r.Table),
		where:   "routing policy", family: f,
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

func option(f redirect.Family) string {
	if f == redirect.IPv6 {
		return "-6 "
	}
	return ""
}
