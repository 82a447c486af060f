//go:build linux

package nftables

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// readTable reports whether our table is there, and its flags: a dormant one has rules and applies
// none.
func (s socket) readTable() (flags uint32, there bool, err error) {
	err = s.dump(unix.NFT_MSG_GETTABLE, nil, func(attrs []netlink.Attribute) error {
		if name(attrs, unix.NFTA_TABLE_NAME) == TableName {
			flags, there = num(wire.Find(attrs, unix.NFTA_TABLE_FLAGS)), true
		}
		return nil
	})
	return flags, there, err
}

// readChains describes the chains of our table by name.
func (s socket) readChains() (map[string]string, error) {
	chains := map[string]string{}
	err := s.dump(unix.NFT_MSG_GETCHAIN, nil, func(attrs []netlink.Attribute) error {
		if name(attrs, unix.NFTA_CHAIN_TABLE) != TableName {
			return nil
		}
		var b *base
		if data := wire.Find(attrs, unix.NFTA_CHAIN_HOOK); data != nil {
			hook, err := netlink.UnmarshalAttributes(data)
			if err != nil {
				return err
			}
			b = &base{
				kind:     name(attrs, unix.NFTA_CHAIN_TYPE),
				hook:     num(wire.Find(hook, unix.NFTA_HOOK_HOOKNUM)),
				priority: int32(num(wire.Find(hook, unix.NFTA_HOOK_PRIORITY))),
				policy:   num(wire.Find(attrs, unix.NFTA_CHAIN_POLICY)),
			}
		}
		chains[name(attrs, unix.NFTA_CHAIN_NAME)] = b.String()
		return nil
	})
	return chains, err
}

// readRules reads the rules of our table by chain, each as a key to compare and a text to show.
// Nothing is left out: what is not understood is different from what was written.
func (s socket) readRules(sets map[string]string) (map[string][]redirect.Line, error) {
	chains := map[string][]redirect.Line{}
	filter := []netlink.Attribute{text(unix.NFTA_RULE_TABLE, TableName)}
	err := s.dump(unix.NFT_MSG_GETRULE, filter, func(attrs []netlink.Attribute) error {
		line, err := readRule(attrs, sets)
		if name(attrs, unix.NFTA_RULE_TABLE) == TableName {
			chain := name(attrs, unix.NFTA_RULE_CHAIN)
			chains[chain] = append(chains[chain], line)
		}
		return err
	})
	return chains, err
}

func readRule(attrs []netlink.Attribute, sets map[string]string) (redirect.Line, error) {
	list, err := netlink.UnmarshalAttributes(wire.Find(attrs, unix.NFTA_RULE_EXPRESSIONS))
	if err != nil {
		return redirect.Line{}, err
	}
	var key []byte
	for _, e := range list {
		if key, err = decode(key, e.Data, sets); err != nil {
			return redirect.Line{}, err
		}
	}
	text := string(key) + comment(wire.Find(attrs, unix.NFTA_RULE_USERDATA))
	return redirect.Line{Key: text, Text: text}, nil
}

// readSets returns the content of our table's lists by name.
func (s socket) readSets() (map[string]string, error) {
	var sets []set
	var names []string
	filter := []netlink.Attribute{text(unix.NFTA_SET_TABLE, TableName)}
	err := s.dump(unix.NFT_MSG_GETSET, filter, func(attrs []netlink.Attribute) error {
		names = append(names, name(attrs, unix.NFTA_SET_NAME))
		sets = append(sets, set{
			interval: num(wire.Find(attrs, unix.NFTA_SET_FLAGS))&unix.NFT_SET_INTERVAL != 0,
			key:      num(wire.Find(attrs, unix.NFTA_SET_KEY_TYPE)),
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	content := map[string]string{}
	for i := range sets {
		if sets[i].elements, err = s.readElements(names[i]); err != nil {
			return nil, err
		}
		content[setKey(names[i], 0)] = sets[i].digest()
	}
	return content, nil
}

func (s socket) readElements(set string) ([]element, error) {
	var elements []element
	filter := []netlink.Attribute{text(unix.NFTA_SET_ELEM_LIST_TABLE, TableName),
		text(unix.NFTA_SET_ELEM_LIST_SET, set)}
	err := s.dump(unix.NFT_MSG_GETSETELEM, filter, func(attrs []netlink.Attribute) error {
		list, err := netlink.UnmarshalAttributes(wire.Find(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS))
		if err != nil {
			return err
		}
		for _, one := range list {
			e, err := netlink.UnmarshalAttributes(one.Data)
			if err != nil {
				return err
			}
			key, err := netlink.UnmarshalAttributes(wire.Find(e, unix.NFTA_SET_ELEM_KEY))
			if err != nil {
				return err
			}
			ends := num(wire.Find(e, unix.NFTA_SET_ELEM_FLAGS))&unix.NFT_SET_ELEM_INTERVAL_END != 0
			elements = append(elements, element{wire.Find(key, unix.NFTA_DATA_VALUE), ends})
		}
		return nil
	})
	return elements, err
}

func comment(udata []byte) string {
	text, _ := userdata.GetString(udata, userdata.TypeComment)
	return "comment " + strconv.Quote(text)
}

func encode(e expression) ([]byte, error) {
	attrs, err := netlinkAttributes(e.attrs)
	if err != nil {
		return nil, err
	}
	content, err := nest(unix.NFTA_EXPR_DATA, attrs...)
	if err != nil {
		return nil, err
	}
	return netlink.MarshalAttributes([]netlink.Attribute{text(unix.NFTA_EXPR_NAME, e.name),
		content})
}

func netlinkAttributes(list []attribute) ([]netlink.Attribute, error) {
	var all []netlink.Attribute
	for _, a := range list {
		one := netlink.Attribute{Type: a.kind, Data: a.value}
		if a.value == nil {
			inner, err := netlinkAttributes(a.inner)
			if err != nil {
				return nil, err
			}
			if one, err = nest(a.kind, inner...); err != nil {
				return nil, err
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// nested names the attributes that hold attributes, which the kernel and the library flag
// differently, by where they are.
var nested = map[string]map[uint16]string{
	"cmp":            {unix.NFTA_CMP_DATA: "value"},
	"bitwise":        {unix.NFTA_BITWISE_MASK: "value", unix.NFTA_BITWISE_XOR: "value"},
	"immediate":      {unix.NFTA_IMMEDIATE_DATA: "immediate data"},
	"immediate data": {unix.NFTA_DATA_VERDICT: "verdict"},
}

// implied lists the attributes that only one side writes, and the value that says nothing; nil is
// any. The kernel says a zero, and the library a name and an id that live no longer than the
// transaction.
var implied = map[string]map[uint16][]byte{
	"lookup": {unix.NFTA_LOOKUP_FLAGS: make([]byte, 4), unix.NFTA_LOOKUP_SET: nil,
		unix.NFTA_LOOKUP_SET_ID: nil},
	"bitwise": {6: make([]byte, 4)}, // NFTA_BITWISE_OP, since Linux 5.6: mask and xor
}

// decode appends an expression so that two of them are equal exactly if they do the same. A list is
// written out instead of its name.
func decode(to, data []byte, sets map[string]string) ([]byte, error) {
	attrs, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return nil, err
	}
	name := name(attrs, unix.NFTA_EXPR_NAME)
	if name == "counter" {
		return append(to, "counter "...), nil
	}
	list, err := netlink.UnmarshalAttributes(wire.Find(attrs, unix.NFTA_EXPR_DATA))
	if err != nil {
		return nil, err
	}
	to = append(append(to, '['), name...)
	if to, err = decodeFields(to, name, list); err != nil {
		return nil, err
	}
	if name == "lookup" {
		to = append(append(to, ' '), listOf(list, sets)...)
	}
	return append(to, "] "...), nil
}

func decodeFields(to []byte, name string, list []netlink.Attribute) ([]byte, error) {
	slices.SortFunc(list, func(a,
		b netlink.Attribute) int {
		return cmp.Compare(a.Type&wire.TypeMask, b.Type&wire.TypeMask)
	})
	for _, a := range list {
		kind := a.Type & wire.TypeMask
		if zero, ok := implied[name][kind]; ok && (zero == nil || bytes.Equal(a.Data, zero)) {
			continue
		}
		to = append(to, ' ')
		to = strconv.AppendUint(to, uint64(kind), 10)
		to = append(to, '=')
		within, ok := nested[name][kind]
		if !ok {
			to = hex.AppendEncode(to, a.Data)
			continue
		}
		inner, err := netlink.UnmarshalAttributes(a.Data)
		if err != nil {
			return nil, err
		}
		if to, err = decodeFields(append(to, '{'), within, inner); err != nil {
			return nil, err
		}
		to = append(to, '}')
	}
	return to, nil
}

// listOf returns the content of the list that a lookup names: by the kernel's name or, before it
// has one, by number.
func listOf(attrs []netlink.Attribute, sets map[string]string) string {
	set, id := name(attrs, unix.NFTA_LOOKUP_SET), num(wire.Find(attrs, unix.NFTA_LOOKUP_SET_ID))
	if set != anonymous {
		id = 0
	}
	return sets[setKey(set, id)]
}

func setKey(name string, id uint32) string { return fmt.Sprintf("%s#%d", name, id) }

// digest is the content of a list in an order that does not depend on who lists it.
func (s *set) digest() string {
	elements := make([]string, 0, len(s.elements))
	for _, e := range s.elements {
		text := hex.EncodeToString(e.key)
		if e.ends {
			text += "-"
		}
		elements = append(elements, text)
	}
	slices.Sort(elements)
	return fmt.Sprintf("type %d interval %t {%s}", s.key, s.interval, strings.Join(elements, ","))
}

func name(attrs []netlink.Attribute, kind uint16) string {
	return wire.Text(wire.Find(attrs, kind))
}

func num(b []byte) uint32 {
	var n uint32
	for _, one := range b {
		n = n<<8 | uint32(one)
	}
	return n
}
