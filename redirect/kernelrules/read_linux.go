package kernelrules

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// tableKey tells tables apart.
type tableKey struct {
	family byte
	name   string
}

type chainKey struct {
	tableKey
	chain string
}

// reader is one reading of a namespace.
type reader struct {
	socket *wire.Socket
	tables []*Table
	byKey  map[tableKey]*Table
	chains map[chainKey]int    // places in Table.Chains
	flags  map[chainKey]uint64 // of sets, by table and name; nil until a rule asks for one
	sets   map[chainKey]set    // those that rules have asked for
	works  int                 // elements of sets that were read
}

// Read lists all tables of the namespace of the calling thread. A kernel without nftables has none.
func Read() ([]Table, error) {
	s, err := wire.Dial(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read nftables: %w", err)
	}
	defer s.Close()
	r := &reader{socket: s, byKey: map[tableKey]*Table{}, chains: map[chainKey]int{},
		sets: map[chainKey]set{}}
	for _, step := range []func() error{r.readTables, r.readChains, r.readRules} {
		err := step()
		if errors.Is(err, unix.EINVAL) && len(r.tables) == 0 {
			return nil, nil // without nf_tables nobody knows the message
		}
		if errors.Is(err, unix.EPERM) {
			return nil, fmt.Errorf("read nftables: %w: this needs CAP_NET_ADMIN in the namespace",
				err)
		}
		if err != nil {
			return nil, fmt.Errorf("read nftables: %w", err)
		}
	}
	all := make([]Table, len(r.tables))
	for i, t := range r.tables {
		all[i] = *t
	}
	return all, nil
}

func (r *reader) dump(
	kind uint16, family byte, filter ...netlink.Attribute,
) ([]wire.Object, error) {
	return r.socket.Dump(wire.Message{Type: wire.NFTables | kind,
		Header: []byte{family, unix.NFNETLINK_V0, 0, 0}, Attrs: filter})
}

// tableFlags are the flags of a table, by which nft lists them (linux/netfilter/nf_tables.h).
var tableFlags = []struct {
	bit  uint64
	name string
}{{1, "dormant"}, {2, "owner"}, {4, "persist"}}

func (r *reader) readTables() error {
	objects, err := r.dump(unix.NFT_MSG_GETTABLE, unix.NFPROTO_UNSPEC)
	if err != nil {
		return err
	}
	for _, o := range objects {
		key := tableKey{o.Header[0], text(o.Attrs, unix.NFTA_TABLE_NAME)}
		var flags []string
		has := wire.Unsigned(wire.Find(o.Attrs, unix.NFTA_TABLE_FLAGS))
		for _, f := range tableFlags {
			if has&f.bit != 0 {
				flags = append(flags, f.name)
			}
		}
		t := &Table{Family: traces.FamilyName(key.family), Name: key.name,
			Flags: strings.Join(flags, ",")}
		if t.Family == "" {
			t.Family = fmt.Sprint(key.family)
		}
		r.byKey[key], r.tables = t, append(r.tables, t)
	}
	return nil
}

func (r *reader) readChains() error {
	objects, err := r.dump(unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC)
	if err != nil {
		return err
	}
	for _, o := range objects {
		in := tableKey{o.Header[0], text(o.Attrs, unix.NFTA_CHAIN_TABLE)}
		t := r.byKey[in]
		if t == nil {
			continue // it came after the tables were listed
		}
		c := Chain{Name: text(o.Attrs, unix.NFTA_CHAIN_NAME)}
		if c.Base, err = readBase(in.family, o.Attrs); err != nil {
			return err
		}
		r.chains[chainKey{in, c.Name}] = len(t.Chains)
		t.Chains = append(t.Chains, c)
	}
	return nil
}

// hookNames are how nft calls the hooks of the families that see packets of IP.
var hookNames = []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}

func readBase(family byte, attrs []netlink.Attribute) (*Base, error) {
	data := wire.Find(attrs, unix.NFTA_CHAIN_HOOK)
	if data == nil {
		return nil, nil
	}
	hook, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return nil, err
	}
	number := wire.Unsigned(wire.Find(hook, unix.NFTA_HOOK_HOOKNUM))
	b := &Base{Type: text(attrs, unix.NFTA_CHAIN_TYPE), Hook: fmt.Sprint(number),
		Priority: int32(wire.Unsigned(wire.Find(hook, unix.NFTA_HOOK_PRIORITY))),
		Policy:   "accept"}
	switch family {
	case unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6, unix.NFPROTO_BRIDGE:
		if number < uint64(len(hookNames)) {
			b.Hook = hookNames[number]
		}
	}
	if policy := wire.Find(attrs, unix.NFTA_CHAIN_POLICY); policy != nil &&
		wire.Unsigned(policy) == 0 {
		b.Policy = "drop"
	}
	return b, nil
}

func (r *reader) readRules() error {
	objects, err := r.dump(unix.NFT_MSG_GETRULE, unix.NFPROTO_UNSPEC)
	if err != nil {
		return err
	}
	for _, o := range objects {
		in := tableKey{o.Header[0], text(o.Attrs, unix.NFTA_RULE_TABLE)}
		at, ok := r.chains[chainKey{in, text(o.Attrs, unix.NFTA_RULE_CHAIN)}]
		if !ok {
			continue
		}
		one, err := r.readRule(in, o.Attrs)
		if err != nil {
			return err
		}
		chain := &r.byKey[in].Chains[at]
		chain.Rules = append(chain.Rules, one)
	}
	return nil
}

func (r *reader) readRule(in tableKey, attrs []netlink.Attribute) (Rule, error) {
	one := Rule{Handle: wire.Unsigned(wire.Find(attrs, unix.NFTA_RULE_HANDLE))}
	one.Comment, _ = userdata.GetString(wire.Find(attrs, unix.NFTA_RULE_USERDATA),
		userdata.TypeComment)
	list, err := netlink.UnmarshalAttributes(wire.Find(attrs, unix.NFTA_RULE_EXPRESSIONS))
	if err != nil {
		return one, err
	}
	w := &words{reader: r, table: in}
	for _, e := range list {
		if err := w.add(e.Data); err != nil {
			return one, err
		}
	}
	one.Text, one.Counter = w.String(), w.counter
	if w.comment != "" {
		one.Comment = w.comment
	}
	one.Ours = in == tableKey{unix.NFPROTO_INET, nftables.TableName} ||
		strings.HasPrefix(one.Comment, iptables.Tag)
	one.Comment = strings.TrimPrefix(one.Comment, iptables.Tag)
	return one, nil
}

func text(attrs []netlink.Attribute, kind uint16) string {
	return wire.Text(wire.Find(attrs, kind))
}
