package verify

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
	"github.com/sidecar-cni/sidecar-cni/redirect/sockets"
)

// Question is about one pod, whose network namespace was found.
type Question struct {
	Name    string        // for people: shop/web-0
	Place   *audit.Place  // open until Look has returned
	Pod     audit.Pod     // without a uid, only what is in the namespace counts
	Auditor audit.Auditor // of the node's configuration

	// What audit.Expect says of the pod, if that is decided without looking; else nil.
	Judged *audit.Judgement

	Proc string // where the node's /proc is; "" if nowhere

	// The id of the proxy's container, without its runtime's prefix. Without it that container
	// counts in which somebody listens on the proxy's ports.
	Proxy string
}

// Look says whether a pod is redirected as it should be.
func Look(ctx context.Context, q Question) Answer {
	a := Answer{Pod: q.Name}
	if q.Judged != nil {
		a.Rules, a.Findings = q.Judged, ofRules(*q.Judged)
		return a
	}
	at := *q.Place
	if at.Record == nil {
		at.Record = audit.RecordIn(q.Auditor.Records, at.NS.ID)
	}
	j := q.Auditor.Judge(ctx, &at, q.Pod)
	a.Rules, a.Findings, a.Recorded = &j, ofRules(j), at.Record != nil
	policy, known := q.Pod.Policy, q.Pod.Mistake == nil
	if at.Record != nil {
		policy, known, a.Backend = at.Record.Policy, true, at.Record.Backend
	}
	switch {
	case j.Finding == audit.Unreachable:
		a.Lacks = Lacks(q.Proc)
		a.unreachable()
		return a
	case j.Finding == audit.Missing:
		return a // nothing leads to a port
	case !known:
		a.unknown(q.Pod.Mistake)
		return a
	}
	in, err := read(at.NS)
	if err != nil {
		a.Lacks = append(a.Lacks, oneLine(err))
	}
	a.addresses(in, q.Pod.Addrs)
	all, lack := processesIn(q.Proc, at.NS)
	switch {
	case lack != "":
		a.Lacks = append(a.Lacks, lack)
	case len(all.all) == 0:
		a.Findings = append(a.Findings, Finding{Kind: AboutNamespace,
			What:   "no process is in its network namespace",
			Remedy: "see whether the pod runs, and whether this is its namespace"})
	}
	look := look{policy: policy, inside: in, processes: all}
	if err == nil {
		a.listeners(look)
	}
	a.impostors(look, q.Proxy)
	return a
}

// unknown adds what was not looked at, since nobody knows what the pod asks for. To have it created
// anew would change nothing about that.
func (a *Answer) unknown(mistake error) {
	a.Lacks = append(a.Lacks, "whether the rules are what they should be, who listens on the "+
		"proxy's ports, and which processes count as the proxy: "+oneLine(mistake))
	for i := range a.Findings {
		if a.Rules.Finding == audit.Foreign {
			a.Findings[i].Remedy = ""
		}
	}
}

// A look is what was read in and about a namespace.
type look struct {
	policy    redirect.Policy
	inside    inside
	processes processes
}

// inside is what a namespace has.
type inside struct {
	// On other interfaces than lo, link-local ones left out.
	addrs []netip.Addr
	// That receive what is sent to their ports.
	takes map[redirect.Protocol][]sockets.Socket
}

// read reads it. An error about sockets leaves the addresses.
func read(n *podns.Namespace) (in inside, err error) {
	in.takes = map[redirect.Protocol][]sockets.Socket{}
	err = n.DoOn(podns.Apart, func() error {
		var err error
		if in.addrs, err = routing.Reachable(); err != nil {
			return err
		}
		r, err := sockets.Open()
		if err != nil {
			return fmt.Errorf("who listens: %w", err)
		}
		defer r.Close()
		for _, p := range []redirect.Protocol{redirect.TCP, redirect.UDP} {
			if in.takes[p], err = r.Receivers(p); err != nil {
				return fmt.Errorf("who listens: %w", err)
			}
		}
		return nil
	})
	return in, err
}

// first returns the namespace's first address of a family.
func (in inside) first(f redirect.Family) (netip.Addr, bool) {
	for _, a := range in.addrs {
		if redirect.FamilyOf(a) == f {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// families are those in which the pod has an address. One without any has a loopback for IPv4.
func (in inside) families() []redirect.Family {
	var all []redirect.Family
	for _, f := range redirect.Families {
		if _, ok := in.first(f); ok {
			all = append(all, f)
		}
	}
	if all == nil {
		return []redirect.Family{redirect.IPv4}
	}
	return all
}

// addresses finds a namespace that has none of the addresses that the pod is said to have.
func (a *Answer) addresses(in inside, said []netip.Addr) {
	if len(said) == 0 || len(in.addrs) == 0 ||
		slices.ContainsFunc(said, func(one netip.Addr) bool {
			return slices.Contains(in.addrs, one)
		}) {
		return
	}
	a.Findings = append(a.Findings, Finding{Kind: AboutNamespace,
		What: fmt.Sprintf("its address %s is on no interface of this network namespace, which "+
			"has %s", words(said), words(in.addrs)),
		Remedy: "see whether this is the pod's namespace: its sandbox may have been made anew"})
}

func words[T fmt.Stringer](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.String()
	}
	return strings.Join(texts, ", ")
}

// listeners finds who listens where the rules lead to.
func (a *Answer) listeners(l look) {
	wanted := endpoints(redirect.Compile(l.policy))
	owners := l.processes.owners(l.inside.takes)
	for _, e := range wanted {
		a.port(l, e, owners)
	}
	tunnel := endpoint{port: l.policy.Ports.Tunnel, protocol: redirect.TCP}
	if slices.ContainsFunc(l.inside.takes[redirect.TCP], func(s sockets.Socket) bool {
		return s.Local.Port() == tunnel.port
	}) { // nothing leads to it but what peers send there
		a.port(l, tunnel, owners)
	}
	a.loops(l)
}

// port adds one port, and what is wrong with it.
func (a *Answer) port(l look, e endpoint, owners map[uint32]*Process) {
	ports := l.policy.Ports
	p := Port{Number: e.port, Protocol: e.protocol.String(), For: purpose(e.port, ports),
		Transparent: e.transparent, Effect: e.silence(ports)}
	for _, f := range l.inside.families() {
		for _, to := range e.destinations(f, l.inside) {
			found := false
			for _, s := range l.inside.takes[e.protocol] {
				if s.Receives(netip.AddrPortFrom(to, e.port)) {
					found = true
					p.add(s, l.processes.ids, owners)
				}
			}
			if !found {
				p.Unheard = append(p.Unheard, to.String())
			}
		}
	}
	switch {
	case len(p.Listeners) == 0:
		p.Unheard = nil
	case e.enters && len(p.Unheard) > 0 && !slices.ContainsFunc(p.Unheard, outside):
		p.Effect = "what the pod sends to itself is refused"
	}
	a.Ports = append(a.Ports, p)
	if f := p.finding(); f != nil && (e.leaves || e.enters) {
		a.Findings = append(a.Findings, *f)
	}
}

// destinations are the addresses at which packets of a family arrive: what the pod sends at
// loopback, what enters at the interface's own.
func (e endpoint) destinations(f redirect.Family, in inside) []netip.Addr {
	var all []netip.Addr
	if e.leaves || !e.enters {
		all = append(all, loopback(f))
	}
	if own, ok := in.first(f); ok && (e.enters || !e.leaves) {
		all = append(all, own)
	}
	return all
}

// outside reports whether an address is that of an interface other than lo.
func outside(addr string) bool {
	return !slices.ContainsFunc(redirect.Families, func(f redirect.Family) bool {
		return addr == loopback(f).String()
	})
}

func loopback(f redirect.Family) netip.Addr {
	if f == redirect.IPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

func (x *Port) add(s sockets.Socket, ids identities, owners map[uint32]*Process) {
	one := Listener{Address: s.Local.Addr().String(), UID: ids.users.inside(s.UID),
		Transparent: s.Transparent, Process: owners[s.Inode]}
	if !slices.ContainsFunc(x.Listeners, func(l Listener) bool {
		return l.Address == one.Address && l.UID == one.UID && l.Process == one.Process
	}) {
		x.Listeners = append(x.Listeners, one)
	}
}

// finding says what is wrong with who listens; nil if nothing is.
func (x *Port) finding() *Finding {
	f := &Finding{Wrong: true, Kind: AboutListener, Port: x.Number}
	opaque := slices.ContainsFunc(x.Listeners, func(l Listener) bool {
		return l.Transparent != nil && !*l.Transparent
	})
	switch {
	case len(x.Listeners) == 0:
		f.What = fmt.Sprintf("nobody listens on port %d (%s): %s", x.Number, x.For, x.Effect)
		f.Remedy = "see in its log whether the proxy is up"
	case x.Transparent && opaque:
		f.What = fmt.Sprintf("the listener on port %d is not transparent: what enters is dropped",
			x.Number)
		f.Remedy = "the proxy has to know that the mode is TPROXY (annotation " +
			"sidecar.istio.io/interceptionMode when it is injected), and needs the capability " +
			"NET_ADMIN"
	case len(x.Unheard) > 0:
		f.What = fmt.Sprintf("nobody listens on port %d (%s) at %s: %s", x.Number, x.For,
			strings.Join(x.Unheard, " and "), x.Effect)
		f.Remedy = "have the proxy listen at every address, of both families if the pod has both " +
			"(in istio, dual stack)"
	default:
		return nil
	}
	return f
}
