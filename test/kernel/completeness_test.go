package kernel

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

// sampleMatches has one condition each, for every field of Match, and packets that differ just in
// that.
var sampleMatches = map[string]struct {
	match     redirect.Match
	hit, miss packet.Packet
}{
	"In": {redirect.Match{In: "eth9"}, packet.Packet{In: "eth9"},
		packet.Packet{In: "eth0"}},
	"Out": {redirect.Match{Out: "eth+"}, packet.Packet{Out: "eth9"},
		packet.Packet{Out: "lo"}},
	"Protocol": {redirect.Match{Protocol: redirect.UDP},
		packet.Packet{Protocol: redirect.UDP}, packet.Packet{Protocol: redirect.TCP}},
	"Source": {redirect.Match{Source: nets("192.0.2.0/24", "2001:db8::/32")},
		packet.Packet{Source: at("192.0.2.9:1")}, packet.Packet{Source: at("192.0.3.9:1")}},
	"Destination": {redirect.Match{Destination: nets("192.0.2.0/24", "2001:db8::/32")},
		packet.Packet{Destination: at("192.0.2.9:1")},
		packet.Packet{Destination: at("192.0.3.9:1")}},
	"SourcePort": {redirect.Match{Protocol: redirect.TCP,
		SourcePort: redirect.Ports{List: []uint16{7}}}, packet.Packet{Source: at("192.0.2.9:7")},
		packet.Packet{Source: at("192.0.2.9:8")}},
	"DestinationPort": {redirect.Match{Protocol: redirect.TCP,
		DestinationPort: redirect.Ports{Not: true, List: []uint16{7, 9}}},
		packet.Packet{Destination: at("192.0.2.9:8")},
		packet.Packet{Destination: at("192.0.2.9:9")}},
	"UID": {redirect.Match{UID: redirect.IDs{{First: 7, Last: 8}}},
		packet.Packet{Owner: &packet.Owner{UID: 8}}, packet.Packet{}},
	"GID": {redirect.Match{GID: redirect.IDs{{First: 7, Last: 7}, {First: 9, Last: 9}}},
		packet.Packet{Owner: &packet.Owner{GID: 9}},
		packet.Packet{Owner: &packet.Owner{GID: 8}}},
	"Mark": {redirect.Match{Mark: redirect.Mark{Not: true, Value: 7}}, packet.Packet{},
		packet.Packet{Mark: 7}},
	"ConnMark": {redirect.Match{ConnMark: redirect.Mark{Value: 7}}, packet.Packet{ConnMark: 7},
		packet.Packet{}},
	"State": {redirect.Match{State: redirect.Established | redirect.Related},
		packet.Packet{State: redirect.Related}, packet.Packet{State: redirect.New}},
}

// sampleActions has every verb, and how its effect shows in a fate.
var sampleActions = map[redirect.Verb]struct {
	action redirect.Action
	shows  func(packet.Fate) bool
}{
	redirect.Return: {redirect.Action{Verb: redirect.Return},
		func(f packet.Fate) bool { return f.Outcome == packet.Passes && f.Mark.Value == 3 }},
	redirect.Accept: {redirect.Action{Verb: redirect.Accept},
		func(f packet.Fate) bool { return f.Outcome == packet.Passes && f.Mark.Value == 3 }},
	redirect.Drop: {redirect.Action{Verb: redirect.Drop},
		func(f packet.Fate) bool { return f.Outcome == packet.Dropped }},
	redirect.Jump: {redirect.Action{Verb: redirect.Jump, Chain: "ISTIO_X"},
		func(f packet.Fate) bool { return len(f.Met) == 3 && f.Met[1].Chain == "ISTIO_X" }},
	redirect.Redirect: {redirect.Action{Verb: redirect.Redirect, Port: 7},
		func(f packet.Fate) bool { return f.Outcome == packet.Redirected && f.Port == 7 }},
	redirect.TProxy: {redirect.Action{Verb: redirect.TProxy, Port: 7, Mark: 9},
		func(f packet.Fate) bool {
			return f.Outcome == packet.Handed && f.Port == 7 && f.Mark.Value == 9
		}},
	redirect.SetMark: {redirect.Action{Verb: redirect.SetMark, Mark: 9},
		func(f packet.Fate) bool {
			return f.Mark.Value == 77 && f.Met[0].Rule.(redirect.Rule).Then.Mark == 9
		}},
	redirect.SaveMark: {redirect.Action{Verb: redirect.SaveMark},
		func(f packet.Fate) bool { return f.ConnMark.Value == 3 }},
	redirect.RestoreMark: {redirect.Action{Verb: redirect.RestoreMark},
		func(f packet.Fate) bool { return len(f.Met) == 2 && f.ConnMark.Value == 5 }},
	redirect.SetZone: {redirect.Action{Verb: redirect.SetZone, Zone: 7},
		func(f packet.Fate) bool { return f.Zone == 7 }},
}

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func nets(prefixes ...string) redirect.Addresses {
	var a redirect.Addresses
	for _, p := range prefixes {
		a.Prefixes = append(a.Prefixes, netip.MustParsePrefix(p))
	}
	return a
}

func fields() []string {
	var names []string
	for f := range reflect.TypeFor[redirect.Match]().Fields() {
		names = append(names, f.Name)
	}
	return names
}

// TestTheVocabularyIsComplete fails for a match field or a verb that some part of the project does
// not know.
func TestTheVocabularyIsComplete(t *testing.T) {
	bare := redirect.Rule{Why: "sample", Then: redirect.Action{Verb: redirect.Drop}}
	for _, name := range fields() {
		sample, ok := sampleMatches[name]
		if !ok || reflect.ValueOf(sample.match).FieldByName(name).IsZero() {
			t.Errorf("match field %s has no sample", name)
			continue
		}
		rule := bare
		rule.If = sample.match
		without := rule
		reflect.ValueOf(&without.If).Elem().FieldByName(name).SetZero()
		differs(t, "match field "+name, without, rule)
		rs := redirect.Ruleset{Chains: []redirect.Chain{hook(sample.hit, rule)}}
		for tried, want := range map[*packet.Packet]packet.Outcome{
			&sample.hit: packet.Dropped, &sample.miss: packet.Passes} {
			if got := simulate.Packet(rs, complete(*tried)).Outcome; got != want {
				t.Errorf("match field %s: simulate %+v: outcome %d, want %d", name, *tried, got,
					want)
			}
		}
	}
	for _, verb := range redirect.Verbs {
		sample, ok := sampleActions[verb]
		if !ok {
			t.Errorf("verb %d has no sample", verb)
			continue
		}
		rule := bare
		rule.Then = sample.action
		other := bare
		if verb == redirect.Drop {
			other.Then = redirect.Action{Verb: redirect.Accept}
		}
		differs(t, "action "+sample.action.String(), other, rule)
		after := redirect.Rule{Why: "after",
			Then: redirect.Action{Verb: redirect.SetMark, Mark: 77}}
		rs := redirect.Ruleset{Chains: []redirect.Chain{
			hook(packet.Packet{}, rule, after),
			{Table: redirect.Mangle, Name: "ISTIO_X",
				Rules: []redirect.Rule{{Why: "inside",
					Then: redirect.Action{Verb: redirect.Return}}}},
		}}
		if fate := simulate.Packet(rs,
			complete(packet.Packet{Mark: 3, ConnMark: 5})); !sample.shows(fate) {
			t.Errorf("action %q does not show in the fate: %s", sample.action, fate)
		}
	}
}

func hook(p packet.Packet, rules ...redirect.Rule) redirect.Chain {
	if p.Out != "" {
		return redirect.Chain{Table: redirect.Mangle, Name: "OUTPUT", Hook: redirect.Output,
			Rules: rules}
	}
	return redirect.Chain{Table: redirect.Mangle, Name: "PREROUTING", Hook: redirect.Prerouting,
		Rules: rules}
}

func complete(p packet.Packet) packet.Packet {
	if p.In == "" && p.Out == "" {
		p.In = "eth0"
	}
	if p.Protocol == redirect.AnyProtocol {
		p.Protocol = redirect.TCP
	}
	if !p.Source.IsValid() {
		p.Source = at("198.51.100.1:1000")
	}
	if !p.Destination.IsValid() {
		p.Destination = at("198.51.100.2:80")
	}
	return p
}

// differs wants two rules to be told apart in every form that a rule has.
func differs(t *testing.T, what string, a, b redirect.Rule) {
	t.Helper()
	one := func(r redirect.Rule) redirect.Ruleset {
		return redirect.Ruleset{
			Chains: []redirect.Chain{{Table: redirect.Mangle, Name: "ISTIO_SAMPLE",
				Rules: []redirect.Rule{r}}}}
	}
	forms := map[string]func(redirect.Ruleset) string{
		"nftables": nftables.Render,
		"explain":  redirect.Explain,
	}
	for _, f := range redirect.Families {
		forms["iptables for "+f.String()] = func(rs redirect.Ruleset) string {
			return iptables.Render(rs, f)
		}
	}
	for form, of := range forms {
		if of(one(a)) == of(one(b)) {
			t.Errorf("%s makes no difference in %s:\n%s", what, form, of(one(b)))
		}
	}
}

// TestEveryWordHasAnEchoRowAndAFateRow looks at the tests themselves: each field and verb must
// stand in a rule that the laws are tried on, and in one that a real call meets.
func TestEveryWordHasAnEchoRowAndAFateRow(t *testing.T) {
	echoed, met := map[string]bool{}, map[string]bool{}
	note := func(words map[string]bool, r redirect.Rule) {
		words[fmt.Sprintf("verb %d", r.Then.Verb)] = true
		for _, name := range fields() {
			if !reflect.ValueOf(r.If).FieldByName(name).IsZero() {
				words["field "+name] = true
			}
		}
	}
	all := calls()
	for _, r := range matrix.Alone() {
		_, rs := compile(t, r)
		for _, c := range rs.Chains {
			for _, rule := range c.Rules {
				note(echoed, rule)
			}
		}
		for _, c := range all {
			for _, m := range simulate.Packet(rs, c.packet()).Met {
				note(met, m.Rule.(redirect.Rule))
			}
		}
	}
	var words []string
	for _, name := range fields() {
		words = append(words, "field "+name)
	}
	for _, v := range redirect.Verbs {
		words = append(words, fmt.Sprintf("verb %d", v))
	}
	// What only later packets of a connection meet is held by tests of whole connections, named
	// here.
	later := []string{
		// TestTProxyKeepsTheClient
		"field ConnMark", fmt.Sprintf("verb %d", redirect.SaveMark),
		fmt.Sprintf("verb %d", redirect.RestoreMark),
		// every answered call under TPROXY: the rest of the connection is diverted
		fmt.Sprintf("verb %d", redirect.Accept),
		fmt.Sprintf("verb %d", redirect.Drop), // TestInvalidPacketsAreDropped
		"field State",                         // both
		"field SourcePort",                    // TestAnswersOfNameserversAreTold
	}
	for _, w := range words {
		if !echoed[w] {
			t.Errorf("%s: no echo row", w)
		}
		if !met[w] && !slices.Contains(later, w) {
			t.Errorf("%s: no fate row", w)
		}
	}
}
