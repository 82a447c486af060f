package kernelrules

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// Matches and targets are extensions of iptables, which iptables-nft puts into rules of nftables.
// Their names and parameters are attributes of these numbers (linux/netfilter/nf_tables_compat.h).
const (
	xtName = 1
	xtInfo = 3
)

// match reads a match of iptables: the comment, and who owns the socket.
func (w *words) match(e expression) error {
	name, info := text(e.attrs, xtName), wire.Find(e.attrs, xtInfo)
	switch {
	case name == "comment":
		w.comment = wire.Text(info)
	case name == "owner" && len(info) >= ownerLen:
		w.owner(info)
	case (name == "tcp" || name == "udp") && len(info) >= portsLen:
		w.ports(name, info)
	default:
		w.say("[match %s]", name)
	}
	return nil
}

// The parameters of owner are struct xt_owner_match_info (linux/netfilter/xt_owner.h).
const (
	ownerLen = 18
	ownerUID = 1
	ownerGID = 2
)

func (w *words) owner(info []byte) {
	number := func(at int) uint32 { return binary.NativeEndian.Uint32(info[at:]) }
	asks, not := info[16], info[17]
	for _, one := range []struct {
		bit  byte
		name string
		at   int
	}{{ownerUID, "skuid", 0}, {ownerGID, "skgid", 8}} {
		if asks&one.bit == 0 {
			continue
		}
		value := fmt.Sprint(number(one.at))
		if last := number(one.at + 4); last != number(one.at) {
			value += fmt.Sprintf("-%d", last)
		}
		if not&one.bit != 0 {
			value = "!= " + value
		}
		w.say("meta %s %s", one.name, value)
	}
}

// The parameters of tcp and of udp begin with the first and last port of the source, and of the
// destination. What else they have is behind that, the bits of negation last.
const (
	portsLen    = 10
	invertPort  = 1
	highestPort = 1<<16 - 1
)

func (w *words) ports(name string, info []byte) {
	not := info[8]
	if name == "tcp" && len(info) > 11 {
		not = info[11]
	}
	for i, word := range []string{"sport", "dport"} {
		first := binary.NativeEndian.Uint16(info[4*i:])
		last := binary.NativeEndian.Uint16(info[4*i+2:])
		negated := not&(invertPort<<i) != 0
		if first == 0 && last == highestPort && !negated {
			continue
		}
		w.imply(&w.protocolAt)
		value := fmt.Sprint(first)
		if last != first {
			value += fmt.Sprintf("-%d", last)
		}
		if negated {
			value = "!= " + value
		}
		w.say("%s %s %s", name, word, value)
	}
}

// target reads a target of iptables: where it redirects to.
func (w *words) target(e expression) error {
	name, info := text(e.attrs, xtName), bytes.Clone(wire.Find(e.attrs, xtInfo))
	// struct nf_nat_ipv4_multi_range_compat, and struct nf_nat_range: flags first; the ports are
	// behind the addresses.
	ports := 16
	if w.table.family == unix.NFPROTO_IPV6 {
		ports = 36
	}
	if name == "REDIRECT" && len(info) >= ports+2 {
		w.say("redirect to :%d", binary.BigEndian.Uint16(info[ports:]))
		return nil
	}
	w.say("[target %s]", name)
	return nil
}
