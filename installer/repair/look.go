package repair

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

const (
	// ownComment begins the comments of our rules in iptables.
	ownComment = "sidecar-cni: "
	// meshChains begins the names of istio-init's chains, and of ours.
	meshChains = "ISTIO_"
	typeMask   = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
)

// A sign is something in a namespace that redirects, or belongs to what does.
type sign struct {
	where string
	ours  bool
}

// look reads what redirects in the namespace of the calling thread: rules that give packets another destination or another
// socket, and the chains of a mesh, of which there may be one without such a rule. No program is run.
func look() ([]sign, error) {
	signs, err := lookNFT()
	if err != nil {
		return nil, fmt.Errorf("read nftables: %w", err)
	}
	legacy, err := lookLegacy()
	if err != nil {
		return nil, fmt.Errorf("read legacy iptables: %w", err)
	}
	return append(signs, legacy...), nil
}

// lookNFT sees what iptables-nft wrote, too.
func lookNFT() ([]sign, error) {
	s, err := wire.Dial(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil // a kernel without netfilter's netlink has no nftables
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	chains, err := dump(s, unix.NFT_MSG_GETCHAIN)
	if errors.Is(err, unix.EINVAL) {
		return nil, nil // without nf_tables nobody knows the message
	}
	if err != nil {
		return nil, err
	}
	rules, err := dump(s, unix.NFT_MSG_GETRULE)
	if err != nil {
		return nil, err
	}
	var signs []sign
	for _, o := range chains {
		one := signAt(o, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME)
		if chain := text(find(o.Attrs, unix.NFTA_CHAIN_NAME)); strings.HasPrefix(chain, meshChains) && !one.ours {
			signs = append(signs, one)
		}
	}
	for _, o := range rules {
		redirects, err := redirects(find(o.Attrs, unix.NFTA_RULE_EXPRESSIONS))
		if err != nil {
			return nil, err
		}
		one := signAt(o, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN)
		one.ours = one.ours || commented(o.Attrs)
		if redirects {
			signs = append(signs, one)
		}
	}
	return signs, nil
}

func dump(s *wire.Socket, kind uint16) ([]wire.Object, error) {
	return s.Dump(wire.Message{
		Type:   unix.NFNL_SUBSYS_NFTABLES<<8 | kind,
		Header: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}, // of all families
	})
}

var families = map[byte]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_ARP: "arp",
	unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge",
}

func signAt(o wire.Object, tableAttr, chainAttr uint16) sign {
	family, table := o.Header[0], text(find(o.Attrs, tableAttr))
	return sign{
		where: fmt.Sprintf("chain %s of table %s %s", text(find(o.Attrs, chainAttr)), families[family], table),
		ours:  family == unix.NFPROTO_INET && table == nftables.TableName,
	}
}

// commented reports whether a rule of iptables-nft has our comment, which some versions keep beside the rule.
func commented(attrs []netlink.Attribute) bool {
	return bytes.Contains(find(attrs, unix.NFTA_RULE_EXPRESSIONS), []byte(ownComment)) ||
		bytes.Contains(find(attrs, unix.NFTA_RULE_USERDATA), []byte(ownComment))
}

// redirects looks among a rule's expressions for one that gives the packet another destination or socket.
func redirects(expressions []byte) (bool, error) {
	list, err := netlink.UnmarshalAttributes(expressions)
	if err != nil {
		return false, err
	}
	for _, element := range list {
		one, err := netlink.UnmarshalAttributes(element.Data)
		if err != nil {
			return false, err
		}
		data, err := netlink.UnmarshalAttributes(find(one, unix.NFTA_EXPR_DATA))
		if err != nil {
			return false, err
		}
		switch text(find(one, unix.NFTA_EXPR_NAME)) {
		case "redir", "tproxy":
			return true, nil
		case "nat":
			if kind := find(data, unix.NFTA_NAT_TYPE); len(kind) == 4 && binary.BigEndian.Uint32(kind) == unix.NFT_NAT_DNAT {
				return true, nil
			}
		case "target": // an extension of iptables, behind iptables-nft
			if redirectsTarget(text(find(data, unix.NFTA_TARGET_NAME))) {
				return true, nil
			}
		}
	}
	return false, nil
}

func redirectsTarget(name string) bool {
	return name == "REDIRECT" || name == "DNAT" || name == "TPROXY"
}

func find(attrs []netlink.Attribute, kind uint16) []byte {
	for _, a := range attrs {
		if a.Type&typeMask == kind {
			return a.Data
		}
	}
	return nil
}

func text(data []byte) string {
	before, _, _ := bytes.Cut(data, []byte{0})
	return string(before)
}
