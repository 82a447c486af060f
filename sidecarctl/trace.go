package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/trace"
)

const traceAbout = `Follows a connection through the rules that a pod gets, rule by rule with the reason of each,
and then the one that the proxy opens in its turn. It is played, not sent.

With --live the packet that begins it is sent as well, as that user of the pod or from the node's
end of the pod's interface, and the rules are shown through which the kernel really took it. It is
dropped behind them and reaches nobody. With --wait the packets are followed that others send.
Both read what the kernel reports about rules of nftables, among them those of iptables-nft.`

// talkFlags say who talks to whom.
type talkFlags struct {
	from, to  string
	udp       bool
	netdevice string
	all       bool
	live      bool
	wait      bool
	count     uint
}

// wrong says what is wrong with them together, and with a network namespace that is named.
func (t talkFlags) wrong(placed bool) error {
	switch {
	case placed && !t.live && !t.wait:
		return usagef("--netns and --pid say where a packet is sent: want --live or --wait, too")
	case t.all == (t.to != ""):
		return usagef("want --to, or --all for the usual connections")
	case t.live && t.wait:
		return usagef("--live and --wait: want one of them: the one sends a packet, the other " +
			"follows those that others send")
	case t.wait && t.all:
		return usagef("--wait follows one kind of packets: want --to, not --all")
	case t.count > 0 && !t.wait:
		return usagef("--count says how many packets --wait follows: want --wait, too")
	}
	return nil
}

func (e env) traceCommand() *cobra.Command {
	var o options
	var t talkFlags
	c := e.command("trace", "where a connection of a pod goes, and why", traceAbout, &o)
	f := c.Flags()
	f.StringVar(&t.from, "from", "app",
		"who begins: app, proxy, peer (somebody outside), a container's name, or uid:N")
	complete(c, "from", "app", "proxy", "peer", "uid:")
	f.StringVar(&t.to, "to", "",
		"where to: ADDRESS:PORT, or self:PORT for the pod's own address")
	f.BoolVar(&t.udp, "udp", false, "UDP instead of TCP")
	f.StringVar(&t.netdevice, "interface", "", "the interface that it leaves or enters by (eth0)")
	f.BoolVar(&t.all, "all", false, "the usual connections, as a table")
	f.BoolVar(&t.live, "live", false, "send the packet in the pod, and show how the kernel "+
		"takes it")
	f.BoolVar(&t.wait, "wait", false, "follow the packets of others, until interrupted")
	f.UintVar(&t.count, "count", 0, "with --wait: end after so many packets (0: never)")
	o.placeFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := t.wrong(o.path() != ""); err != nil {
			return err
		}
		for _, one := range []string{"from", "udp", "interface"} {
			if t.all && c.Flags().Changed(one) {
				return usagef("--%s has no effect with --all: leave it out, or name one "+
					"connection by --to", one)
			}
		}
		o.kernel = t.live || t.wait
		all, err := e.subjects(c.Context(), &o, args)
		if err != nil {
			return err
		}
		if t.wait {
			return e.wait(c, &o, t, all)
		}
		shown, err := e.ways(c, &o, t, all)
		if err != nil {
			return err
		}
		return e.answer(&o, shown, slices.ContainsFunc(shown, way.amiss))
	}
	return c
}

// ways follows what the flags ask for, and sends it where the pods are if they do.
func (e env) ways(c *cobra.Command, o *options, t talkFlags, all []subject) (ways, error) {
	if t.live {
		shown, err := values(ask(c.Context(), e, question[way]{command: c, options: o,
			here: func(ctx context.Context, at *spot) (way, error) {
				return at.subject.way(ctx, t, at)
			}, pod: func(w way) string { return w.Pod }}, all))
		for i := range shown {
			shown[i].table = t.all
		}
		return shown, err
	}
	var shown ways
	for _, one := range all {
		w, err := one.way(c.Context(), t, nil)
		if err != nil {
			return nil, err
		}
		shown = append(shown, w)
	}
	return shown, nil
}

// way follows what the flags ask for, if the pod has rules; at is where a packet is sent, nil if
// none is.
func (s subject) way(ctx context.Context, t talkFlags, at *spot) (way, error) {
	if s.facts.Spec == nil {
		return s.recordedWay(ctx, t, at)
	}
	x := s.explain(false)
	w := way{Pod: s.pod.Name, Outcome: x.Outcome, Because: x.Because, table: t.all}
	var err error
	switch {
	case s.redirected(x.Outcome):
		w.Findings = s.aside()
		w.Talks, err = s.follow(ctx, t, at)
	case x.Outcome == isRefused:
		w.Because = x.Findings[0].What
	}
	return w, err
}

// recordedWay is that of a network namespace, of whose pod there is no more than a record.
func (s subject) recordedWay(ctx context.Context, t talkFlags, at *spot) (w way, err error) {
	if err := s.known(); err != nil {
		return w, err
	}
	w = way{Pod: s.pod.Name, Outcome: isRedirected, Findings: s.aside(), table: t.all}
	w.Talks, err = s.follow(ctx, t, at)
	return w, err
}

// known says of a network namespace whose rules nobody knows what to do about that.
func (s subject) known() error {
	if s.facts.Spec == nil && s.record == nil {
		return fmt.Errorf("%s: no record says which pod's it is: name the pod by --filename, too",
			s.pod.Name)
	}
	return nil
}

// follow plays what the flags ask for, and sends it if they do.
func (s subject) follow(ctx context.Context, t talkFlags, at *spot) ([]talk, error) {
	asked, err := s.talks(t)
	if err != nil {
		return nil, err
	}
	var shown []talk
	for _, one := range asked {
		legs, err := trace.Follow(s.tracePod(), one.Talk)
		if err != nil {
			return nil, usagef("--to %s: %w", t.to, err)
		}
		played := newTalk(one, legs)
		if at != nil {
			if played, err = at.live(ctx, t, one, legs[0]); err != nil {
				return nil, err
			}
		}
		shown = append(shown, played)
	}
	return shown, nil
}

// exampleIPs stand in for a pod's addresses that nobody knows yet (RFC 5737, RFC 3849).
var exampleIPs = []netip.Addr{netip.MustParseAddr("192.0.2.10"),
	netip.MustParseAddr("2001:db8::10")}

func (s subject) tracePod() trace.Pod {
	p := trace.Pod{Policy: s.has(), Addrs: s.pod.IPs}
	if len(p.Addrs) == 0 {
		p.Addrs = exampleIPs
	}
	return p
}

// A namedTalk is a talk and what it is about.
type namedTalk struct {
	trace.Talk
	about string // "" if the command line says it
	sure  bool   // the sender's uid is known
}

// talks are those that the flags ask for.
func (s subject) talks(t talkFlags) ([]namedTalk, error) {
	if t.all {
		return s.usual()
	}
	from, sure, err := s.sender(t.from)
	if err != nil {
		return nil, err
	}
	to, err := s.destination(t.to)
	if err != nil {
		return nil, err
	}
	return []namedTalk{{Talk: trace.Talk{From: from, To: to, UDP: t.udp, Interface: t.netdevice},
		sure: sure}}, nil
}

// sender is who --from names. A uid that no manifest says is 0, which most images have.
func (s subject) sender(from string) (who trace.Sender, sure bool, err error) {
	proxy := s.has().Proxy
	if number, ok := strings.CutPrefix(from, "uid:"); ok {
		uid, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return who, false, usagef("--from %q: want uid: and a number", from)
		}
		return trace.Sender{Name: from, UID: uint32(uid), GID: uint32(uid)}, true, nil
	}
	switch from {
	case "peer":
		return trace.Sender{Name: from, Peer: true}, true, nil
	case "proxy":
		return trace.Sender{Name: from, UID: proxy.UIDs[0], GID: proxy.GIDs[0]}, true, nil
	}
	for _, c := range s.pod.Containers {
		if c.Name != from && (from != "app" || c.Init || c.Name == redirect.ProxyContainer) {
			continue
		}
		who = trace.Sender{Name: c.Name}
		if c.RunAsUser != nil {
			who.UID, sure = uint32(*c.RunAsUser), true
		}
		if c.RunAsGroup != nil {
			who.GID = uint32(*c.RunAsGroup)
		}
		return who, sure, nil
	}
	var names []string
	for _, c := range s.pod.Containers {
		names = append(names, c.Name)
	}
	if s.facts.Spec == nil && from == "app" { // whoever it is, he is not the proxy
		return trace.Sender{Name: from, UID: anybody, GID: anybody}, false, nil
	}
	return who, false, usagef("--from %q: want app, proxy, peer, uid:N, or a container: %s", from,
		strings.Join(names, ", "))
}

// anybody stands for the app of a pod of which the containers are not known.
const anybody = 1000

// destination is where --to leads.
func (s subject) destination(to string) (netip.AddrPort, error) {
	if port, ok := strings.CutPrefix(to, "self:"); ok {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 {
			return netip.AddrPort{}, usagef("--to %q: want self: and a port", to)
		}
		return netip.AddrPortFrom(s.tracePod().Addrs[0], uint16(number)), nil
	}
	addr, err := netip.ParseAddrPort(to)
	if err != nil || addr.Port() == 0 {
		return netip.AddrPort{}, usagef("--to %q: want ADDRESS:PORT as 10.0.0.1:80 or "+
			"[fd00::1]:80, or self:PORT; names are not looked up", to)
	}
	return netip.AddrPortFrom(addr.Addr().Unmap().WithZone(""), addr.Port()), nil
}

// usual are the connections that people ask about, in each family that the pod has.
func (s subject) usual() ([]namedTalk, error) {
	app, sure, err := s.sender("app")
	if err != nil {
		return nil, err
	}
	proxy, _, _ := s.sender("proxy")
	peer, _, _ := s.sender("peer")
	port := uint16(8080)
	for _, c := range s.pod.Containers {
		if len(c.Ports) > 0 && c.Name != redirect.ProxyContainer {
			port = c.Ports[0].Number
			break
		}
	}
	var all []namedTalk
	for _, own := range s.families() {
		elsewhere := map[bool]string{true: "198.51.100.7", false: "2001:db8:1::7"}[own.Is4()]
		loopback := map[bool]string{true: "127.0.0.1", false: "::1"}[own.Is4()]
		add := func(about string, from trace.Sender, to string, port uint16, udp bool) {
			all = append(all, namedTalk{about: about, sure: sure, Talk: trace.Talk{From: from,
				To: netip.AddrPortFrom(netip.MustParseAddr(to), port), UDP: udp}})
		}
		add("app calls out", app, elsewhere, 443, false)
		add("app asks for a name", app, s.nameserver(own.Is4(), elsewhere), 53, true)
		add("app calls itself by its address", app, own.String(), port, false)
		add("app calls itself on loopback", app, loopback, port, false)
		add("proxy calls out", proxy, elsewhere, 443, false)
		add("peer calls the app", peer, own.String(), port, false)
		add("kubelet probes the proxy", peer, own.String(), 15021, false)
		add("peer calls a port of the proxy", peer, own.String(), s.has().Ports.Tunnel,
			false)
	}
	return all, nil
}

// families are the pod's addresses, one of each family.
func (s subject) families() []netip.Addr {
	addrs := slices.Clone(s.tracePod().Addrs)
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int {
		return cmp.Compare(a.BitLen(), b.BitLen())
	})
	return slices.CompactFunc(addrs, func(a, b netip.Addr) bool { return a.Is4() == b.Is4() })
}

func (s subject) nameserver(ipv4 bool, usual string) string {
	for _, a := range s.facts.Nameservers {
		if a.Is4() == ipv4 {
			return a.String()
		}
	}
	return usual
}
