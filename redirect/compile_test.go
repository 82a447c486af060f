package redirect

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	captureDNS     = "ISTIO_META_DNS_CAPTURE"
	outboundRanges = traffic + "includeOutboundIPRanges"
)

var tproxy = annotation(istio+"interceptionMode", "TPROXY")

// everything is a pod that asks for as much as can be asked for at once.
var everything = together(
	tproxy,
	annotations(map[string]string{
		traffic + "includeOutboundIPRanges":   "127.0.0.0/8,198.51.100.0/24,2001:db8:c::/48",
		traffic + "excludeOutboundIPRanges":   "203.0.113.0/24,2001:db8:d::/48",
		traffic + "excludeInboundPorts":       "8080",
		traffic + "includeOutboundPorts":      "443,8443",
		traffic + "excludeOutboundPorts":      "22",
		traffic + "excludeInterfaces":         "net1,tap+",
		"istio.io/reroute-virtual-interfaces": "k6t-eth0",
		"status.sidecar.istio.io/port":        "15030",
		"sidecar-cni.io/excludeOutboundUIDs":  "3000-3999",
		"sidecar-cni.io/initContainers":       "bypass",
	}),
	variable(captureDNS, "true"),
	variable("INVALID_DROP", "true"),
	variable("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4000,4001"),
	variable("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.0/16"),
	first(Container{Name: "migrate", Init: true, RunAsUser: id(2000)}),
	nameservers("10.96.0.10", "2001:db8::53"),
)

// asks are the ways in which rules can differ. Those with the same key exclude each other.
var asks = []struct {
	key string
	change
}{
	{"mode", tproxy},
	{"ranges", annotation(outboundRanges, "198.51.100.0/24,2001:db8:c::/48")},
	{"ranges", annotation(outboundRanges, "198.51.100.0/24")},
	{"ranges", annotation(outboundRanges, "::1/128,2001:db8:c::/48")},
	{"ranges", annotation(outboundRanges, "")},
	{"excluded ranges", annotation(traffic+"excludeOutboundIPRanges",
		"203.0.113.0/24,2001:db8:d::/48")},
	{"inbound", annotation(traffic+"includeInboundPorts", "80,8080")},
	{"inbound", annotation(traffic+"includeInboundPorts", "")},
	{"inbound", annotation(traffic+"excludeInboundPorts", "8080")},
	{"ports", annotation(traffic+"includeOutboundPorts", "443")},
	{"excluded ports", annotation(traffic+"excludeOutboundPorts", "22,53")},
	{"interfaces", annotation(traffic+"excludeInterfaces", "net1,tap+")},
	{"virtual", annotation("istio.io/reroute-virtual-interfaces", "k6t-eth0,net1")},
	{"listeners", annotation("sidecar-cni.io/inboundPort", "15001")},
	{"listeners", annotations(map[string]string{
		"sidecar-cni.io/outboundPort": "25001", "sidecar-cni.io/inboundPort": "25006",
	})},
	{"uids", annotation("sidecar-cni.io/excludeOutboundUIDs", "1-1336,3000-3999")},
	{"dns", variable(captureDNS, "true")},
	{"dns", together(variable(captureDNS, "true"), nameservers("10.96.0.10", "2001:db8::53"))},
	{"dns", together(variable(captureDNS, "true"), nameservers("10.96.0.10"))},
	{"invalid", variable("INVALID_DROP", "true")},
	{"groups", variable("ISTIO_OUTBOUND_OWNER_GROUPS", "1000,1001,4000")},
	{"groups", variable("ISTIO_OUTBOUND_OWNER_GROUPS", "")},
	{"groups", variable("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4000")},
	{"loopback", variable("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.0/8")},
	{"proxy", proxy(func(c *Container) { c.RunAsUser, c.RunAsGroup = id(0), id(5000) })},
}

// policies is what a pod asks for that asks for nothing, for everything, and for any two things.
func policies(t testing.TB) []Policy {
	t.Helper()
	several := Defaults()
	several.Proxy = Identity{UIDs: []uint32{1337, 1340}, GIDs: []uint32{1337, 1341}}
	var list []Policy
	for _, cfg := range []Config{Defaults(), several} {
		list = append(list, ours(t, meshed(), cfg).Policy, ours(t, meshed(everything), cfg).Policy)
		for i, a := range asks {
			list = append(list, ours(t, meshed(a.change), cfg).Policy)
			for _, b := range asks[i+1:] {
				if a.key != b.key {
					list = append(list, ours(t, meshed(a.change, b.change), cfg).Policy)
				}
			}
		}
	}
	return list
}

func compiled(t testing.TB, changes ...change) Ruleset {
	t.Helper()
	return Compile(ours(t, meshed(changes...), Defaults()).Policy)
}

func TestExplanationsRead(t *testing.T) {
	t.Parallel()
	for name, pod := range map[string]change{
		"default":    together(),
		"tproxy":     tproxy,
		"dns":        together(variable(captureDNS, "true"), nameservers("10.96.0.10")),
		"everything": everything,
	} {
		golden(t, "testdata/explain/"+name+".txt", Explain(compiled(t, pod)))
	}
}

// What the dialects count on, whatever a pod asks for.
func TestRulesetsAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, p := range policies(t) {
		if problems := malformed(Compile(p)); len(problems) > 0 {
			t.Fatalf("%s\n\n%s\nof %s", strings.Join(problems, "\n"), Explain(Compile(p)),
				asJSON(t, p))
		}
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asComment is what iptables takes for a comment without being quoted in a way of its own.
var asComment = regexp.MustCompile(`^[A-Za-z0-9 ,.:/-]{1,86}$`)

func malformed(rs Ruleset) []string {
	var problems []string
	problem := func(format string,
		args ...any) {
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	names := map[string]Table{}
	for i, c := range rs.Chains {
		if _, twice := names[c.Name]; twice && c.Hook == NoHook {
			problem("chain %s is in two tables", c.Name)
		}
		names[c.Name] = c.Table
		if (c.Hook != NoHook) != (c.Name == "PREROUTING" || c.Name == "OUTPUT") ||
			c.Hook != NoHook && c.Name != c.Hook.String() {
			problem("chain %s is entered by %q", c.Name, c.Hook)
		}
		if len(c.Rules) == 0 {
			problem("chain %s is empty", c.Name)
		}
		if i > 0 && c.Table < rs.Chains[i-1].Table ||
			c.Hook != NoHook && i > 0 && c.Table == rs.Chains[i-1].Table &&
				rs.Chains[i-1].Hook == NoHook {
			problem("chain %s %s stands behind %s", c.Table, c.Name, rs.Chains[i-1].Name)
		}
		for i, r := range c.Rules {
			for _, wrong := range malformedRule(rs, c, r) {
				problem("%s %s %d (%s): %s", c.Table, c.Name, i+1, r.Why, wrong)
			}
		}
		// The chains that redirect are there in every pod.
		if c.Hook == NoHook && !entered(rs, c) && c.Name != chainRedirect &&
			c.Name != chainInRedirect {
			problem("no rule jumps to chain %s", c.Name)
		}
		if c.Hook != NoHook {
			if loop := loops(rs, c, nil); loop != "" {
				problem("jumps go in a circle: %s", loop)
			}
		}
	}
	return problems
}

// entered reports whether a rule jumps to the chain.
func entered(rs Ruleset, c Chain) bool {
	return slices.ContainsFunc(rs.Chains, func(from Chain) bool {
		return from.Table == c.Table && slices.ContainsFunc(from.Rules, func(r Rule) bool {
			return r.Then.Verb == Jump && r.Then.Chain == c.Name
		})
	})
}

func malformedRule(rs Ruleset, c Chain, r Rule) []string {
	var problems []string
	problem := func(format string,
		args ...any) {
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	if !asComment.MatchString(r.Why) || strings.TrimSpace(r.Why) != r.Why {
		problem("the reason is no comment")
	}
	if to, ok := rs.Chain(c.Table, r.Then.Chain); r.Then.Verb == Jump &&
		(!ok || to.Hook != NoHook) {
		problem("jumps to %q, which table %s does not have", r.Then.Chain, c.Table)
	}
	for _, a := range []Addresses{r.If.Source, r.If.Destination} {
		of := map[Family]int{}
		for _, p := range a.Prefixes {
			of[FamilyOf(p.Addr())]++
			if p != p.Masked() || !p.IsValid() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
				problem("address %s", p)
			}
		}
		if a.Not && (of[IPv4] != 1 || of[IPv6] != 1) {
			problem("anywhere but %v", a.Prefixes)
		}
	}
	for _, ports := range []Ports{r.If.SourcePort, r.If.DestinationPort} {
		if !slices.IsSorted(ports.List) || ports.Not && ports.zero() {
			problem("ports %v", ports)
		}
		if !ports.zero() && r.If.Protocol == AnyProtocol {
			problem("ports of no protocol")
		}
	}
	for _, ids := range []IDs{r.If.UID, r.If.GID} {
		for i, one := range ids {
			if one.Last < one.First || i > 0 && uint64(one.First) <= uint64(ids[i-1].Last)+1 {
				problem("ids %v", ids)
			}
		}
	}
	if (r.Then.Verb == Redirect) &&
		(c.Table != NAT || r.If.Protocol == AnyProtocol || r.Then.Port == 0) {
		problem("cannot redirect")
	}
	if r.Then.Verb == TProxy &&
		(c.Table != Mangle || r.If.Protocol == AnyProtocol || r.Then.Port == 0 ||
			r.Then.Mark == 0) {
		problem("cannot hand over")
	}
	if r.Then.Verb == SetZone && (c.Table != Raw || r.Then.Zone == 0) {
		problem("cannot set a zone")
	}
	return problems
}

// loops follows the jumps from a chain and returns the first way that comes back to itself.
func loops(rs Ruleset, c Chain, way []string) string {
	if slices.Contains(way, c.Name) {
		return strings.Join(append(way, c.Name), " to ")
	}
	for _, r := range c.Rules {
		if r.Then.Verb != Jump {
			continue
		}
		to, _ := rs.Chain(c.Table, r.Then.Chain)
		if loop := loops(rs, to, append(slices.Clone(way), c.Name)); loop != "" {
			return loop
		}
	}
	return ""
}

// What ADD records is what CHECK compiles.
func TestRecordedPolicyCompilesTheSame(t *testing.T) {
	t.Parallel()
	for _, p := range policies(t) {
		checkRoundTrip(t, p)
	}
}

func checkRoundTrip(t testing.TB, p Policy) {
	t.Helper()
	text := asJSON(t, p)
	var back Policy
	if err := json.Unmarshal([]byte(text), &back); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if diff := differ(Compile(p), Compile(back)); diff != "" {
		t.Errorf("rules after a round trip through %s (-before +after):\n%s", text, diff)
	}
}

// differ is cmp.Diff, in a hurry.
func differ(a, b Ruleset) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return cmp.Diff(a, b, byValue)
}

// Compile neither keeps nor changes what it is given.
func TestCompileLeavesThePolicyAlone(t *testing.T) {
	t.Parallel()
	for _, p := range policies(t) {
		before := asJSON(t, p)
		once := Compile(p)
		if diff := differ(once, Compile(p)); diff != "" {
			t.Errorf("compiled twice (-once +twice):\n%s", diff)
		}
		if after := asJSON(t, p); after != before {
			t.Errorf("policy %s became %s", before, after)
		}
	}
}

func TestAddressesAndRoutes(t *testing.T) {
	t.Parallel()
	route := []PolicyRoute{{Mark: 1337, Table: 133}}
	for _, row := range []struct {
		name string
		pod  change
		want []PolicyRoute
	}{
		{"REDIRECT", together(), nil},
		{"TPROXY", tproxy, route},
		{"TPROXY of some ports", together(tproxy, annotation(traffic+"includeInboundPorts", "80")),
			route},
		{"TPROXY of no port", together(tproxy, annotation(traffic+"includeInboundPorts", "")), nil},
	} {
		rs := compiled(t, row.pod)
		if diff := cmp.Diff(row.want, rs.Routes); diff != "" {
			t.Errorf("%s: routes (-want +got):\n%s", row.name, diff)
		}
		if diff := cmp.Diff(prefixes("::6/128"), rs.Addresses, byValue); diff != "" {
			t.Errorf("%s: addresses (-want +got):\n%s", row.name, diff)
		}
	}
}

func TestEveryWordCanBeSaid(t *testing.T) {
	t.Parallel()
	said := map[string]bool{}
	once := func(kind string, word fmt.Stringer) {
		if text := word.String(); text == "" || strings.Contains(text, "unknown") || said[text] {
			t.Errorf("%s is said as %q", kind, text)
		} else {
			said[text] = true
		}
	}
	for _, v := range Verbs {
		once("verb", Action{Verb: v, Chain: "A", Port: 1, Mark: 2, Zone: 3})
	}
	for _, s := range States {
		once("state", s)
	}
	for _, table := range Tables {
		once("table", table)
	}
	for _, f := range Families {
		once("family", f)
	}
	for _, p := range []Protocol{AnyProtocol, TCP, UDP} {
		once("protocol", p)
	}
	if diff := cmp.Diff([]string{"IPv4", "IPv6"},
		[]string{IPv4.String(), IPv6.String()}); diff != "" {
		t.Errorf("families (-want +got):\n%s", diff)
	}
	if got := (Action{Verb: 99}).String(); got != "meets the unknown verb 99" {
		t.Errorf("an unknown verb is said as %q", got)
	}
}

func TestMatchesRead(t *testing.T) {
	t.Parallel()
	rows := []struct {
		match Match
		want  string
	}{
		{Match{}, "every packet"},
		{Match{Protocol: UDP}, "UDP"},
		{Match{In: "eth0"}, "every packet that enters through eth0"},
		{Match{Out: "tap+"}, "every packet that leaves through an interface called tap..."},
		{Match{Source: Addresses{Prefixes: prefixes("10.0.0.0/8", "::6/128")}},
			"every packet from 10.0.0.0/8 or ::6"},
		{Match{Destination: Addresses{Not: true, Prefixes: prefixes("127.0.0.1/32", "::1/128")}},
			"every packet to anywhere but 127.0.0.1 or ::1"},
		{Match{Protocol: TCP, SourcePort: Ports{List: []uint16{53}}}, "TCP from port 53"},
		{Match{Protocol: TCP, DestinationPort: Ports{List: []uint16{53, 54, 55}}},
			"TCP to ports 53, 54 or 55"},
		{Match{Protocol: TCP, DestinationPort: Ports{Not: true, List: []uint16{53, 54}}},
			"TCP to any port but 53 or 54"},
		{Match{Protocol: TCP, DestinationPort: Ports{List: []uint16{1, 2, 3, 4, 5, 6, 7, 8, 9,
			10}}}, "TCP to ports 1, 2, 3, 4, 5, 6, 7, 8 and 2 more"},
		{Match{Protocol: TCP, DestinationPort: Ports{List: []uint16{1, 2, 3, 4, 5, 6, 7, 8}}},
			"TCP to ports 1, 2, 3, 4, 5, 6, 7 or 8"},
		{Match{UID: IDs{{1, 1}, {5, 9}}, GID: IDs{{3, 3}}}, "every packet sent by uid 1 or 5 to " +
			"9 sent by gid 3"},
		{Match{Mark: Mark{Value: 7}, ConnMark: Mark{Not: true, Value: 8}},
			"every packet with mark 7 of a connection with any mark but 8"},
		{Match{Protocol: TCP, State: Established | Related}, "TCP in state established or related"},
	}
	for _, row := range rows {
		if got := row.match.String(); got != row.want {
			t.Errorf("said as %q, want %q", got, row.want)
		}
	}
}
