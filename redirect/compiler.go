package redirect

import (
	"net/netip"
	"slices"
)

// compiler holds a policy and the chains that Compile has written so far.
type compiler struct {
	Policy
	chains []Chain
	routes []PolicyRoute
}

// rules appends to a chain of a table; the names of hooks are PREROUTING and OUTPUT.
func (c *compiler) rules(t Table, chain string, rules ...Rule) {
	i := slices.IndexFunc(c.chains,
		func(have Chain) bool { return have.Table == t && have.Name == chain })
	if i < 0 {
		i = len(c.chains)
		c.chains = append(c.chains, Chain{Table: t, Name: chain, Hook: hookOf(chain)})
	}
	c.chains[i].Rules = append(c.chains[i].Rules, rules...)
}

func hookOf(chain string) Hook {
	for _, h := range []Hook{Prerouting, Output} {
		if h.String() == chain {
			return h
		}
	}
	return NoHook
}

func (c *compiler) prerouting(t Table, rules ...Rule) { c.rules(t, Prerouting.String(), rules...) }
func (c *compiler) output(t Table, rules ...Rule)     { c.rules(t, Output.String(), rules...) }

type identity struct {
	If    Match // the owner alone
	isUID bool
}

// identities lists the proxy's uids, then its gids, as matches.
func (c *compiler) identities() []identity {
	var ids []identity
	for _, uid := range c.Proxy.UIDs {
		ids = append(ids, identity{Match{UID: IDs{{uid, uid}}}, true})
	}
	for _, gid := range c.Proxy.GIDs {
		ids = append(ids, identity{Match{GID: IDs{{gid, gid}}}, false})
	}
	return ids
}

func (c *compiler) capturesInbound() bool { return c.Inbound.All || len(c.Inbound.Ports) > 0 }
func (c *compiler) transparent() bool     { return c.Mode == ModeTProxy && c.capturesInbound() }

// capturesDNS says whether any query is redirected; zones are set also where none is.
func (c *compiler) capturesDNS() bool {
	return c.DNS.Capture && !slices.Contains(c.Outbound.ExcludePorts, portDNS)
}

func (c *compiler) loopback(not bool) Addresses {
	return Addresses{Not: not, Prefixes: []netip.Prefix{c.Loopback, loopbackIPv6}}
}

func (c *compiler) notLoopback() Addresses { return c.loopback(true) }

func (c *compiler) passthrough() Addresses {
	var a Addresses
	for _, addr := range c.Passthrough {
		a.Prefixes = append(a.Prefixes, host(addr))
	}
	return a
}

// ruleset sorts the chains as a packet meets them: by table, hooks first.
func (c *compiler) ruleset() Ruleset {
	rs := Ruleset{Routes: c.routes}
	chains := trim(c.chains)
	for _, t := range Tables {
		for _, h := range []Hook{Prerouting, Output, NoHook} {
			for _, chain := range chains {
				if chain.Table == t && chain.Hook == h {
					rs.Chains = append(rs.Chains, chain)
				}
			}
		}
	}
	for _, addr := range c.Passthrough {
		if addr.Is6() { // 127.0.0.0/8 is all there, of IPv6 only ::1
			rs.Addresses = append(rs.Addresses, host(addr))
		}
	}
	return rs
}

var returns = Action{Verb: Return}

func jump(chain string) Action { return Action{Verb: Jump, Chain: chain} }

func tcpTo(ports []uint16) Match {
	return Match{Protocol: TCP, DestinationPort: Ports{List: ports}}
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func single(ids []uint32) IDs {
	var list IDs
	for _, id := range ids {
		list = append(list, IDRange{id, id})
	}
	return mergeIDs(list)
}

// toServers calls f with the addresses whose port 53 is captured.
func (c *compiler) toServers(f func(Addresses)) {
	if c.DNS.Everywhere {
		f(Addresses{})
		return
	}
	var servers Addresses
	for _, s := range c.DNS.Servers {
		servers.Prefixes = append(servers.Prefixes, host(s))
	}
	f(servers)
}
