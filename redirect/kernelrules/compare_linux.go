package kernelrules

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// comparisons are how nft writes the operations of cmp; equality has no sign.
var comparisons = map[uint64]string{unix.NFT_CMP_EQ: "", unix.NFT_CMP_NEQ: "!= ",
	unix.NFT_CMP_LT: "< ", unix.NFT_CMP_LTE: "<= ", unix.NFT_CMP_GT: "> ", unix.NFT_CMP_GTE: ">= "}

func (w *words) cmp(e expression) error {
	of := w.registers[e.number(unix.NFTA_CMP_SREG)]
	data, err := e.value(unix.NFTA_CMP_DATA)
	if err != nil {
		return err
	}
	op := e.number(unix.NFTA_CMP_OP)
	value := of.kind.text(data)
	switch {
	case of.kind == stateKind && of.mask != nil && op == unix.NFT_CMP_NEQ:
		w.say("%s %s", of.name, stateNames(of.mask))
		return nil
	case of.mask != nil && of.kind == addressKind:
		value = networkText(data, of.mask, w.addressLen(of))
	case of.mask != nil:
		w.say("%s & 0x%x %s0x%x", of.name, of.mask, comparisons[op], data)
		return nil
	case op == unix.NFT_CMP_GTE: // a range, of which the other bound follows
		w.from = value
		return nil
	case op == unix.NFT_CMP_LTE && w.from != "":
		value, w.from, op = w.from+"-"+value, "", unix.NFT_CMP_EQ
	}
	w.note(of, value, op)
	w.say("%s %s%s", of.name, comparisons[op], value)
	return nil
}

// note remembers the words that others may imply.
func (w *words) note(of operand, value string, op uint64) {
	if op != unix.NFT_CMP_EQ {
		return
	}
	if of.kind == familyKind {
		w.family, w.familyAt = value, len(w.list)
	}
	if of.kind == protocolKind {
		w.protocol, w.protocolAt = value, len(w.list)
	}
}

func (w *words) addressLen(of operand) int {
	if strings.HasPrefix(of.name, "ip6") {
		return 16
	}
	return 4
}

func (w *words) lookup(e expression) error {
	of := w.registers[e.number(unix.NFTA_LOOKUP_SREG)]
	name := text(e.attrs, unix.NFTA_LOOKUP_SET)
	not := ""
	if e.number(unix.NFTA_LOOKUP_FLAGS)&unix.NFT_LOOKUP_F_INV != 0 {
		not = "!= "
	}
	if e.has(unix.NFTA_LOOKUP_DREG) {
		w.registers[e.number(unix.NFTA_LOOKUP_DREG)] = operand{name: of.name + " map @" + name}
		if e.number(unix.NFTA_LOOKUP_DREG) == unix.NFT_REG_VERDICT {
			w.say("%s vmap @%s", of.name, name)
		}
		return nil
	}
	s, err := w.reader.set(w.table, name)
	if err != nil {
		return err
	}
	if !s.anonymous {
		w.say("%s %s@%s", of.name, not, name)
		return nil
	}
	w.say("%s %s{ %s }", of.name, not, strings.Join(s.texts(of.kind), ", "))
	return nil
}

// set is the content of a set.
type set struct {
	anonymous, interval bool
	elements            []element
}

type element struct {
	key  []byte
	ends bool // it is where a range ends, and not in it any more
}

// maxElements bounds what is read of sets in all: whoever may write rules decides how long they
// are.
const maxElements = 1 << 17

// set reads a set, once.
func (r *reader) set(in tableKey, name string) (set, error) {
	key := chainKey{in, name}
	if s, ok := r.sets[key]; ok {
		return s, nil
	}
	if r.flags == nil {
		if err := r.readSetFlags(); err != nil {
			return set{}, err
		}
	}
	s := set{anonymous: r.flags[key]&unix.NFT_SET_ANONYMOUS != 0,
		interval: r.flags[key]&unix.NFT_SET_INTERVAL != 0}
	if s.anonymous {
		elements, err := r.elements(in, name)
		if err != nil {
			return set{}, err
		}
		s.elements = elements
		if r.works += len(elements); r.works > maxElements {
			return set{}, wire.ErrTooMuch
		}
	}
	r.sets[key] = s
	return s, nil
}

func (r *reader) readSetFlags() error {
	objects, err := r.dump(unix.NFT_MSG_GETSET, unix.NFPROTO_UNSPEC)
	if err != nil {
		return err
	}
	r.flags = map[chainKey]uint64{}
	for _, o := range objects {
		in := tableKey{o.Header[0], text(o.Attrs, unix.NFTA_SET_TABLE)}
		r.flags[chainKey{in, text(o.Attrs, unix.NFTA_SET_NAME)}] =
			wire.Unsigned(wire.Find(o.Attrs, unix.NFTA_SET_FLAGS))
	}
	return nil
}

func (r *reader) elements(in tableKey, name string) ([]element, error) {
	objects, err := r.dump(unix.NFT_MSG_GETSETELEM, in.family,
		wire.String(unix.NFTA_SET_ELEM_LIST_TABLE, in.name),
		wire.String(unix.NFTA_SET_ELEM_LIST_SET, name))
	if err != nil {
		return nil, err
	}
	var all []element
	for _, o := range objects {
		list, err := netlink.UnmarshalAttributes(wire.Find(o.Attrs,
			unix.NFTA_SET_ELEM_LIST_ELEMENTS))
		if err != nil {
			return nil, err
		}
		for _, one := range list {
			e, err := netlink.UnmarshalAttributes(one.Data)
			if err != nil {
				return nil, err
			}
			key, err := netlink.UnmarshalAttributes(wire.Find(e, unix.NFTA_SET_ELEM_KEY))
			if err != nil {
				return nil, err
			}
			flags := wire.Unsigned(wire.Find(e, unix.NFTA_SET_ELEM_FLAGS))
			all = append(all, element{wire.Find(key, unix.NFTA_DATA_VALUE),
				flags&unix.NFT_SET_ELEM_INTERVAL_END != 0})
		}
	}
	return all, nil
}

// texts are the members in their order; of a set of ranges, the ranges.
func (s set) texts(k kind) []string {
	sorted := slices.Clone(s.elements)
	slices.SortFunc(sorted, func(a, b element) int {
		if c := bytes.Compare(a.key, b.key); c != 0 {
			return c
		}
		return cmp.Compare(map[bool]int{true: 0, false: 1}[a.ends],
			map[bool]int{true: 0, false: 1}[b.ends])
	})
	var all []string
	for i, e := range sorted {
		switch {
		case e.ends:
		case !s.interval:
			all = append(all, k.text(e.key))
		case i+1 < len(sorted):
			all = append(all, k.between(e.key, before(sorted[i+1].key)))
		default: // to the highest value
			all = append(all, k.between(e.key, bytes.Repeat([]byte{0xff}, len(e.key))))
		}
	}
	return all
}

// before is the value that comes before another one.
func before(key []byte) []byte {
	last := bytes.Clone(key)
	for i := len(last) - 1; i >= 0; i-- {
		last[i]--
		if last[i] != 0xff {
			break
		}
	}
	return last
}

// networkText is a network where the mask is one.
func networkText(data, mask []byte, size int) string {
	ones := 0
	for _, b := range mask {
		ones += bits.LeadingZeros8(^b)
		if b != 0xff {
			break
		}
	}
	full := make([]byte, size)
	copy(full, data)
	return fmt.Sprintf("%s/%d", addressKind.text(full), ones)
}
