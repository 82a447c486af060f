package kernel

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/google/nftables"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// probe records what the first packets of connections bear when they reach a socket of the pod or
// leave it: protocol, source port, mark, mark and zone of the connection.
const probe = `table inet probe {
	set seen {
		typeof meta l4proto . th sport . meta mark . ct mark . ct zone
		size 65535
		flags dynamic
	}
	chain note {
		meta l4proto { tcp, udp } ct state new update @seen { \
			meta l4proto . th sport . meta mark . ct mark . ct zone }
	}
	chain arrived {
		type filter hook input priority 1000
		jump note
	}
	chain left {
		type filter hook postrouting priority 1000
		oifname != "lo" jump note
	}
}
`

// bears is what the probe records of a packet.
type bears struct {
	protocol             redirect.Protocol
	port                 uint16
	mark, connMark, zone uint32
}

func (b bears) String() string {
	return fmt.Sprintf("mark %d, in a connection with mark %d in zone %d", b.mark, b.connMark, b.zone)
}

// wantBorne is what the probe should have recorded of an answered call whose packet has that fate.
func (c call) wantBorne(f packet.Fate) bears {
	of := c.packet().Class()
	return bears{c.proto, c.port, f.Mark.In(of).Value, f.ConnMark.In(of).Value, uint32(f.Zone)}
}

// borne reads what the probe has recorded. The nft program cannot list zones: it has no length for
// them.
func borne(t testing.TB, ns *netns.NS) map[bears]bool {
	t.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(ns.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: "probe"}
	elements, err := conn.GetSetElements(&nftables.Set{Table: table, Name: "seen"})
	if err != nil {
		t.Fatalf("list what the probe has recorded: %v", err)
	}
	seen := map[bears]bool{}
	for _, e := range elements {
		// Each part of a key begins at a multiple of four bytes.
		protocol, port := redirect.Protocol(e.Key[0]), binary.BigEndian.Uint16(e.Key[4:])
		number := binary.NativeEndian.Uint32
		zone := uint32(binary.NativeEndian.Uint16(e.Key[16:]))
		seen[bears{protocol, port, number(e.Key[8:]), number(e.Key[12:]), zone}] = true
	}
	return seen
}
