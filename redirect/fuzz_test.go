package redirect

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// Facts of a fuzzed pod that are there or not.
const (
	factUser = 1 << iota
	factGroup
	factNative
	factInit
	factAppUser
	factNameservers
	factLabel
	factUntold
	factElsewhere
	factSeveral
)

// fuzzedPod has in each line of values what a setting's key holds, in the order of the table. A
// line that does not begin with = is a key that the pod does not have.
func fuzzedPod(values, args string, user int64, facts uint16) (Pod, Config) {
	has := func(fact uint16) bool { return facts&fact != 0 }
	pod, cfg := meshed(proxy(func(c *Container) { c.Args = strings.Fields(args) })), Defaults()
	for i, line := range strings.Split(values, "\n") {
		if value, ok := strings.CutPrefix(line, "="); ok && i < len(settings) {
			says(settings[i], value)(&pod)
		} else if ok && has(factLabel) {
			label(istio+"inject", value)(&pod)
		} else if ok {
			annotation(istio+"inject", value)(&pod)
		}
	}
	optional := func(fact uint16, change change) {
		if has(fact) {
			change(&pod)
		}
	}
	optional(factUser, proxy(func(c *Container) { c.RunAsUser = &user }))
	optional(factGroup, proxy(func(c *Container) { c.RunAsGroup = id(5000) }))
	optional(factElsewhere, proxy(func(c *Container) {
		c.EnvFrom = []string{"INVALID_DROP",
			"\x00"}
	}))
	optional(factInit, first(Container{Name: "migrate", Init: true, RunAsUser: id(2000)},
		Container{Name: "wait", Init: true, RunAsUser: new(user)}))
	optional(factAppUser, func(p *Pod) { p.Spec.RunAsUser = id(1000) })
	optional(factNameservers, nameservers(resolver, "2001:db8::53"))
	optional(factNative, native)
	optional(factUntold, untold)
	if has(factSeveral) {
		cfg.Proxy = Identity{UIDs: []uint32{1337, 1340}, GIDs: []uint32{1337, 1341}}
	}
	return pod, cfg
}

// lines writes values, by key, as fuzzedPod reads them.
func lines(values map[string]string) string {
	list := make([]string, len(settings))
	for i, s := range settings {
		if value, ok := values[s.key]; ok {
			list[i] = "=" + value
		}
	}
	return strings.Join(list, "\n")
}

func FuzzDecide(f *testing.F) {
	f.Add(lines(nil), "proxy sidecar", int64(1337), uint16(0))
	f.Add(lines(nil), "proxy router", int64(0), uint16(factUntold))
	f.Add(lines(map[string]string{istio + "interceptionMode": "NONE"})+"\n=maybe", "", int64(0),
		uint16(factLabel))
	whole := meshed(everything)
	for _, c := range whole.Spec.Containers {
		maps.Copy(whole.Annotations, c.Env)
	}
	f.Add(lines(whole.Annotations), "proxy sidecar", int64(2001),
		uint16(factInit|factNameservers|factNative))
	for _, s := range settings {
		for _, row := range accepted[s.key] {
			f.Add(lines(map[string]string{s.key: row.value}), "proxy sidecar", int64(2500),
				uint16(factUser))
			values := map[string]string{captureDNS: "true", istio + "interceptionMode": "TPROXY"}
			values[s.key] = row.value
			f.Add(lines(values), "proxy sidecar", int64(0),
				uint16(factUser|factGroup|factNameservers))
			f.Add(lines(values), "proxy sidecar", int64(0), uint16(factSeveral|factNative))
		}
		for _, nasty := range []string{"", ",", "*,*", "65536", "-1", "0.0.0.0/0,::/0",
			"127.0.0.1/0", "::ffff:0.0.0.0/0", "lo", "lo,+", "0-4294967294",
			"\x00", "\xff\xfe", strings.Repeat("1,", 2000), strings.Repeat("é", 300)} {
			f.Add(lines(map[string]string{s.key: nasty}), "proxy sidecar", int64(-1),
				uint16(factAppUser|factElsewhere))
		}
	}
	f.Fuzz(func(t *testing.T, values, args string, user int64, facts uint16) {
		pod, cfg := fuzzedPod(values, args, user, facts)
		d, err := Decide(pod, cfg)
		checkParts(t, pod, cfg, d)
		switch {
		case err != nil:
			checkText(t, err.Error())
			return
		case d.Skip != "" && !slices.Contains(Skips, d.Skip):
			t.Fatalf("skipped for no reason of the list: %q", string(d.Skip))
		case d.Skip != "" || d.AskMore:
			return
		}
		checkText(t, strings.Join(d.Warnings, " "))
		checkRoundTrip(t, d.Policy)
		checkRules(t, d.Policy, len(values))
	})
}

// checkParts holds a decision about a pod against those about parts of it: what a part skips, the
// whole skips too.
func checkParts(t *testing.T, pod Pod, cfg Config, whole Decision) {
	t.Helper()
	for name, forget := range map[string]change{
		"spec":                 untold,
		"annotations":          func(p *Pod) { p.Annotations = nil },
		"spec and annotations": func(p *Pod) { p.Spec, p.Annotations = nil, nil },
		"nameservers":          func(p *Pod) { p.Nameservers = nil },
	} {
		part := pod
		forget(&part)
		if d, err := Decide(part, cfg); err == nil && d.Skip != "" && whole.Skip == "" &&
			!whole.AskMore {
			t.Fatalf("without %s it is skipped (%s), as a whole it is not: %+v", name, d.Skip, pod)
		}
	}
}

// The same for every two things that a pod may ask for.
func TestNothingIsRedirectedTwice(t *testing.T) {
	t.Parallel()
	for i, p := range policies(t) {
		checkRules(t, p, i)
	}
}

// checkRules plays packets through the rules of a policy: every fifth, for the sake of time, and
// others for another turn.
func checkRules(t *testing.T, p Policy, turn int) {
	t.Helper()
	every := 5
	if testing.Short() {
		every = 20
	}
	rs := Compile(p)
	if problems := malformed(rs); len(problems) > 0 {
		t.Fatalf("%s\n\n%s", strings.Join(problems, "\n"), Explain(rs))
	}
	for i, packet := range packets(p) {
		if i%every != turn%every {
			continue
		}
		fate := Simulate(rs, packet)
		if problem := wrongFate(p, rs, packet, fate); problem != "" {
			t.Fatalf("%+v, owner %+v: %s\n%s\n\n%s", packet, packet.Owner, problem, fate,
				Explain(rs))
		}
	}
}

// wrongFate says what must never become of a packet.
func wrongFate(p Policy, rs Ruleset, packet Packet, fate Fate) string {
	ports := []uint16{}
	for _, m := range fate.Met {
		if v := m.Rule.Then.Verb; v == Redirect || v == TProxy {
			ports = append(ports, m.Rule.Then.Port)
		}
	}
	if !p.Loopback.Contains(netip.MustParseAddr(itself)) {
		// of what was redirected to 127.0.0.1, a self-call is handed to the same listener
		ports = slices.Compact(ports)
	}
	if comes := fate.Outcome == Handed || fate.Outcome == Redirected; len(ports) > 1 ||
		comes != (len(ports) == 1) {
		return fmt.Sprintf("redirected to %d", ports)
	}
	if fate.Outcome == Redirected && packet.Out != "" {
		back := Packet{In: "lo", Protocol: packet.Protocol, Source: packet.Source, Mark: fate.Mark,
			ConnMark: fate.ConnMark, State: Established}
		back.Destination = netip.AddrPortFrom(loopbackOf(packet.Destination.Addr()), fate.Port)
		if again := Simulate(rs, back); again.Outcome != Passes && packet.State != Invalid {
			return fmt.Sprintf("what follows it through lo is not left alone: %s", again)
		}
	}
	if packet.Owner != nil && isProxy(p, *packet.Owner) {
		to := packet.Destination.Addr()
		selfCall := packet.Out == "lo" && packet.Protocol == TCP && !p.Loopback.Contains(to) &&
			to != netip.IPv6Loopback()
		if (fate.Outcome == Redirected || fate.Outcome == Handed) &&
			(fate.Port != p.Ports.Inbound || !selfCall) {
			return "the proxy's own packet comes back to it"
		}
	}
	if six, ok := overIPv6(packet); ok && namesNoAddress(p) {
		if other := Simulate(rs, six); !sameFate(fate, other) {
			return fmt.Sprintf("in IPv6 it is %s\nin IPv4", other)
		}
	}
	return afterwards(p, rs, packet, fate)
}

func sameFate(a, b Fate) bool {
	return a.Outcome == b.Outcome && a.Port == b.Port && a.Mark == b.Mark &&
		a.ConnMark == b.ConnMark && a.Zone == b.Zone && a.Out == b.Out &&
		slices.EqualFunc(a.Met, b.Met,
			func(a, b Met) bool {
				return a.Table == b.Table && a.Chain == b.Chain && a.Index == b.Index
			})
}

// afterwards plays what the proxy does with a connection that came to it: it calls where the app
// wanted to, or the app.
func afterwards(p Policy, rs Ruleset, packet Packet, fate Fate) string {
	if fate.Outcome != Redirected && fate.Outcome != Handed {
		return ""
	}
	for _, owner := range owners(p) {
		if !isProxy(p, *owner) {
			continue
		}
		next := Packet{Out: cmp.Or(packet.Out, "eth0"), Protocol: packet.Protocol, Owner: owner,
			Source: packet.Source, Destination: packet.Destination}
		if fate.Port == p.Ports.Inbound {
			next.Out, next.Source = "lo", netip.AddrPortFrom(p.Passthrough[0], 40000)
			if packet.Destination.Addr().Is6() {
				next.Source = netip.AddrPortFrom(p.Passthrough[1], 40000)
			}
		}
		then := Simulate(rs, next)
		// the pod calls itself
		if then.Outcome == Passes || fate.Port != p.Ports.Inbound && then.Port == p.Ports.Inbound {
			continue
		}
		return fmt.Sprintf("then the proxy, %+v, sends %+v: %s\nbefore that it", *owner, next, then)
	}
	if fate.Outcome == Handed && packet.In != "" && !p.Outbound.Loopback &&
		packet.Destination.Port() != portDNS {
		next := Packet{Out: "lo", Protocol: TCP, Owner: &Owner{UID: 0, GID: p.Proxy.GIDs[0]},
			Source: packet.Source, Destination: packet.Destination, Mark: p.Marks.TProxy}
		if then := Simulate(rs, next); then.Outcome != Passes {
			return fmt.Sprintf("then a root proxy calls the app as the client: %s\nbefore that it",
				then)
		}
	}
	return ""
}

func isProxy(p Policy, o Owner) bool {
	return slices.Contains(p.Proxy.UIDs, o.UID) || slices.Contains(p.Proxy.GIDs, o.GID)
}

// namesNoAddress reports whether nothing in a policy tells the families apart.
func namesNoAddress(p Policy) bool {
	return len(p.Outbound.CIDRs) == 0 && len(p.Outbound.ExcludeCIDRs) == 0 &&
		len(p.DNS.Servers) == 0 &&
		p.Loopback == netip.MustParsePrefix("127.0.0.1/32")
}

func owners(p Policy) []*Owner {
	list := []*Owner{app, envoy, rootProxy, someone}
	for _, uid := range p.Proxy.UIDs {
		list = append(list, &Owner{UID: uid, GID: 1000})
	}
	for _, gid := range p.Proxy.GIDs {
		list = append(list, &Owner{UID: 1000, GID: gid})
	}
	for _, ids := range p.Outbound.ExcludeUIDs[:min(1, len(p.Outbound.ExcludeUIDs))] {
		list = append(list, &Owner{UID: ids.Last, GID: 1000})
	}
	for _, gid := range slices.Concat(p.Groups.Include, p.Groups.Exclude) {
		return append(list, &Owner{UID: 1000, GID: gid})
	}
	return list
}

// packets is what is worth trying on a policy.
func packets(p Policy) []Packet {
	var list []Packet
	some := func(ports []uint16) []uint16 { return ports[:min(1, len(ports))] }
	ports := slices.Concat([]uint16{80, 53, 15001, 15006, 15008, 15020, 15053},
		some(p.Inbound.Ports), some(p.Inbound.ExcludePorts),
		some(p.Outbound.Ports), some(p.Outbound.ExcludePorts))
	to := []netip.Addr{netip.MustParseAddr(world), netip.MustParseAddr(podIP),
		netip.MustParseAddr(itself), netip.MustParseAddr(through)}
	for _, cidrs := range [][]netip.Prefix{p.Outbound.CIDRs, p.Outbound.ExcludeCIDRs} {
		if n := len(cidrs); n > 0 {
			to = append(to, cidrs[0].Addr(), cidrs[n-1].Addr())
		}
	}
	to = append(to, p.DNS.Servers...)
	for _, addr := range slices.Compact(to) {
		for i, port := range ports {
			for j, proto := range []Protocol{TCP, UDP} {
				tried := fuzzedPackets(p, addr, port, proto)
				if i+j > 2 { // the rarer ports need not meet everything else
					tried = tried[:len(tried)/2]
				}
				list = append(list, tried...)
			}
		}
	}
	return list
}

func fuzzedPackets(p Policy, addr netip.Addr, port uint16, proto Protocol) []Packet {
	var list []Packet
	source := netip.AddrPortFrom(netip.MustParseAddr(podIP), 40000)
	peer := netip.AddrPortFrom(netip.MustParseAddr(world), 40000)
	if addr.Is6() {
		source, peer = at(inIPv6[podIP], 40000), at(inIPv6[world], 40000)
	}
	leaves := Packet{Protocol: proto, Source: source, Destination: netip.AddrPortFrom(addr, port),
		Out: "eth0"}
	if addr.IsLoopback() || addr == source.Addr() {
		leaves.Out = "lo"
	}
	for _, owner := range append(owners(p), nil) {
		leaves.Owner = owner
		list = append(list, leaves)
	}
	enters := Packet{Protocol: proto, Source: peer,
		Destination: netip.AddrPortFrom(source.Addr(), port)}
	for _, nic := range slices.Concat([]Interface{"eth0"},
		p.VirtualInterfaces[:min(1, len(p.VirtualInterfaces))],
		p.ExcludeInterfaces[:min(1, len(p.ExcludeInterfaces))]) {
		list = append(list, enters.entersBy(strings.ReplaceAll(string(nic), "+", "0")))
	}
	for _, s := range []State{Established, Invalid} {
		list = append(list, leaves.in(s), enters.entersBy("eth0").in(s),
			leaves.in(s).ofMarked(p.Marks.TProxy), leaves.in(s).marked(p.Marks.SelfCall))
	}
	return list
}

// overIPv6 mirrors a packet between addresses that have a counterpart.
func overIPv6(p Packet) (Packet, bool) {
	_, from := inIPv6[p.Source.Addr().String()]
	_, to := inIPv6[p.Destination.Addr().String()]
	if !from || !to {
		return Packet{}, false
	}
	return p.overIPv6(), true
}

// FuzzParse reads one value with each of the readers of lists. What one of them accepts is in its
// final form: sorted, with nothing in it twice, and written out again it reads the same.
func FuzzParse(f *testing.F) {
	for _, rows := range accepted {
		for _, row := range rows {
			f.Add(row.value)
		}
	}
	for _, nasty := range []string{",", "*", " 1 , 2 ", "1-2-3", "4294967294", "4294967295",
		"0-4294967294", "5-5,6-9", "::ffff:1.2.3.4/128", "::ffff:1.2.3.4/95",
		"1.2.3.4/0,::/0", "fe80::%a/64", "a+,a", "_,-a,@", "\x00", "\xff", "\u202e",
		strings.Repeat("a,", 300), strings.Repeat("1", 70), strings.Repeat("é", 70)} {
		f.Add(nasty)
	}
	f.Fuzz(func(t *testing.T, value string) {
		checkList(t, value, (*reader).ports, func(a, b uint16) bool { return a < b },
			func(p uint16) string { return fmt.Sprint(p) })
		checkList(t, value, (*reader).interfaces, func(a, b Interface) bool { return a < b },
			func(i Interface) string { return string(i) })
		checkList(t, value, func(r *reader, v string) []uint32 { return r.ids(v, maxGroups) },
			func(a, b uint32) bool { return a < b },
			func(id uint32) string { return fmt.Sprint(id) })
		checkList(t, value, func(r *reader, v string) []IDRange { return r.idRanges(v) },
			func(a, b IDRange) bool {
				return a.First <= a.Last && b.First <= b.Last && uint64(a.Last)+1 < uint64(b.First)
			},
			func(r IDRange) string { return fmt.Sprintf("%d-%d", r.First, r.Last) })
		checkList(t, value, func(r *reader,
			v string) []netip.Prefix {
			list, _ := r.cidrs(v)
			return list
		},
			func(a, b netip.Prefix) bool {
				return !a.Overlaps(b) && a.Addr().Less(b.Addr()) && a == a.Masked() &&
					b == b.Masked() && !a.Addr().Is4In6() && !b.Addr().Is4In6()
			},
			netip.Prefix.String)
	})
}

func checkList[T comparable](t *testing.T, value string, read func(*reader, string) []T,
	before func(a, b T) bool, write func(T) string) {
	t.Helper()
	r := reader{key: "key"}
	list := read(&r, value)
	if len(r.mistakes) > 0 {
		checkText(t, r.mistakes.Error())
		if len(r.mistakes) > 8 {
			t.Errorf("%q: %d mistakes", value, len(r.mistakes))
		}
		return
	}
	words := make([]string, len(list))
	for i, item := range list {
		if words[i] = write(item); i > 0 && !before(list[i-1], item) {
			t.Errorf("%q: %s stands before %s", value, words[i-1], words[i])
		}
	}
	if strings.TrimSpace(value) == "" && len(list) > 0 {
		t.Errorf("%q: %v", value, list)
	}
	again := reader{key: "key"}
	if back := read(&again, strings.Join(words, ",")); !slices.Equal(back, list) ||
		len(again.mistakes) > 0 {
		t.Errorf("%q: %v is read back as %v, %v", value, list, back, again.mistakes)
	}
}
