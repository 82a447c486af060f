package nftrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// tablePrefix begins the names of tracing tables; the port that the packet comes from follows, so
// that two who trace at once have two tables.
const tablePrefix = "sidecar-cni-trace-"

// The chains of a tracing table. A packet begins to be reported in a first one, ahead of all
// others, and is dropped in a last one.
const (
	firstOut    = "first-output"
	firstIn     = "first-prerouting"
	lastOut     = "last-postrouting"
	lastIn      = "last-input"
	lastForward = "last-forward"
)

// Linux has all source NAT at priority 100, by whatever chain it is asked for. Behind it the packet
// might bear another source, by which nobody would know what to drop.
const aheadOfSourceNAT = 99

var tracingChains = []struct {
	name     string
	hook     uint32
	priority int32
}{
	{firstOut, unix.NF_INET_LOCAL_OUT, math.MinInt32},
	{firstIn, unix.NF_INET_PRE_ROUTING, math.MinInt32},
	{lastOut, unix.NF_INET_POST_ROUTING, aheadOfSourceNAT},
	{lastIn, unix.NF_INET_LOCAL_IN, aheadOfSourceNAT},
	{lastForward, unix.NF_INET_FORWARD, math.MaxInt32 - 1},
}

// condition is expressions that a packet has to meet.
type condition []expr.Any

func equals(load expr.Any, value []byte) condition {
	return condition{load, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: value}}
}

func meta(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: 1} }

func port(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

func protocolIs(p redirect.Protocol, addr netip.Addr) condition {
	family := byte(unix.NFPROTO_IPV4)
	if addr.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return append(equals(meta(expr.MetaKeyNFPROTO), []byte{family}),
		equals(meta(expr.MetaKeyL4PROTO), []byte{byte(p)})...)
}

func network(offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset,
		Len: length}
}

func transport(offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset,
		Len: length}
}

func sourceIs(a netip.AddrPort) condition {
	offset := uint32(12)
	if a.Addr().Is6() {
		offset = 8
	}
	return append(equals(network(offset, uint32(a.Addr().BitLen()/8)), a.Addr().AsSlice()),
		equals(transport(0, 2), port(a.Port()))...)
}

func destinationIs(a netip.AddrPort) condition {
	offset := uint32(16)
	if a.Addr().Is6() {
		offset = 24
	}
	return append(equals(network(offset, uint32(a.Addr().BitLen()/8)), a.Addr().AsSlice()),
		equals(transport(2, 2), port(a.Port()))...)
}

// isSYN holds for the packets that begin a connection of TCP: of its flags FIN, SYN, RST and ACK
// they have SYN alone.
func isSYN() condition {
	const asked, syn = 0x17, 0x02
	return condition{transport(13, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{asked},
			Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{syn}}}
}

func interfaceIs(key expr.MetaKey, name string) condition {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return equals(meta(key), data)
}

// tracingRule is one of a tracing table.
type tracingRule struct {
	chain string
	exprs []expr.Any
}

// report makes the kernel report what meets a condition.
func report(chain string, when ...condition) tracingRule {
	return tracingRule{chain, append(join(when),
		&expr.Immediate{Register: 1, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, Register: 1, SourceRegister: true})}
}

// discard drops what meets a condition.
func discard(chain string, when ...condition) tracingRule {
	return tracingRule{chain, append(join(when), &expr.Verdict{Kind: expr.VerdictDrop})}
}

func join(all []condition) []expr.Any {
	var exprs []expr.Any
	for _, c := range all {
		exprs = append(exprs, c...)
	}
	return exprs
}

const lo = "lo"

// rulesFor reports and drops one packet. On its way over lo it may have another destination.
func rulesFor(p tuple, in string) []tracingRule {
	from := append(protocolIs(p.protocol, p.source.Addr()), sourceIs(p.source)...)
	first := []tracingRule{report(firstOut, from, destinationIs(p.destination)),
		report(firstIn, interfaceIs(expr.MetaKeyIIFNAME, lo), from)}
	if in != "" {
		first = []tracingRule{report(firstIn, interfaceIs(expr.MetaKeyIIFNAME, in), from,
			destinationIs(p.destination))}
	}
	notLo := interfaceIs(expr.MetaKeyOIFNAME, lo)
	notLo[1].(*expr.Cmp).Op = expr.CmpOpNeq //nolint:forcetypeassert // it was just made
	return append(first, discard(lastOut, notLo, from), discard(lastIn, from),
		discard(lastForward, from))
}

// isKnown holds for packets of connections that conntrack had before: it confirms one behind our
// last chains. Of such a packet no chain of type nat is asked.
func isKnown() condition {
	const statusConfirmed = 1 << 3 // IPS_CONFIRMED, linux/netfilter/nf_conntrack_common.h
	confirmed := binary.NativeEndian.AppendUint32(nil, statusConfirmed)
	zero := make([]byte, len(confirmed))
	return condition{&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(len(confirmed)),
			Mask: confirmed, Xor: zero},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: zero}}
}

// rules report what a filter asks for, and drop nothing. Those of the last chains are met by what
// is no first packet of a connection.
func (f Filter) rules() []tracingRule {
	all := f.first()
	for _, chain := range []string{lastOut, lastIn, lastForward} {
		all = append(all, tracingRule{chain, isKnown()})
	}
	return all
}

// first begin to report what a filter asks for. A packet meets one of them only.
func (f Filter) first() []tracingRule {
	when := append(protocolIs(f.Protocol, f.To.Addr()), destinationIs(f.To)...)
	if f.Protocol == redirect.TCP {
		when = append(when, isSYN()...)
	}
	if f.In != "" {
		return []tracingRule{report(firstIn, when, interfaceIs(expr.MetaKeyIIFNAME, f.In))}
	}
	if f.Out != "" {
		when = append(when, interfaceIs(expr.MetaKeyOIFNAME, f.Out)...)
	}
	done := &expr.Verdict{Kind: expr.VerdictAccept}
	var all []tracingRule
	for _, o := range f.Except {
		all = append(all, tracingRule{firstOut, append(o.is(), done)})
	}
	for _, o := range f.Of {
		one := report(firstOut, when, o.is())
		all = append(all, tracingRule{firstOut, append(one.exprs, done)})
	}
	if len(f.Of) == 0 {
		all = append(all, report(firstOut, when))
	}
	return all
}

// is holds for what an owner sends.
func (o Owner) is() condition {
	var all condition
	if o.UID != nil {
		all = append(all, equals(meta(expr.MetaKeySKUID), native(*o.UID))...)
	}
	if o.GID != nil {
		all = append(all, equals(meta(expr.MetaKeySKGID), native(*o.GID))...)
	}
	return all
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// tableFlagOwner has the kernel remove a table with the socket that made it, and let nobody else
// change it (NFT_TABLE_F_OWNER, linux/netfilter/nf_tables.h).
const tableFlagOwner = 2

// tracingTable is a table that lasts as long as the socket that wrote it.
type tracingTable struct {
	name  string
	flags uint32
	rules []tracingRule
}

func newTable(name string, rules []tracingRule) tracingTable {
	return tracingTable{tablePrefix + name, tableFlagOwner, rules}
}

// arm writes the table, which the kernel removes when the socket that it returns is closed.
func (t tracingTable) arm() (*wire.Socket, error) {
	s, err := wire.Dial(unix.NETLINK_NETFILTER)
	if err == nil {
		if err = t.write(s); err != nil {
			s.Close()
		}
	}
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("write the tracing rules: %w: this needs CAP_NET_ADMIN in the "+
			"pod's network namespace", err)
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return nil, ErrNoNFTables
	}
	return nil, fmt.Errorf("write the tracing rules: %w", err)
}

func (t tracingTable) write(s *wire.Socket) error {
	messages, err := t.messages()
	if err != nil {
		return err
	}
	messages[len(messages)-1].Flags |= unix.NLM_F_ACK
	answers, err := s.Exchange(append(messages, batch(unix.NFNL_MSG_BATCH_END)))
	if err != nil {
		return err
	}
	for i, a := range answers {
		switch aboutTable := i == 1; {
		case aboutTable && (errors.Is(a.Err, unix.EINVAL) || errors.Is(a.Err, unix.EOPNOTSUPP)):
			return ErrOldKernel
		case a.Err != nil:
			return a.Err
		}
	}
	if !answers[len(messages)-1].Heard {
		return errors.New("the kernel did not confirm it")
	}
	return nil
}

// messages begin a transaction that writes the table.
func (t tracingTable) messages() ([]wire.Message, error) {
	messages := []wire.Message{batch(unix.NFNL_MSG_BATCH_BEGIN),
		message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
			wire.String(unix.NFTA_TABLE_NAME, t.name),
			wire.Number(unix.NFTA_TABLE_FLAGS, t.flags))}
	for _, c := range tracingChains {
		hook, err := wire.Nest(unix.NFTA_CHAIN_HOOK, wire.Number(unix.NFTA_HOOK_HOOKNUM, c.hook),
			wire.Number(unix.NFTA_HOOK_PRIORITY, uint32(c.priority)))
		if err != nil {
			return nil, err
		}
		const accept = 1
		messages = append(messages, message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE,
			wire.String(unix.NFTA_CHAIN_TABLE, t.name), wire.String(unix.NFTA_CHAIN_NAME, c.name),
			hook, wire.Number(unix.NFTA_CHAIN_POLICY, accept),
			wire.String(unix.NFTA_CHAIN_TYPE, "filter")))
	}
	for _, r := range t.rules {
		exprs, err := expressions(r.exprs)
		if err != nil {
			return nil, err
		}
		messages = append(messages, message(unix.NFT_MSG_NEWRULE,
			unix.NLM_F_CREATE|unix.NLM_F_APPEND, wire.String(unix.NFTA_RULE_TABLE, t.name),
			wire.String(unix.NFTA_RULE_CHAIN, r.chain), exprs))
	}
	return messages, nil
}

func batch(kind uint16) wire.Message {
	return wire.Message{Type: kind,
		Header: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}}
}

func message(kind, flags uint16, attrs ...netlink.Attribute) wire.Message {
	return wire.Message{Type: wire.NFTables | kind, Flags: flags,
		Header: []byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, Attrs: attrs}
}

func expressions(list []expr.Any) (netlink.Attribute, error) {
	elements := make([]netlink.Attribute, len(list))
	for i, e := range list {
		data, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			return netlink.Attribute{}, err
		}
		elements[i] = wire.Bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, data)
	}
	return wire.Nest(unix.NFTA_RULE_EXPRESSIONS, elements...)
}
