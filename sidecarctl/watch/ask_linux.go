package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// countEntries asks how many connections the namespace has, which is also whether the kernel can
// tell at all.
func countEntries(s *wire.Socket) (uint32, error) {
	o, err := s.Get(wire.Message{Type: statistics, Header: make([]byte, headerLen)})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return 0, errors.New("the kernel does not tell about connections: load its module " +
			"nf_conntrack_netlink (CONFIG_NF_CT_NETLINK)")
	}
	if err != nil {
		return 0, fmt.Errorf("count connections: %w", err)
	}
	return number32(wire.Find(o.Attrs, 1)), nil // CTA_STATS_GLOBAL_ENTRIES
}

// localAddresses are those of the namespace's interfaces.
func localAddresses() (map[netip.Addr]bool, error) {
	s, err := wire.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	objects, err := s.Dump(wire.Message{Type: unix.RTM_GETADDR,
		Header: make([]byte, unix.SizeofIfAddrmsg)})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	local := map[netip.Addr]bool{}
	for _, o := range objects {
		for _, kind := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
			if a, ok := netip.AddrFromSlice(wire.Find(o.Attrs, kind)); ok {
				local[a] = true
				break // without IFA_LOCAL, as for IPv6, the other is the interface's own
			}
		}
	}
	return local, nil
}

// counts asks what was sent and received in a connection.
func (w *Watcher) counts(k key) (sent, received *Count) {
	original, err := k.original.attribute(attrOriginal)
	if err != nil {
		return nil, nil
	}
	family := byte(unix.AF_INET)
	if k.original.from.Addr().Is6() {
		family = unix.AF_INET6
	}
	o, err := w.ask.Get(wire.Message{Type: entryGet,
		Header: []byte{family, unix.NFNETLINK_V0, 0, 0},
		Attrs: []netlink.Attribute{original, {Type: attrZone,
			Data: binary.BigEndian.AppendUint16(nil, k.zone)}}})
	if err != nil { // it is gone by now
		return nil, nil
	}
	e, ok := readEntry(o.Attrs)
	if !ok || e.key != k {
		return nil, nil
	}
	return e.sent, e.received
}

// attribute is what readTuple reads.
func (t tuple) attribute(kind uint16) (netlink.Attribute, error) {
	source, destination := uint16(1), uint16(2) // CTA_IP_V4_SRC and _DST
	if t.from.Addr().Is6() {
		source, destination = 3, 4 // CTA_IP_V6_SRC and _DST
	}
	port := func(kind, port uint16) netlink.Attribute {
		return netlink.Attribute{Type: kind, Data: binary.BigEndian.AppendUint16(nil, port)}
	}
	addresses, err := nest(1, netlink.Attribute{Type: source, Data: t.from.Addr().AsSlice()},
		netlink.Attribute{Type: destination, Data: t.to.Addr().AsSlice()})
	if err != nil {
		return addresses, err
	}
	transport, err := nest(2, netlink.Attribute{Type: 1, Data: []byte{byte(t.protocol)}},
		port(2, t.from.Port()), port(3, t.to.Port()))
	if err != nil {
		return transport, err
	}
	return nest(kind, addresses, transport)
}

func nest(kind uint16, attrs ...netlink.Attribute) (netlink.Attribute, error) {
	data, err := netlink.MarshalAttributes(attrs)
	return netlink.Attribute{Type: kind | unix.NLA_F_NESTED, Data: data}, err
}
