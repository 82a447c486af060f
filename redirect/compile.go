package redirect

import "net/netip"

// The names that an administrator greps for.
const (
	chainInbound    = "ISTIO_INBOUND"
	chainInRedirect = "ISTIO_IN_REDIRECT"
	chainOutput     = "ISTIO_OUTPUT"
	chainGroups     = "ISTIO_OUTPUT_GROUPS"
	chainRedirect   = "ISTIO_REDIRECT"
	chainDNS        = "ISTIO_OUTPUT_DNS"
	chainDivert     = "ISTIO_DIVERT"
	chainTProxy     = "ISTIO_TPROXY"
	chainDrop       = "ISTIO_DROP"
	chainIncluded   = "ISTIO_INCLUDED"
)

const (
	lo       = Interface("lo")
	portDNS  = 53
	zoneOut  = 1 // conntrack zone of the exchange between the proxy and the nameserver
	zoneHome = 2 // and of the one between the app and the proxy
)

var loopbackIPv6 = netip.MustParsePrefix("::1/128")

// Compile turns a policy into rules. The methods below are the contract, top to bottom.
//
// Where istio-init has the three rules
//
//	-o lo ! -d 127.0.0.1 --uid-owner 1337 -j ISTIO_IN_REDIRECT
//	-o lo ! --uid-owner 1337 -j RETURN
//	--uid-owner 1337 -j RETURN
//
// the last two say: the proxy's traffic returns, and so does all else on lo. That is how they stand
// here, since a packet without a socket meets "! --uid-owner" in iptables and no form of it in
// nftables.
func Compile(p Policy) Ruleset {
	c := compiler{Policy: p}
	c.virtualInterfaces()
	c.excludedInterfaces()
	c.dropInvalid()
	if p.Mode == ModeTProxy {
		c.inboundTransparent()
	} else {
		c.inbound()
	}
	c.outbound()
	c.dnsZones()
	c.rules(NAT, chainRedirect,
		Rule{"to the outbound listener of the proxy", Match{Protocol: TCP},
			Action{Verb: Redirect, Port: p.Ports.Outbound}})
	c.rules(NAT, chainInRedirect,
		Rule{"to the inbound listener of the proxy", Match{Protocol: TCP},
			Action{Verb: Redirect, Port: p.Ports.Inbound}})
	return c.ruleset()
}

// virtualInterfaces come before all else of nat: traffic of a virtual machine is the pod's outbound
// traffic, though it enters from an interface.
//
// The included CIDRs stand in a chain of their own then, for the interfaces and for the pod: once
// for each interface they would be more than a node can hold.
func (c *compiler) virtualInterfaces() {
	for _, name := range c.VirtualInterfaces {
		in := Match{In: name}
		if c.Outbound.All {
			c.prerouting(NAT, Rule{"virtual interface, its traffic is outbound", in,
				jump(chainRedirect)})
		} else if len(c.Outbound.CIDRs) > 0 {
			c.prerouting(NAT, Rule{"virtual interface, its traffic is outbound", in,
				jump(chainIncluded)})
		}
		if !c.Outbound.All {
			c.prerouting(NAT, Rule{"virtual interface, nothing else is captured", in, returns})
		}
	}
	if len(c.VirtualInterfaces) > 0 && !c.Outbound.All && len(c.Outbound.CIDRs) > 0 {
		c.rules(NAT, chainIncluded, c.includedCIDRs())
	}
}

func (c *compiler) includedCIDRs() Rule {
	return Rule{"included outbound CIDR", Match{Destination: Addresses{Prefixes: c.Outbound.CIDRs}},
		jump(chainRedirect)}
}

func (c *compiler) excludedInterfaces() {
	tables := []Table{NAT}
	if c.transparent() {
		tables = []Table{Mangle, NAT}
	}
	for _, t := range tables {
		for _, name := range c.ExcludeInterfaces {
			if t != NAT || !among(c.VirtualInterfaces, name) {
				c.prerouting(t, Rule{"excluded interface", Match{In: name}, returns})
			}
			c.output(t, Rule{"excluded interface", Match{Out: name}, returns})
		}
	}
}

func (c *compiler) dropInvalid() {
	if !c.DropInvalid {
		return
	}
	c.prerouting(Mangle, Rule{"invalid packets would reset connections", Match{State: Invalid},
		jump(chainDrop)})
	c.rules(Mangle, chainDrop, Rule{"out of any connection", Match{}, Action{Verb: Drop}})
}

// inbound redirects what enters the pod to the proxy.
func (c *compiler) inbound() {
	if !c.capturesInbound() {
		return
	}
	c.prerouting(NAT, Rule{"all that enters", Match{Protocol: TCP}, jump(chainInbound)})
	c.tunnelReturns(NAT)
	if c.Inbound.All {
		c.excludedPortsReturn(NAT)
		c.rules(NAT, chainInbound,
			Rule{"all other ports", Match{Protocol: TCP}, jump(chainInRedirect)})
		return
	}
	c.rules(NAT, chainInbound,
		Rule{"included inbound port", tcpTo(c.Inbound.Ports), jump(chainInRedirect)})
}

func (c *compiler) tunnelReturns(t Table) {
	c.rules(t, chainInbound,
		Rule{"tunnel port, enters the proxy by itself", tcpTo([]uint16{c.Ports.Tunnel}), returns})
}

func (c *compiler) excludedPortsReturn(t Table) {
	if len(c.Inbound.ExcludePorts) > 0 {
		c.rules(t, chainInbound,
			Rule{"excluded inbound port", tcpTo(c.Inbound.ExcludePorts), returns})
	}
}

// inboundTransparent hands what enters the pod to the proxy with its addresses as they are.
func (c *compiler) inboundTransparent() {
	if !c.transparent() {
		return
	}
	for _, name := range c.VirtualInterfaces {
		if !among(c.ExcludeInterfaces, name) {
			c.prerouting(Mangle, Rule{"virtual interface, its traffic is outbound",
				Match{In: name}, returns})
		}
	}
	mark := Mark{Value: c.Marks.TProxy}
	c.prerouting(Mangle,
		Rule{"all that enters", Match{Protocol: TCP}, jump(chainInbound)},
		Rule{"the proxy calls the app as the client: its answers are known by this mark",
			Match{Protocol: TCP, Mark: mark}, Action{Verb: SaveMark}})
	c.rules(Mangle, chainInbound,
		Rule{"from the proxy as the client", Match{Protocol: TCP, Mark: mark}, returns},
		Rule{"from the proxy to the app", Match{In: lo, Protocol: TCP, Source: c.passthrough()},
			returns},
		Rule{"within the pod", Match{In: lo, Protocol: TCP,
			Mark: Mark{Not: true, Value: c.Marks.SelfCall}}, returns})
	c.tunnelReturns(Mangle)
	captured := Match{Protocol: TCP}
	if c.Inbound.All {
		c.excludedPortsReturn(Mangle)
	} else {
		captured = tcpTo(c.Inbound.Ports)
	}
	known := captured
	known.State = Established | Related
	c.rules(Mangle, chainInbound,
		Rule{"of a connection that the proxy has", known, jump(chainDivert)},
		Rule{"a new connection", captured, jump(chainTProxy)})
	c.rules(Mangle, chainDivert,
		Rule{"routed to the socket that has it", Match{},
			Action{Verb: SetMark, Mark: c.Marks.TProxy}},
		Rule{"and left as it is", Match{}, Action{Verb: Accept}})
	c.rules(Mangle, chainTProxy,
		Rule{"to the inbound listener of the proxy",
			Match{Protocol: TCP, Destination: c.notLoopback()},
			Action{Verb: TProxy, Port: c.Ports.Inbound, Mark: c.Marks.TProxy}})
	c.outputTransparent(mark)
	c.routes = append(c.routes, PolicyRoute{Mark: c.Marks.TProxy, Table: c.Marks.Table})
}

// outputTransparent marks what the kernel must route back to the proxy.
func (c *compiler) outputTransparent(mark Mark) {
	c.output(Mangle, Rule{"from the proxy as the client", Match{Out: lo, Protocol: TCP, Mark: mark},
		returns})
	for _, id := range c.identities() {
		id.If.Out, id.If.Protocol, id.If.Destination = lo, TCP, c.notLoopback()
		c.output(Mangle, Rule{"the pod calls itself through the proxy", id.If,
			Action{Verb: SetMark, Mark: c.Marks.SelfCall}})
	}
	c.output(Mangle, Rule{"answers of the app to a client whom the proxy speaks for",
		Match{Protocol: TCP, ConnMark: mark}, Action{Verb: RestoreMark}})
}

// outbound redirects what the pod sends.
func (c *compiler) outbound() {
	c.output(NAT, Rule{"all that the pod sends", Match{}, jump(chainOutput)})
	add := func(rules ...Rule) { c.rules(NAT, chainOutput, rules...) }
	for _, proto := range []Protocol{TCP, UDP} {
		if ports := c.Outbound.ExcludePorts; len(ports) > 0 {
			add(Rule{"excluded outbound port",
				Match{Protocol: proto, DestinationPort: Ports{List: ports}}, returns})
		}
	}
	if ids := c.Outbound.ExcludeUIDs; len(ids) > 0 {
		add(Rule{"excluded user", Match{UID: ids}, returns})
	}
	add(Rule{"from the proxy to the app", Match{Out: lo, Source: c.passthrough()}, returns})
	for i, id := range c.identities() {
		add(c.own(id, i == 0)...)
	}
	c.ownerGroups(add)
}

// own is how the traffic of one identity of the proxy is told from that of the app. The first ends
// all calls within the pod, so that the later ones meet none, but for those that the name service
// or captured loopback leave over.
func (c *compiler) own(id identity, first bool) []Rule {
	exempt := []uint16{c.Ports.Tunnel} // a call back through the proxy would go around once more
	if c.capturesDNS() && id.isUID {
		exempt = []uint16{portDNS, c.Ports.Tunnel}
	}
	self := id.If
	self.Out, self.Protocol, self.Destination = lo, TCP, c.notLoopback()
	self.DestinationPort = Ports{Not: true, List: exempt}
	var rules []Rule
	if first || c.Outbound.Loopback || c.capturesDNS() && !id.isUID {
		rules = append(rules, Rule{"the pod calls itself through the proxy", self,
			jump(chainInRedirect)})
	}
	if c.Groups.All || len(c.Groups.Include) > 0 || c.capturesDNS() { // else only self-calls follow
		rules = append(rules, Rule{"from the proxy, never back to it", id.If, returns})
	}
	if !first || c.Outbound.Loopback {
		return rules
	}
	within := Match{Out: lo}
	if c.capturesDNS() { // a resolver on localhost is captured
		within = Match{Out: lo, Protocol: TCP,
			DestinationPort: Ports{Not: true, List: []uint16{portDNS}}}
	}
	return append(rules, Rule{"within the pod", within, returns})
}

// ownerGroups lets the traffic of some groups go, and hands the rest to destinations. An included
// list is a jump of the included, not a return of the others: a packet without a socket has no
// group and is in no list.
func (c *compiler) ownerGroups(add func(...Rule)) {
	if c.Groups.All {
		if len(c.Groups.Exclude) > 0 {
			add(Rule{"excluded group", Match{GID: single(c.Groups.Exclude)}, returns})
		}
		c.destinations(add)
		return
	}
	if len(c.Groups.Include) == 0 {
		add(Rule{"no group is captured", Match{}, returns})
		return
	}
	add(Rule{"included group", Match{GID: single(c.Groups.Include)}, jump(chainGroups)})
	c.destinations(func(rules ...Rule) { c.rules(NAT, chainGroups, rules...) })
}

// destinations decides by where the packet goes.
func (c *compiler) destinations(add func(...Rule)) {
	if c.capturesDNS() {
		add(Rule{"name service", Match{}, jump(chainDNS)})
		for _, proto := range []Protocol{TCP, UDP} {
			c.toServers(func(servers Addresses) {
				c.rules(NAT, chainDNS, Rule{"to the resolver of the proxy",
					Match{Protocol: proto, Destination: servers,
						DestinationPort: Ports{List: []uint16{portDNS}}},
					Action{Verb: Redirect, Port: c.Ports.DNS}})
			})
		}
	}
	add(Rule{"loopback", Match{Destination: c.loopback(false)}, returns})
	if cidrs := c.Outbound.ExcludeCIDRs; len(cidrs) > 0 {
		add(Rule{"excluded outbound CIDR", Match{Destination: Addresses{Prefixes: cidrs}}, returns})
	}
	if ports := c.Outbound.Ports; len(ports) > 0 && !c.Outbound.All {
		add(Rule{"included outbound port", tcpTo(ports), jump(chainRedirect)})
	}
	switch {
	case c.Outbound.All:
		add(Rule{"everything else", Match{}, jump(chainRedirect)})
	case len(c.Outbound.CIDRs) > 0 && len(c.VirtualInterfaces) > 0:
		add(Rule{"included outbound CIDRs", Match{}, jump(chainIncluded)})
	case len(c.Outbound.CIDRs) > 0:
		add(c.includedCIDRs())
	}
}

// dnsZones keep the two halves of a redirected exchange apart: app to proxy, and proxy to
// nameserver, may have the same addresses and ports, and connection tracking would take one for the
// other.
func (c *compiler) dnsZones() {
	if !c.DNS.Capture {
		return
	}
	out, home := Action{Verb: SetZone, Zone: zoneOut}, Action{Verb: SetZone, Zone: zoneHome}
	asks := Ports{List: []uint16{portDNS}}
	for _, id := range c.identities() {
		query, answer := id.If, id.If
		query.Protocol, query.DestinationPort = UDP, asks
		answer.Protocol, answer.SourcePort = UDP, Ports{List: []uint16{c.Ports.DNS}}
		c.output(Raw,
			Rule{"the proxy asks the nameserver", query, out},
			Rule{"the proxy answers the app", answer, home})
	}
	if ids := c.Outbound.ExcludeUIDs; len(ids) > 0 {
		c.output(Raw, Rule{"an excluded user asks the nameserver",
			Match{Protocol: UDP, UID: ids, DestinationPort: asks}, out})
	}
	c.toServers(func(servers Addresses) {
		c.output(Raw, Rule{"the app asks the proxy",
			Match{Protocol: UDP, Destination: servers, DestinationPort: asks}, home})
		c.prerouting(Raw, Rule{"the nameserver answers",
			Match{Protocol: UDP, Source: servers, SourcePort: asks}, out})
	})
}
