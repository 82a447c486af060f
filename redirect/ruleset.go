package redirect

import (
	"net/netip"
	"slices"
	"strings"
)

// Ruleset is everything that redirects a pod: the rules, and the addresses and routes that they
// count on. It is a plain value; a dialect writes it into a kernel, reads it back, or prints it.
type Ruleset struct {
	Chains    []Chain        // by table; in each the chains with a hook first
	Addresses []netip.Prefix // on lo, beside the usual two
	Routes    []PolicyRoute  // empty without TPROXY
}

// Chain is a list of rules that is tried from top to bottom. A chain with a hook is entered by
// packets, one without by jumps. A name is used once in a ruleset, except for the names of hooks,
// which each table has.
type Chain struct {
	Table Table  // jumps lead to chains of the same table only
	Name  string // the hook's, or one that begins with ISTIO_
	Hook  Hook   // NoHook: entered by jumps only
	Rules []Rule // in the order in which they are tried
}

// Rule says what happens to the packets that match, and why somebody wanted it.
type Rule struct {
	Why  string // a few words: the rule's comment in the kernel
	If   Match  // the zero Match is met by every packet
	Then Action // what is done with a packet that meets If
}

// PolicyRoute delivers packets with a mark to a local socket, whatever their destination is, in
// both families.
type PolicyRoute struct {
	Mark  uint32 // of the packets; not 0
	Table uint32 // the routing table for them; not 0
}

// Table is one of the passes that a packet makes at each hook, in this order.
type Table uint8

// The tables. Raw comes before connection tracking; NAT is asked for the first packet of a
// connection only.
const (
	Raw Table = iota + 1
	Mangle
	NAT
)

// Tables lists the tables in the order in which a packet passes them.
var Tables = []Table{Raw, Mangle, NAT}

func (t Table) String() string { return [...]string{"", "raw", "mangle", "nat"}[t] }

// Hook is the place in the network stack where a chain is entered.
type Hook uint8

// The hooks: Prerouting sees what enters the pod, lo included, Output what its processes send.
const (
	NoHook Hook = iota
	Prerouting
	Output
)

func (h Hook) String() string { return [...]string{"", "PREROUTING", "OUTPUT"}[h] }

// Family is an address family.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists the families.
var Families = []Family{IPv4, IPv6}

func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Match holds the conditions of a rule, all of which a packet must meet. A zero field is no
// condition. The vocabulary is closed: what the dialects render, Explain says and package simulate
// plays is exactly this.
type Match struct {
	In, Out                     Interface // through which the packet enters, or leaves
	Protocol                    Protocol  // AnyProtocol: no condition
	Source, Destination         Addresses // of both families, see For
	SourcePort, DestinationPort Ports     // with TCP or UDP only

	// Of the socket that sent the packet; a packet without a socket matches none.
	UID, GID IDs

	Mark, ConnMark Mark  // of the packet, and of its connection
	State          State // a set: the packet's is one of these
}

// Interface is a network interface's name; with a + at its end, every name that begins so.
type Interface string

// Holds reports whether the interface called name is meant.
func (i Interface) Holds(name string) bool {
	if prefix, ok := strings.CutSuffix(string(i), "+"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return string(i) == name
}

// among reports whether all that name stands for is meant by one of the list.
func among(list []Interface, name Interface) bool {
	return slices.ContainsFunc(list, func(i Interface) bool {
		return i == name || strings.HasSuffix(string(i), "+") &&
			strings.HasPrefix(string(name), string(i[:len(i)-1]))
	})
}

// Protocol is a transport protocol.
type Protocol uint8

// The protocols, by their numbers.
const (
	AnyProtocol Protocol = 0
	TCP         Protocol = 6
	UDP         Protocol = 17
)

func (p Protocol) String() string {
	return map[Protocol]string{AnyProtocol: "any protocol", TCP: "TCP", UDP: "UDP"}[p]
}

// Addresses is a list of networks, or with Not everything outside of it. A negated list has one
// prefix a family.
type Addresses struct {
	Not      bool           // meets what is in none of Prefixes
	Prefixes []netip.Prefix // empty: no condition, whatever Not is
}

func (a Addresses) zero() bool { return len(a.Prefixes) == 0 }

// Ports is a list of ports, or with Not every port that it lacks.
type Ports struct {
	Not  bool     // meets what is not in List
	List []uint16 // empty: no condition, whatever Not is
}

func (p Ports) zero() bool { return len(p.List) == 0 }

func (p Ports) holds(port uint16) bool { return slices.Contains(p.List, port) != p.Not }

// IDs is a list of user or group ids.
type IDs []IDRange

// IDRange is the ids from First to Last, both included.
type IDRange struct {
	// Both are included; First is not above Last.
	First uint32 `json:"first"`
	Last  uint32 `json:"last"`
}

// Holds reports whether the list has id.
func (ids IDs) Holds(id uint32) bool {
	return slices.ContainsFunc(ids, func(r IDRange) bool { return r.First <= id && id <= r.Last })
}

// Mark is a packet's or a connection's mark, or with Not every other. The mark 0 is no condition.
type Mark struct {
	Not   bool   // meets every mark but Value
	Value uint32 // 0: no condition, whatever Not is
}

// State is a set of the states that connection tracking gives to packets.
type State uint8

// The states.
const (
	New State = 1 << iota
	Established
	Related
	Invalid
)

// States lists the states.
var States = []State{New, Established, Related, Invalid}

func (s State) String() string {
	names := map[State]string{New: "new", Established: "established", Related: "related",
		Invalid: "invalid"}
	var words []string
	for _, one := range States {
		if s&one != 0 {
			words = append(words, names[one])
		}
	}
	return strings.Join(words, " or ")
}

// Verb is what a rule does.
type Verb uint8

// The verbs. Return, Accept, Drop, Redirect and TProxy end a packet's way through the chain; the
// others let it go on.
const (
	// back to the rule behind the jump; from a hook's chain: the packet passes
	Return   Verb = iota + 1
	Accept        // leave this table
	Drop          // gone, without an answer
	Jump          // try Action.Chain
	Redirect      // to Action.Port of this pod, the destination being rewritten
	// to the transparent socket on Action.Port, destination kept; marked; dropped if none listens
	TProxy
	SetMark     // give the packet Action.Mark
	SaveMark    // copy the packet's mark to its connection
	RestoreMark // copy the connection's mark to the packet
	SetZone     // track the packet in Action.Zone; only the first such rule counts
)

// Verbs lists the verbs.
var Verbs = []Verb{Return, Accept, Drop, Jump, Redirect, TProxy, SetMark, SaveMark, RestoreMark,
	SetZone}

// Action is a verb with the one or two values that it needs.
type Action struct {
	Verb  Verb   // decides which of the other fields are used, see Verb
	Chain string // the name of a chain of the same table
	Port  uint16 // of this pod
	Mark  uint32 // for the packet
	Zone  uint16 // of connection tracking
}

// For returns the conditions as they are in one family, where addresses of the other cannot occur;
// false says that no packet of that family can match.
func (m Match) For(f Family) (Match, bool) {
	var ok1, ok2 bool
	m.Source, ok1 = m.Source.of(f)
	m.Destination, ok2 = m.Destination.of(f)
	return m, ok1 && ok2
}

func (a Addresses) of(f Family) (Addresses, bool) {
	if a.zero() {
		return a, true
	}
	of := Addresses{Not: a.Not}
	for _, p := range a.Prefixes {
		if FamilyOf(p.Addr()) == f {
			of.Prefixes = append(of.Prefixes, p)
		}
	}
	return of, a.Not || !of.zero()
}

// MaxRules bounds the Size of what a pod may ask for. With iptables so many take 64 MB and about a
// second to write.
const MaxRules = 10240

// Size is how many single rules the ruleset comes to in both families where each item of a list is
// a rule of its own, as with iptables. It bounds what a ruleset costs a node.
func (rs Ruleset) Size() int {
	size := 0
	for _, c := range rs.Chains {
		for _, r := range c.Rules {
			for _, f := range Families {
				size += r.If.size(f)
			}
		}
	}
	return size
}

func (m Match) size(f Family) int {
	of, possible := m.For(f)
	if !possible {
		return 0
	}
	size := 1
	for _, items := range []int{
		len(of.Source.Prefixes), len(of.Destination.Prefixes), len(m.SourcePort.List), len(m.UID),
		len(m.GID),
	} {
		size *= max(items, 1)
	}
	if !m.DestinationPort.Not {
		size *= max(len(m.DestinationPort.List), 1)
	}
	return size
}

// Chain returns the chain of that table and name.
func (rs Ruleset) Chain(t Table, name string) (Chain, bool) {
	i := slices.IndexFunc(rs.Chains, func(c Chain) bool { return c.Table == t && c.Name == name })
	if i < 0 {
		return Chain{}, false
	}
	return rs.Chains[i], true
}
