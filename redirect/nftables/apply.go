//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
)

// Apply writes the ruleset: addresses and routes first, then the rules in one transaction that
// packets see whole or not at all. Rules that are already there are replaced; a failure leaves what
// was there before. The function that it returns takes back what this call made, for a caller that
// fails later; where it replaced rules, it writes the earlier ones again, and without knowing them
// leaves the new ones, with the routes that they count on.
func Apply(ctx context.Context,
	rs redirect.Ruleset) (undo func(earlier *redirect.Ruleset), err error) {
	undoRouting, err := routing.Apply(rs)
	if err != nil {
		return nil, err
	}
	created, err := applyTable(ctx, translate(rs))
	if err != nil {
		undoRouting()
		return nil, fmt.Errorf("program nftables: %w", explain(err))
	}
	return func(earlier *redirect.Ruleset) { // whoever undoes reports an error already
		switch {
		case created:
			_ = removeTable()
			undoRouting()
		case earlier != nil:
			undoRouting()
			_, _ = Apply(context.WithoutCancel(ctx), *earlier)
		}
	}, nil
}

// applyTable first only adds: a transaction that deletes waits for every CPU to leave the old
// rules, ten times as long as all the rest, and the namespace of a new pod has nothing to delete.
func applyTable(ctx context.Context, t *table) (created bool, err error) {
	s, err := dial()
	if err != nil {
		return false, err
	}
	defer s.Close()
	content, err := t.messages()
	if err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil { // the kernel's part cannot be broken off
		return false, err
	}
	err = s.transact(append([]message{t.creation()}, content...))
	if errors.Is(err, unix.EEXIST) {
		return false, s.replace(t)
	}
	return err == nil, err
}

// replace writes a table in place of the one of that name: created first if there is none, since
// deleting what is not there would fail.
func (s socket) replace(t *table) error {
	content, err := t.messages()
	if err != nil {
		return err
	}
	there := message{kind: unix.NFT_MSG_NEWTABLE, flags: unix.NLM_F_CREATE, attrs: t.attrs()}
	return s.transact(append([]message{there, t.deletion(), t.creation()}, content...))
}

func (t *table) creation() message {
	return message{kind: unix.NFT_MSG_NEWTABLE, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL,
		attrs: t.attrs()}
}

func (t *table) deletion() message { return message{kind: unix.NFT_MSG_DELTABLE, attrs: t.attrs()} }

func (t *table) attrs() []netlink.Attribute {
	return []netlink.Attribute{text(unix.NFTA_TABLE_NAME, t.name)}
}

// Remove deletes our table, and the addresses and routes of the ruleset. What is not there is not
// missed.
func Remove(ctx context.Context, rs redirect.Ruleset) error {
	if err := ctx.Err(); err != nil { // the kernel's part cannot be broken off
		return err
	}
	if err := removeTable(); err != nil {
		return err
	}
	return routing.Remove(rs)
}

func removeTable() error {
	s, err := dial()
	if err != nil {
		return err
	}
	defer s.Close()
	err = s.transact([]message{(&table{name: TableName}).deletion()})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete table inet %s: %w", TableName, explain(err))
	}
	return nil
}

// messages are what fills the table: all chains first, since rules jump to any of them.
func (t *table) messages() ([]message, error) {
	var messages []message
	for _, c := range t.chains {
		m, err := c.message(t.name)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	for _, c := range t.chains {
		for i, r := range c.rules {
			m, err := r.messages(t.name, c.name)
			if err != nil {
				return nil, err
			}
			for j := range m {
				m[j].about = place{c.name, i + 1, r}
			}
			messages = append(messages, m...)
		}
	}
	return messages, nil
}

func (c *chain) message(table string) (message, error) {
	attrs := []netlink.Attribute{text(unix.NFTA_CHAIN_TABLE, table),
		text(unix.NFTA_CHAIN_NAME, c.name)}
	if c.base != nil {
		hook, err := nest(unix.NFTA_CHAIN_HOOK, number(unix.NFTA_HOOK_HOOKNUM, c.base.hook),
			number(unix.NFTA_HOOK_PRIORITY, uint32(c.base.priority)))
		if err != nil {
			return message{}, err
		}
		attrs = append(attrs, hook, number(unix.NFTA_CHAIN_POLICY, c.base.policy),
			text(unix.NFTA_CHAIN_TYPE, c.base.kind))
	}
	return message{unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, attrs, place{chain: c.name}}, nil
}

// messages are the sets of a rule, then the rule.
func (s *statement) messages(table, chain string) ([]message, error) {
	var messages []message
	for _, one := range s.sets {
		m, err := one.messages(table)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m...)
	}
	var list []netlink.Attribute
	for _, e := range s.exprs {
		encoded, err := encode(e)
		if err != nil {
			return nil, err
		}
		list = append(list, netlink.Attribute{Type: unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED,
			Data: encoded})
	}
	exprs, err := nest(unix.NFTA_RULE_EXPRESSIONS, list...)
	if err != nil {
		return nil, err
	}
	return append(messages, message{
		kind: unix.NFT_MSG_NEWRULE, flags: unix.NLM_F_CREATE | unix.NLM_F_APPEND,
		attrs: []netlink.Attribute{
			text(unix.NFTA_RULE_TABLE, table), text(unix.NFTA_RULE_CHAIN, chain), exprs,
			{Type: unix.NFTA_RULE_USERDATA, Data: s.userdata()},
		},
	}), nil
}

func (s *statement) userdata() []byte {
	return userdata.AppendString(nil, userdata.TypeComment,
		s.why)
}

// bigEndian is how nft learns to print the keys of a set.
const bigEndian = 2

// messages are the set, then its elements in chunks.
func (s *set) messages(table string) ([]message, error) {
	flags := uint32(unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT)
	if s.interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	size, err := nest(unix.NFTA_SET_DESC, number(unix.NFTA_SET_DESC_SIZE, uint32(len(s.elements))))
	if err != nil {
		return nil, err
	}
	messages := []message{{kind: unix.NFT_MSG_NEWSET, flags: unix.NLM_F_CREATE,
		attrs: []netlink.Attribute{
			text(unix.NFTA_SET_TABLE, table), text(unix.NFTA_SET_NAME, anonymous),
			number(unix.NFTA_SET_FLAGS, flags),
			number(unix.NFTA_SET_KEY_TYPE, s.key), number(unix.NFTA_SET_KEY_LEN, s.size),
			size, number(unix.NFTA_SET_ID, s.id),
			{Type: unix.NFTA_SET_USERDATA,
				Data: userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, bigEndian)},
		}}}
	for from := 0; from < len(s.elements); from += chunk {
		m, err := s.chunk(table, s.elements[from:min(from+chunk, len(s.elements))])
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func (s *set) chunk(table string, elements []element) (message, error) {
	var list []netlink.Attribute
	for _, e := range elements {
		key, err := nest(unix.NFTA_SET_ELEM_KEY,
			netlink.Attribute{Type: unix.NFTA_DATA_VALUE, Data: e.key})
		if err != nil {
			return message{}, err
		}
		attrs := []netlink.Attribute{key}
		if e.ends {
			attrs = append(attrs, number(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END))
		}
		one, err := nest(unix.NFTA_LIST_ELEM, attrs...)
		if err != nil {
			return message{}, err
		}
		list = append(list, one)
	}
	all, err := nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, list...)
	return message{kind: unix.NFT_MSG_NEWSETELEM, flags: unix.NLM_F_CREATE,
		attrs: []netlink.Attribute{
			text(unix.NFTA_SET_ELEM_LIST_TABLE, table),
			text(unix.NFTA_SET_ELEM_LIST_SET, anonymous),
			number(unix.NFTA_SET_ELEM_LIST_SET_ID, s.id), all,
		}}, err
}

func text(kind uint16, value string) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: append([]byte(value), 0)}
}

func number(kind uint16, value uint32) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: binaryutil.BigEndian.PutUint32(value)}
}

func nest(kind uint16, attrs ...netlink.Attribute) (netlink.Attribute, error) {
	data, err := netlink.MarshalAttributes(attrs)
	return netlink.Attribute{Type: kind | unix.NLA_F_NESTED, Data: data}, err
}
