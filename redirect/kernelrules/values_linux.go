package kernelrules

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kind is how a value is written.
type kind uint8

// The kinds. Of what nobody here knows, the bytes are written.
const (
	bytesKind    kind = iota
	nameKind          // of an interface
	familyKind        // of addresses
	protocolKind      // of transport
	addressKind
	portKind      // network byte order
	idKind        // the host's byte order
	swappedIDKind // network byte order
	markKind      // the host's byte order
	stateKind     // of a connection
	numberKind    // the host's byte order
)

// metas are what the kernel knows of a packet, by nft's numbers.
var metas = map[uint64]operand{
	unix.NFT_META_NFPROTO: {name: "meta nfproto", kind: familyKind},
	unix.NFT_META_L4PROTO: {name: "meta l4proto", kind: protocolKind},
	unix.NFT_META_IIFNAME: {name: "iifname", kind: nameKind},
	unix.NFT_META_OIFNAME: {name: "oifname", kind: nameKind},
	unix.NFT_META_IIF:     {name: "iif", kind: numberKind},
	unix.NFT_META_OIF:     {name: "oif", kind: numberKind},
	unix.NFT_META_SKUID:   {name: "meta skuid", kind: idKind},
	unix.NFT_META_SKGID:   {name: "meta skgid", kind: idKind},
	unix.NFT_META_MARK:    {name: "meta mark", kind: markKind},
	unix.NFT_META_NFTRACE: {name: "meta nftrace", kind: numberKind},
}

// cts are what the kernel knows of a packet's connection.
var cts = map[uint64]operand{
	unix.NFT_CT_STATE: {name: "ct state", kind: stateKind},
	unix.NFT_CT_MARK:  {name: "ct mark", kind: markKind},
	unix.NFT_CT_ZONE:  {name: "ct zone", kind: numberKind},
}

func (k kind) swapped() kind {
	if k == idKind {
		return swappedIDKind
	}
	return k
}

// text writes a value.
func (k kind) text(data []byte) string {
	switch k {
	case nameKind:
		name, _, whole := bytes.Cut(data, []byte{0})
		if !whole {
			return strconv.Quote(string(name) + "*")
		}
		return strconv.Quote(string(name))
	case familyKind:
		if word, known := map[uint64]string{unix.NFPROTO_IPV4: "ipv4",
			unix.NFPROTO_IPV6: "ipv6"}[host(data)]; known {
			return word
		}
	case protocolKind:
		if word, known := map[uint64]string{unix.IPPROTO_TCP: "tcp",
			unix.IPPROTO_UDP: "udp"}[host(data)]; known {
			return word
		}
	case addressKind:
		if a, ok := netip.AddrFromSlice(data); ok {
			return a.String()
		}
	case portKind, swappedIDKind:
		return strconv.FormatUint(network(data), 10)
	case idKind, numberKind:
		return strconv.FormatUint(host(data), 10)
	case markKind:
		return fmt.Sprintf("0x%08x", host(data))
	case bytesKind, stateKind:
	}
	return "0x" + hex.EncodeToString(data)
}

// between writes the values from first to last.
func (k kind) between(first, last []byte) string {
	if bytes.Equal(first, last) {
		return k.text(first)
	}
	if k == addressKind && len(first) == len(last) {
		mask := make([]byte, len(first))
		for i := range mask {
			mask[i] = ^(first[i] ^ last[i])
		}
		if isPrefix(mask) && isZero(first, mask) {
			return networkText(first, mask, len(first))
		}
	}
	return k.text(first) + "-" + k.text(last)
}

// isPrefix reports whether no one comes behind a zero.
func isPrefix(mask []byte) bool {
	rest := strings.TrimLeft(fmt.Sprintf("%08b", mask), "[1 ")
	return !strings.Contains(rest, "1")
}

// isZero reports whether the bits beyond a mask are zero.
func isZero(value, mask []byte) bool {
	for i := range value {
		if value[i]&^mask[i] != 0 {
			return false
		}
	}
	return true
}

func host(data []byte) uint64 {
	padded := make([]byte, 8)
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		copy(padded, data)
	} else {
		copy(padded[max(0, 8-len(data)):], data)
	}
	return binary.NativeEndian.Uint64(padded)
}

func network(data []byte) uint64 {
	big := bytes.Clone(data)
	slices.Reverse(big)
	padded := make([]byte, 8)
	copy(padded, big)
	return binary.LittleEndian.Uint64(padded)
}

// stateNames are the states of a mask, in the order in which nft lists them.
func stateNames(mask []byte) string {
	var names []string
	bitsSet := host(mask)
	for _, one := range []struct {
		bit  uint64
		name string
	}{{1, "invalid"}, {2, "established"}, {4, "related"}, {8, "new"}, {64, "untracked"}} {
		if bitsSet&one.bit != 0 {
			names = append(names, one.name)
		}
	}
	return strings.Join(names, ",")
}
