package nftables

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The numbers are written out, since the library that has them is built for Linux alone.
func TestNumbersAreTheKernels(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]int{
		"prerouting": {prerouting, unix.NF_INET_PRE_ROUTING},
		"output":     {output, unix.NF_INET_LOCAL_OUT},
		"jump":       {jump, unix.NFT_JUMP},
		"return":     {returns, unix.NFT_RETURN},
		"verdict":    {verdictReg, unix.NFT_REG_VERDICT},
		"IPv4":       {protoIPv4, unix.NFPROTO_IPV4},
		"IPv6":       {protoIPv6, unix.NFPROTO_IPV6},
		"name":       {interfaceNameSize, unix.IFNAMSIZ},
		"mark":       {metaMark, unix.NFT_META_MARK},
		"iifname":    {metaIIFName, unix.NFT_META_IIFNAME},
		"oifname":    {metaOIFName, unix.NFT_META_OIFNAME},
		"skuid":      {metaSKUID, unix.NFT_META_SKUID},
		"skgid":      {metaSKGID, unix.NFT_META_SKGID},
		"nfproto":    {metaNFProto, unix.NFT_META_NFPROTO},
		"l4proto":    {metaL4Proto, unix.NFT_META_L4PROTO},
		"ct state":   {ctState, unix.NFT_CT_STATE},
		"ct mark":    {ctMark, unix.NFT_CT_MARK},
		"ct zone":    {ctZone, unix.NFT_CT_ZONE},
		"network":    {networkBase, unix.NFT_PAYLOAD_NETWORK_HEADER},
		"transport":  {transport, unix.NFT_PAYLOAD_TRANSPORT_HEADER},
		"equals":     {equals, unix.NFT_CMP_EQ},
		"differs":    {differs, unix.NFT_CMP_NEQ},
		"at most":    {atMost, unix.NFT_CMP_LTE},
		"at least":   {atLeast, unix.NFT_CMP_GTE},
		"to network": {toNetwork, unix.NFT_BYTEORDER_HTON},
		"inverted":   {inverted, unix.NFT_LOOKUP_F_INV},
		"port":       {portIsStated, unix.NF_NAT_RANGE_PROTO_SPECIFIED},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %d, the kernel's is %d", name, pair[0], pair[1])
		}
	}
}

// The library writes the same bytes, and shares no code with us.
func TestExpressionsAreAsTheLibraryWritesThem(t *testing.T) {
	t.Parallel()
	mask, data := []byte{255, 255, 0, 0}, []byte{10, 1, 0, 0}
	for name, row := range map[string]struct {
		ours   expression
		theirs expr.Any
	}{
		"meta":       {meta(metaMark), &expr.Meta{Key: expr.MetaKeyMARK, Register: register}},
		"store meta": {storeMeta(metaMark), &expr.Meta{Key: expr.MetaKeyMARK, Register: register, SourceRegister: true}},
		"ct":         {ct(ctState), &expr.Ct{Key: expr.CtKeySTATE, Register: register}},
		"store ct":   {storeCt(ctZone), &expr.Ct{Key: expr.CtKeyZONE, Register: register, SourceRegister: true}},
		"payload": {payload(transport, 2, 4), &expr.Payload{DestRegister: register,
			Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 4}},
		"equal":     {equal(data, false), &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: data}},
		"not equal": {equal(data, true), &expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: data}},
		"first":     {between(data, mask)[0], &expr.Cmp{Op: expr.CmpOpGte, Register: register, Data: data}},
		"last":      {between(data, mask)[1], &expr.Cmp{Op: expr.CmpOpLte, Register: register, Data: mask}},
		"masked": {masked(mask), &expr.Bitwise{SourceRegister: register, DestRegister: register,
			Len: 4, Mask: mask, Xor: make([]byte, 4)}},
		"swapped": {swapped(), &expr.Byteorder{SourceRegister: register, DestRegister: register,
			Op: expr.ByteorderHton, Len: 4, Size: 4}},
		"lookup":     {lookup(7, false), &expr.Lookup{SourceRegister: register, SetName: anonymous, SetID: 7}},
		"not in set": {lookup(7, true), &expr.Lookup{SourceRegister: register, SetName: anonymous, SetID: 7, Invert: true}},
		"counter":    {counter(), &expr.Counter{}},
		"load":       {load(data), &expr.Immediate{Register: register, Data: data}},
		"return":     {verdict(returns, ""), &expr.Verdict{Kind: expr.VerdictReturn}},
		"accept":     {verdict(accept, ""), &expr.Verdict{Kind: expr.VerdictAccept}},
		"drop":       {verdict(drop, ""), &expr.Verdict{Kind: expr.VerdictDrop}},
		"jump":       {verdict(jump, "there"), &expr.Verdict{Kind: expr.VerdictJump, Chain: "there"}},
		"redirection": {redirection(), &expr.Redir{RegisterProtoMin: register, RegisterProtoMax: register,
			Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED}},
		"hand over": {handOver(protoIPv6), &expr.TProxy{Family: unix.NFPROTO_IPV6, RegPort: register}},
	} {
		ours, err := encode(row.ours)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := expr.Marshal(unix.NFPROTO_INET, row.theirs)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Errorf("%s (-theirs +ours):\n%s", name, diff)
		}
	}
}
