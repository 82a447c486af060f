package inspect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// An nftReader reads the namespace's nftables, where iptables-nft keeps its rules, too.
type nftReader struct {
	socket   *wire.Socket
	proxy    Proxy
	chains   []*chain
	byKey    map[string]*chain
	elements map[string][]element // of the maps that rules have asked for
	work     int                  // how many elements rules have been tried with
}

// maxWork bounds how often elements of maps are tried with rules: a map of many times rules of many
// can keep a reader busy for minutes, and whoever may write rules into the namespace decides.
const maxWork = 1 << 17

// readNFT reads the chains of the namespace of the calling thread, those of all tables.
func readNFT(p Proxy) ([]*chain, error) {
	s, err := wire.Dial(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil // a kernel without netfilter's netlink has no nftables
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := &nftReader{socket: s, proxy: p, byKey: map[string]*chain{},
		elements: map[string][]element{}}
	rules, err := r.list(unix.NFT_MSG_GETRULE)
	if errors.Is(err, unix.EINVAL) {
		return nil, nil // without nf_tables nobody knows the message
	}
	if err != nil {
		return nil, err
	}
	if err := r.readChains(); err != nil { // after the rules, so that the chain of each is known
		return nil, err
	}
	for _, o := range rules {
		if err := r.readRule(o); err != nil {
			return nil, err
		}
	}
	return r.chains, nil
}

// list asks for all objects of a kind, of all families.
func (r *nftReader) list(kind uint16) ([]wire.Object, error) {
	return r.dump(kind, unix.NFPROTO_UNSPEC, nil)
}

func (r *nftReader) dump(
	kind uint16, family byte, filter []netlink.Attribute,
) ([]wire.Object, error) {
	return r.socket.Dump(wire.Message{
		Type:   wire.NFTables | kind,
		Header: []byte{family, unix.NFNETLINK_V0, 0, 0}, Attrs: filter,
	})
}

// chainKey names a chain: its name is its own within its table only.
func chainKey(family byte, table, name string) string {
	return fmt.Sprintf("%d %q %q", family, table, name)
}

func (r *nftReader) readChains() error {
	tables, err := r.list(unix.NFT_MSG_GETTABLE)
	if err != nil {
		return err
	}
	dormant := map[string]bool{} // their chains are there, and not hooked
	for _, o := range tables {
		key := chainKey(o.Header[0], wire.Text(wire.Find(o.Attrs, unix.NFTA_TABLE_NAME)), "")
		dormant[key] = number(wire.Find(o.Attrs,
			unix.NFTA_TABLE_FLAGS))&unix.NFT_TABLE_F_DORMANT != 0
	}
	chains, err := r.list(unix.NFT_MSG_GETCHAIN)
	if err != nil {
		return err
	}
	for _, o := range chains {
		family, table := o.Header[0], wire.Text(wire.Find(o.Attrs, unix.NFTA_CHAIN_TABLE))
		name := wire.Text(wire.Find(o.Attrs, unix.NFTA_CHAIN_NAME))
		translates := wire.Text(wire.Find(o.Attrs, unix.NFTA_CHAIN_TYPE)) == "nat"
		hooked, err := seesPod(family, table == "filter" && !translates,
			wire.Find(o.Attrs, unix.NFTA_CHAIN_HOOK))
		if err != nil {
			return err
		}
		c := &chain{
			key: chainKey(family, table, name), name: name,
			where:  fmt.Sprintf("chain %s of table %s %s", name, traces.FamilyName(family), table),
			hooked: hooked && !dormant[chainKey(family, table, "")], backend: redirect.NFTables,
		}
		if family != unix.NFPROTO_INET {
			c.backend = redirect.IptablesNFT
		}
		r.chains, r.byKey[c.key] = append(r.chains, c), c
	}
	return nil
}

// seesPod reports whether a chain is at a hook where packets can be redirected. The table filter
// of iptables has such a hook, too, and no rule in it redirects anything, whatever the chains
// there are called.
func seesPod(family byte, filters bool, hook []byte) (bool, error) {
	xtables := family == unix.NFPROTO_IPV4 || family == unix.NFPROTO_IPV6 // where iptables-nft is
	if hook == nil || !xtables && family != unix.NFPROTO_INET || xtables && filters {
		return false, nil
	}
	attrs, err := netlink.UnmarshalAttributes(hook)
	at := number(wire.Find(attrs, unix.NFTA_HOOK_HOOKNUM))
	return at == unix.NF_INET_PRE_ROUTING || at == unix.NF_INET_LOCAL_OUT, err
}

func (r *nftReader) readRule(o wire.Object) error {
	family, table := o.Header[0], wire.Text(wire.Find(o.Attrs, unix.NFTA_RULE_TABLE))
	c := r.byKey[chainKey(family, table, wire.Text(wire.Find(o.Attrs, unix.NFTA_RULE_CHAIN)))]
	if c == nil {
		return nil // deleted meanwhile, with its chain
	}
	expressions, err := netlink.UnmarshalAttributes(wire.Find(o.Attrs, unix.NFTA_RULE_EXPRESSIONS))
	if err != nil {
		return err
	}
	e := evaluation{reader: r, family: family, table: table}
	for _, one := range expressions {
		if err := e.add(one.Data); err != nil {
			return err
		}
	}
	e.rule.ours = family == unix.NFPROTO_INET && table == nftables.TableName || commented(o.Attrs)
	c.rules = append(c.rules, e.rule)
	return nil
}

// commented reports whether a rule of iptables-nft has our comment, which some versions keep
// beside the rule.
func commented(attrs []netlink.Attribute) bool {
	return bytes.Contains(wire.Find(attrs, unix.NFTA_RULE_EXPRESSIONS), []byte(iptables.Tag)) ||
		bytes.Contains(wire.Find(attrs, unix.NFTA_RULE_USERDATA), []byte(iptables.Tag))
}

// An element is what a map has for a key: the data of values, or a chain.
type element struct {
	value []byte
	chain string // "" if it is no verdict, or none that leads to a chain
}

// elementsOf returns what a map has.
func (r *nftReader) elementsOf(family byte, table, set string) ([]element, error) {
	key := chainKey(family, table, set)
	if known, ok := r.elements[key]; ok {
		if r.work += len(known); r.work > maxWork {
			return nil, fmt.Errorf("maps of table %s %s: %w", traces.FamilyName(family), table,
				wire.ErrTooMuch)
		}
		return known, nil
	}
	objects, err := r.dump(unix.NFT_MSG_GETSETELEM, family, []netlink.Attribute{
		{Type: unix.NFTA_SET_ELEM_LIST_TABLE, Data: []byte(table + "\x00")},
		{Type: unix.NFTA_SET_ELEM_LIST_SET, Data: []byte(set + "\x00")},
	})
	if err != nil {
		return nil, fmt.Errorf("map %s of table %s %s: %w", set, traces.FamilyName(family), table,
			err)
	}
	elements := []element{}
	for _, o := range objects {
		list, err := netlink.UnmarshalAttributes(wire.Find(o.Attrs,
			unix.NFTA_SET_ELEM_LIST_ELEMENTS))
		if err != nil {
			return nil, err
		}
		for _, one := range list {
			attrs, err := netlink.UnmarshalAttributes(one.Data)
			if err != nil {
				return nil, err
			}
			e, err := readData(wire.Find(attrs, unix.NFTA_SET_ELEM_DATA))
			if err != nil {
				return nil, err
			}
			elements = append(elements, e)
		}
		if len(elements) > maxWork {
			return nil, fmt.Errorf("map %s of table %s %s: %w", set, traces.FamilyName(family),
				table, wire.ErrTooMuch)
		}
	}
	r.elements[key] = elements
	return elements, nil
}

// readData reads what an element or an immediate expression has: a value, or a verdict.
func readData(data []byte) (element, error) {
	attrs, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return element{}, err
	}
	verdict, err := netlink.UnmarshalAttributes(wire.Find(attrs, unix.NFTA_DATA_VERDICT))
	to := wire.Text(wire.Find(verdict, unix.NFTA_VERDICT_CHAIN))
	return element{wire.Find(attrs, unix.NFTA_DATA_VALUE), to}, err
}

// number reads what netfilter writes in the network's order. An attribute that is not there is 0.
func number(data []byte) uint32 {
	if len(data) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(data)
}
