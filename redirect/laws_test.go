package redirect_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	. "github.com/sidecar-cni/sidecar-cni/redirect" //nolint:revive // the package's own tests
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
)

// narrowed returns the classes' packets for which the answers are yes.
func narrowed(classes []packet.Class, answers ...packet.Question) []packet.Class {
	var list []packet.Class
	for _, c := range classes {
		for _, q := range answers {
			c, _ = c.Split(q)
		}
		if !c.Empty() {
			list = append(list, c)
		}
	}
	return list
}

func answer(f packet.Field, s packet.Set) packet.Question { return packet.Question{Field: f, Set: s} }

// sent returns what the pod's processes send.
func sent(answers ...packet.Question) []packet.Class {
	all := narrowed(packet.Everything(), answers...)
	return slices.DeleteFunc(all, func(c packet.Class) bool { return !c.Leaves })
}

var (
	overLo   = answer(packet.Interface, packet.Names("lo"))
	isTCP    = answer(packet.Protocol, packet.Numbers(TCP))
	bySocket = answer(packet.Socket, packet.Range(1, 1))
)

// addressesOf returns the sets that hold the addresses of both families, by family.
func addressesOf(prefixes ...netip.Prefix) map[Family]packet.Set {
	sets := map[Family]packet.Set{}
	for _, f := range Families {
		of := slices.DeleteFunc(slices.Clone(prefixes),
			func(p netip.Prefix) bool { return FamilyOf(p.Addr()) != f })
		sets[f] = packet.Networks(of...)
	}
	return sets
}

// checkLaws holds for all packets what must never become of one.
func checkLaws(t *testing.T, p Policy) {
	t.Helper()
	rs := Compile(p)
	if problems := Malformed(rs); len(problems) > 0 {
		t.Fatalf("%s\n\n%s", strings.Join(problems, "\n"), Explain(rs))
	}
	rules := simulate.New(rs)
	wrong := func(law string, part packet.Part) {
		t.Helper()
		t.Fatalf("%s: %+v: %s\n\n%s", law, part.Class.Example(), part.Fate, Explain(rs))
	}
	loopback := addressesOf(p.Loopback, netip.MustParsePrefix("::1/128"))
	for _, part := range packet.Partition(rules, byTheProxy(p)) {
		if capturing(part.Fate) && !isSelfCall(p, part, loopback) {
			wrong("the proxy's own packet comes back to it", part)
		}
	}
	// The mark of self-calls is the rules' own: no process sets it.
	marks := answer(packet.PacketMark, packet.Numbers(0, p.Marks.TProxy))
	for _, part := range packet.Partition(rules, narrowed(packet.Everything(), marks)) {
		if n := redirections(p, part.Fate); n > 1 || (n == 1) != capturing(part.Fate) &&
			part.Fate.Outcome != packet.Dropped {
			wrong(fmt.Sprintf("redirected %d times", n), part)
		}
	}
	for _, part := range packet.Partition(rules, afterwards(p, loopback)) {
		if part.Fate.Outcome != packet.Passes && part.Fate.Outcome != packet.Dropped {
			wrong("what follows from a redirection is not left alone", part)
		}
	}
}

// byTheProxy returns what is sent under one of the proxy's identities.
func byTheProxy(p Policy) []packet.Class {
	return slices.Concat(sent(bySocket, answer(packet.UID, packet.Numbers(p.Proxy.UIDs...))),
		sent(bySocket, answer(packet.GID, packet.Numbers(p.Proxy.GIDs...))))
}

func capturing(f packet.Fate) bool {
	return f.Outcome == packet.Redirected || f.Outcome == packet.Handed
}

// isSelfCall reports whether all packets are TCP to the pod itself, other than by loopback, on
// their way to the inbound listener.
func isSelfCall(p Policy, part packet.Part, loopback map[Family]packet.Set) bool {
	c := part.Class
	_, elsewhere := c.Of(packet.Interface).Meets(overLo.Set)
	_, other := c.Of(packet.Protocol).Meets(isTCP.Set)
	local, _ := c.Of(packet.Destination).Meets(loopback[c.Family])
	return part.Fate.Port == p.Ports.Inbound && !elsewhere && !other && !local
}

// redirections counts the listeners that rules have led a packet to. Of what was redirected to
// 127.0.0.1, a self-call is handed to the same listener where that address is no loopback.
func redirections(p Policy, f packet.Fate) int {
	var ports []uint16
	for _, m := range f.Met {
		then := m.Rule.(Rule).Then
		if then.Verb == Redirect || then.Verb == TProxy {
			ports = append(ports, then.Port)
		}
	}
	if !p.Loopback.Contains(netip.MustParseAddr(itself)) {
		ports = slices.Compact(ports)
	}
	return len(ports)
}

// afterwards returns what must be left alone since a redirection came before it: what follows it
// over lo, and the call by which the proxy passes it on to the app.
func afterwards(p Policy, loopback map[Family]packet.Set) []packet.Class {
	listeners := packet.Numbers(p.Ports.Outbound, p.Ports.Inbound, p.Ports.DNS)
	var passthrough []netip.Prefix
	for _, a := range p.Passthrough {
		passthrough = append(passthrough, netip.PrefixFrom(a, a.BitLen()))
	}
	var list []packet.Class
	for _, c := range packet.Everything() {
		if c.Leaves {
			list = append(list, narrowed([]packet.Class{c}, overLo,
				answer(packet.Source, addressesOf(passthrough...)[c.Family]))...)
			continue
		}
		c = c.With(packet.Interface, overLo.Set).
			With(packet.Destination, packet.Networks(netip.MustParsePrefix("127.0.0.1/32"))).
			With(packet.State, packet.Numbers(Established))
		if c.Family == IPv6 {
			c = c.With(packet.Destination, loopback[IPv6])
		}
		list = append(list, c.With(packet.DestinationPort, listeners))
	}
	return list
}

func TestLawsHoldForAllPackets(t *testing.T) {
	t.Parallel()
	for _, p := range Policies(t) {
		checkLaws(t, p)
	}
}

// FuzzDecide holds the laws for whatever a pod may ask.
func FuzzDecide(f *testing.F) {
	SeedPods(f)
	f.Fuzz(func(t *testing.T, values, args string, user int64, facts uint16) {
		pod, cfg := FuzzedPod(values, args, user, facts)
		if p, isOurs := CheckDecision(t, pod, cfg); isOurs {
			checkLaws(t, p)
		}
	})
}

// unneeded lists the rules without which every packet has the fate that it has with them.
func unneeded(rs Ruleset) []string {
	type place struct {
		table Table
		chain string
		index int
	}
	whole := simulate.New(rs)
	meeting := map[place][]packet.Class{}
	for _, one := range packet.Partition(whole, packet.Everything()) {
		for _, m := range one.Fate.Met {
			at := place{m.Table, m.Chain, m.Index}
			meeting[at] = append(meeting[at], one.Class)
		}
	}
	var names []string
	for i, c := range rs.Chains {
		for j, r := range c.Rules {
			less := Ruleset{Chains: slices.Clone(rs.Chains), Routes: rs.Routes}
			less.Chains[i].Rules = slices.Delete(slices.Clone(c.Rules), j, j+1)
			without := simulate.New(less)
			if !slices.ContainsFunc(meeting[place{c.Table, c.Name, j}], func(c packet.Class) bool {
				return len(compare.Within([]packet.Class{c}, whole, without)) > 0
			}) {
				names = append(names, fmt.Sprintf("%s %s %d: %s", c.Table, c.Name, j+1, r))
			}
		}
	}
	return names
}

func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for _, p := range Policies(t) {
		if names := unneeded(Compile(p)); len(names) > 0 {
			t.Errorf("without these nothing changes:\n%s\nall:\n%s", strings.Join(names, "\n"),
				Explain(Compile(p)))
		}
	}
}
