package kernelrules

import (
	"testing"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/legacy"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// FuzzRule reads rules as no kernel would send them.
func FuzzRule(f *testing.F) {
	for _, list := range [][]expr.Any{
		{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{6}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2,
				Len: 2},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0, 80}},
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictJump, Chain: "c"}},
		{&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: []byte{8, 0, 0, 0},
				Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			&expr.Lookup{SourceRegister: 1, SetName: "s"}},
	} {
		var elements []netlink.Attribute
		for _, e := range list {
			data, err := expr.Marshal(unix.NFPROTO_INET, e)
			if err != nil {
				f.Fatal(err)
			}
			elements = append(elements, wire.Bytes(unix.NFTA_LIST_ELEM, data))
		}
		data, err := netlink.MarshalAttributes(elements)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := tableKey{unix.NFPROTO_INET, "t"}
		bounds := []element{{[]byte{1, 2}, false}, {[]byte{1}, true}, {nil, false}}
		r := &reader{flags: map[chainKey]uint64{}, sets: map[chainKey]set{
			{in, "s"}: {anonymous: true, interval: true, elements: bounds}}}
		_, _ = r.readRule(in, []netlink.Attribute{
			wire.Bytes(unix.NFTA_RULE_EXPRESSIONS, data)})
	})
}

// FuzzLegacy reads tables of legacy iptables that are broken.
func FuzzLegacy(f *testing.F) {
	f.Add([]byte{0, 1, 2}, uint16(0))
	data := make([]byte, 1000)
	for _, at := range []int{88, 90} { // an entry whose target is where it should be
		data[at] = 112
	}
	data[90] = 112 + 40
	f.Add(data, uint16(152))
	f.Fuzz(func(t *testing.T, data []byte, hook uint16) {
		for _, l := range legacy.Layouts {
			table, err := legacyTable(legacy.Table{Layout: l, Name: "nat",
				Hooks: map[int]int{int(hook): unix.NF_INET_LOCAL_OUT}, Data: data})
			if err != nil {
				continue
			}
			_ = table.String()
		}
	})
}
