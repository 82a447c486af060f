package nftrace

import (
	"encoding/binary"
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// The attributes of a connection (linux/netfilter/nfnetlink_conntrack.h).
const (
	ctTuple     = 1
	ctTupleIP   = 1
	ctTupleL4   = 2
	ctZone      = 18
	ctL4Number  = 1
	ctL4Source  = 2
	ctL4Dest    = 3
	ctIPv4First = 1 // source, and then destination
	ctIPv6First = 3
)

// What is asked about a connection.
const (
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
)

// zones are those in which the rules have connections tracked.
func zones(rs redirect.Ruleset) []uint16 {
	all := []uint16{0}
	for _, c := range rs.Chains {
		for _, r := range c.Rules {
			if r.Then.Verb == redirect.SetZone {
				all = append(all, r.Then.Zone)
			}
		}
	}
	return all
}

// tracked reports whether there is a connection of a tuple. A kernel that cannot say it is taken
// to have none.
func (t tuple) tracked(zones []uint16) (bool, error) {
	answers, err := t.ask(ctGet, zones)
	for _, a := range answers {
		if a.Heard && a.Err == nil {
			return true, err
		}
	}
	return false, err
}

// forget removes the connection that a packet has left which came over lo. One that cannot be
// removed ends by itself: it is nobody's.
func (t tuple) forget(zones []uint16) error {
	_, err := t.ask(ctDelete, zones)
	return err
}

func (t tuple) ask(what uint16, zones []uint16) ([]wire.Answer, error) {
	s, err := wire.Dial(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	family, kind := byte(unix.AF_INET), uint16(ctIPv4First)
	if t.source.Addr().Is6() {
		family, kind = unix.AF_INET6, ctIPv6First
	}
	ip, err := wire.Nest(ctTupleIP, wire.Bytes(kind, t.source.Addr().AsSlice()),
		wire.Bytes(kind+1, t.destination.Addr().AsSlice()))
	if err != nil {
		return nil, err
	}
	l4, err := wire.Nest(ctTupleL4, wire.Bytes(ctL4Number, []byte{byte(t.protocol)}),
		wire.Bytes(ctL4Source, port(t.source.Port())),
		wire.Bytes(ctL4Dest, port(t.destination.Port())))
	if err != nil {
		return nil, err
	}
	tuple, err := wire.Nest(ctTuple, ip, l4)
	if err != nil {
		return nil, err
	}
	var all []wire.Answer
	for _, zone := range zones {
		attrs := []netlink.Attribute{tuple}
		if zone != 0 {
			attrs = append(attrs, wire.Bytes(ctZone, binary.BigEndian.AppendUint16(nil, zone)))
		}
		answers, err := s.Exchange([]wire.Message{{Type: what, Flags: unix.NLM_F_ACK,
			Header: []byte{family, unix.NFNETLINK_V0, 0, 0}, Attrs: attrs}})
		if err != nil {
			return nil, err
		}
		all = append(all, answers...)
	}
	return all, nil
}
