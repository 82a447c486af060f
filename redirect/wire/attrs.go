package wire

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// String is an attribute with a text, which ends with a zero as the kernel wants it.
func String(kind uint16, value string) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: append([]byte(value), 0)}
}

// Number is an attribute with a number in network byte order, as netfilter wants it.
func Number(kind uint16, value uint32) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: binary.BigEndian.AppendUint32(nil, value)}
}

// Bytes is an attribute with a value as it is.
func Bytes(kind uint16, value []byte) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: value}
}

// Nest is an attribute that holds attributes.
func Nest(kind uint16, attrs ...netlink.Attribute) (netlink.Attribute, error) {
	data, err := netlink.MarshalAttributes(attrs)
	return netlink.Attribute{Type: kind | unix.NLA_F_NESTED, Data: data}, err
}

// Unsigned reads a number in network byte order of up to eight bytes.
func Unsigned(data []byte) uint64 {
	var n uint64
	for _, b := range data {
		n = n<<8 | uint64(b)
	}
	return n
}
