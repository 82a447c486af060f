package netns

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	peerPort      = 1
	dnsPort       = 53
	anyAddrsTable = 100
)

// answerAll makes a site whose packets come in at pod0 take all of them for its own, and answer:
// routing hands them to local sockets, and nat leads every TCP port to one, which reads the
// original destination from conntrack.
func answerAll(s *site) {
	s.t.Helper()
	for _, all := range []netip.Prefix{anyIPv4, anyIPv6} {
		s.must(s.RouteAdd(&netlink.Route{
			Dst: ipNet(all), LinkIndex: loopback, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
			Table: anyAddrsTable,
		}), "add local route %s", all)
		// Only for what comes in: the peer's own packets still find their way to the pod.
		rule := netlink.NewRule()
		rule.IifName, rule.Table, rule.Priority = "pod0", anyAddrsTable, anyAddrsTable
		rule.Family = unix.AF_INET
		if all.Addr().Is6() {
			rule.Family = unix.AF_INET6
		}
		s.must(s.RuleAdd(rule), "add routing rule for %s", all)
	}
	s.must(redirectPorts(s.ns), "redirect all ports")
	s.ns.Listen(s.t, Listener{
		Who: "peer", TCP: []uint16{peerPort}, UDP: []uint16{dnsPort},
		// Without it the kernel refuses to answer UDP from an address that is not its own.
		Transparent: true,
	})
}

// redirectPorts loads
//
//	table inet peer { chain prerouting { type nat hook prerouting priority dstnat
//		meta l4proto tcp redirect to :1
//		meta l4proto udp th dport != 53 redirect to :1
//	} }
//
// The second rule is for callers of UDP ports where nothing listens: the kernel cannot send an ICMP
// error from an IPv4 address that only anyAddrsTable calls local, but it can from the address that
// the redirect leads to. The nft program would take longer than all the rest of a pod.
func redirectPorts(n *NS) error {
	conn, err := nftables.New(nftables.WithNetNSFd(n.fd))
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "peer"})
	chain := conn.AddChain(&nftables.Chain{
		Table: table, Name: "prerouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest,
	})
	redirect := func(protocol byte, match ...expr.Any) {
		exprs := append([]expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
		}, match...)
		exprs = append(exprs,
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(peerPort)},
			&expr.Redir{RegisterProtoMin: 1})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
	}
	redirect(unix.IPPROTO_TCP)
	redirect(unix.IPPROTO_UDP,
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.BigEndian.PutUint16(dnsPort)})
	return conn.Flush()
}
