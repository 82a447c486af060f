// Package traces finds out, without running a program, which rules of a mesh the network namespace
// of the calling thread may have: those of nftables and iptables-nft by the names of their chains,
// those of legacy iptables by the tables there are.
//
//	chains, err := traces.Chains()
//	tables, err := traces.LegacyTables(redirect.IPv4)
//
// Be aware: a legacy table says that some rule was once written to it, by whomever.
package traces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// MeshChains begins the names of the chains that redirect a pod's traffic, ours and those of
// istio-init.
const MeshChains = "ISTIO_"

// nativeChains begins them where istio-init, or istio-cni, writes nftables itself.
const nativeChains = "istio-"

// Chain is a chain of nftables.
type Chain struct {
	// As nft writes them. Family is "" for one that nft does not know; Table is anybody's.
	Family, Table, Name string
}

func (c Chain) String() string {
	return fmt.Sprintf("chain %s of table %s %s", c.Name, c.Family, c.Table)
}

var families = map[byte]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
	unix.NFPROTO_ARP:    "arp",
	unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge",
}

// FamilyName is how nft calls a family.
func FamilyName(family byte) string { return families[family] }

// Chains lists the chains of nftables whose names are those of a mesh.
func Chains() ([]Chain, error) { return Named(MeshChains, nativeChains) }

// Named lists the chains of nftables whose names begin with one of some prefixes. A kernel without
// nftables has none.
func Named(prefixes ...string) ([]Chain, error) {
	s, err := wire.Dial(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	objects, err := s.Dump(wire.Message{
		Type:   wire.NFTables | unix.NFT_MSG_GETCHAIN,
		Header: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil // nothing answers for nftables
	}
	if err != nil {
		return nil, fmt.Errorf("list chains of nftables: %w", err)
	}
	var chains []Chain
	for _, o := range objects {
		c := Chain{
			Family: FamilyName(o.Header[0]),
			Table:  wire.Text(wire.Find(o.Attrs, unix.NFTA_CHAIN_TABLE)),
			Name:   wire.Text(wire.Find(o.Attrs, unix.NFTA_CHAIN_NAME)),
		}
		named := func(prefix string) bool { return strings.HasPrefix(c.Name, prefix) }
		if slices.ContainsFunc(prefixes, named) {
			chains = append(chains, c)
		}
	}
	return chains, nil
}

var legacyNames = map[redirect.Family]string{
	redirect.IPv4: "/proc/thread-self/net/ip_tables_names",
	redirect.IPv6: "/proc/thread-self/net/ip6_tables_names",
}

// LegacyTables lists the tables of legacy iptables that a family has.
func LegacyTables(f redirect.Family) ([]string, error) {
	names, err := os.ReadFile(legacyNames[f])
	if errors.Is(err, fs.ErrNotExist) { // this kernel has none
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list tables of legacy iptables: %w", err)
	}
	return strings.Fields(string(names)), nil
}
