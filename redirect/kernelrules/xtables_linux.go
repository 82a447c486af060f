package kernelrules

import (
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

func (w *words) match(e expression) error {
	w.xtMatch(text(e.attrs, xtName), wire.Find(e.attrs, xtInfo))
	return nil
}

func (w *words) target(e expression) error {
	w.xtTarget(text(e.attrs, xtName), wire.Find(e.attrs, xtInfo))
	return nil
}

// xtMatch reads a match of iptables: the comment, who owns the socket, and ports.
func (w *words) xtMatch(name string, info []byte) {
	switch {
	case name == "comment":
		w.comment = wire.Text(info)
	case name == "owner" && len(info) >= ownerLen:
		w.owner(info)
	case (name == "tcp" || name == "udp") && len(info) >= portsLen:
		w.ports(name, info)
	case name == "mark" && len(info) >= markLen:
		w.mark("meta mark", info)
	case name == "connmark" && len(info) >= markLen:
		w.mark("ct mark", info)
	default:
		w.say("[match %s]", name)
	}
}

// The parameters of mark and connmark are the value, the bits of it that count, and whether it is
// any other (struct xt_mark_mtinfo1, linux/netfilter/xt_mark.h).
const (
	markLen  = 9
	everyBit = 1<<32 - 1
)

func (w *words) mark(word string, info []byte) {
	value, mask := markKind.text(info[:4]), host(info[4:8])
	if mask != everyBit {
		word += fmt.Sprintf(" & 0x%08x", mask)
	}
	if info[8] != 0 {
		value = "!= " + value
	}
	w.say("%s %s", word, value)
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

// xtTarget reads a target of iptables: those that our rules have.
func (w *words) xtTarget(name string, info []byte) {
	read, known := map[string]struct {
		least int // how long the parameters are
		say   func(info []byte)
	}{
		"REDIRECT": {w.natPorts() + 2, w.redirectTo},
		"TPROXY":   {26, w.tproxyTo},
		"MARK":     {8, w.setMark},
		"CONNMARK": {15, w.copyMark},
		"CT":       {4, w.setZone},
	}[name]
	if !known || len(info) < read.least {
		w.say("[target %s]", name)
		return
	}
	read.say(info)
}

// natPorts is where the ports are in struct nf_nat_ipv4_multi_range_compat, and in struct
// nf_nat_range, which IPv6 has: behind the flags and the addresses.
func (w *words) natPorts() int {
	if w.table.family == unix.NFPROTO_IPV6 {
		return 36
	}
	return 16
}

func (w *words) redirectTo(info []byte) {
	w.say("redirect to :%d", binary.BigEndian.Uint16(info[w.natPorts():]))
}

// tproxyTo reads struct xt_tproxy_target_info_v1: which bits of the mark are changed and to what,
// the address, the port.
func (w *words) tproxyTo(info []byte) {
	w.say("tproxy to :%d meta mark set %s", binary.BigEndian.Uint16(info[24:]),
		markKind.text(info[4:8]))
}

// setMark reads struct xt_mark_tginfo2: the value, and which bits are changed.
func (w *words) setMark(info []byte) {
	if host(info[4:8]) != everyBit {
		w.say("meta mark set & 0x%08x %s", host(info[4:8]), markKind.text(info[:4]))
		return
	}
	w.say("meta mark set %s", markKind.text(info[:4]))
}

// copyMark reads struct xt_connmark_tginfo2, of which the last byte counts here: whether the mark
// is set, saved or restored. In its first version, which no program has used since Linux 4.18, it
// stands where the other has shifts, which our rules do not have.
func (w *words) copyMark(info []byte) {
	words := []string{"ct mark set " + markKind.text(info[:4]), "ct mark set meta mark",
		"meta mark set ct mark"}
	if mode := int(max(info[12], info[14])); mode < len(words) && info[13] == 0 {
		w.say("%s", words[mode])
		return
	}
	w.say("[target CONNMARK]")
}

// setZone reads struct xt_ct_target_info_v1: flags, and the zone. Without a flag that is all.
func (w *words) setZone(info []byte) {
	if host(info[:2]) != 0 {
		w.say("[target CT]")
		return
	}
	w.say("ct zone set %d", host(info[2:4]))
}
