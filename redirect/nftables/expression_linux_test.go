package nftables

import (
	"testing"

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
