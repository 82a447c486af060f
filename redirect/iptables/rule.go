package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Tag begins the comment of every rule that is ours, for people and for Remove.
const Tag = "sidecar-cni: "

// specs writes a rule as iptables-save prints it, without its chain. What other dialects keep in a
// list is a rule each.
func specs(r redirect.Rule, f redirect.Family) []string {
	m, ok := r.If.For(f)
	if !ok {
		return nil
	}
	var out []string
	for _, source := range oneByOne(m.Source.Prefixes) {
		for _, destination := range oneByOne(m.Destination.Prefixes) {
			for _, sport := range oneByOne(m.SourcePort.List) {
				for _, dport := range destinationPorts(m.DestinationPort) {
					for _, uid := range oneByOne(m.UID) {
						for _, gid := range oneByOne(m.GID) {
							m.Source.Prefixes, m.Destination.Prefixes = source, destination
							m.SourcePort.List, m.DestinationPort.List = sport, dport
							m.UID, m.GID = uid, gid
							out = append(out, spec(m, r, f))
						}
					}
				}
			}
		}
	}
	return out
}

// oneByOne splits a list into lists of one; an empty list, which is no condition, stays.
func oneByOne[S ~[]T, T any](list S) []S {
	if len(list) == 0 {
		return []S{nil}
	}
	return slices.Collect(slices.Chunk(list, 1))
}

// destinationPorts keeps a negated list together: "neither of them" cannot be said in two rules.
func destinationPorts(p redirect.Ports) [][]uint16 {
	if p.Not {
		return [][]uint16{p.List}
	}
	return oneByOne(p.List)
}

// spec writes a rule whose lists have one item at most, in iptables-save's own order.
func spec(m redirect.Match, r redirect.Rule, f redirect.Family) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	for _, p := range m.Source.Prefixes {
		add("%s-s %s", negated(m.Source.Not), p)
	}
	for _, p := range m.Destination.Prefixes {
		add("%s-d %s", negated(m.Destination.Not), p)
	}
	words = dropAnywhere(words, f)
	if m.In != "" {
		add("-i %s", m.In)
	}
	if m.Out != "" {
		add("-o %s", m.Out)
	}
	words = append(words, transport(m)...)
	for _, id := range m.UID {
		add("-m owner --uid-owner %s", idRange(id))
	}
	for _, id := range m.GID {
		add("-m owner --gid-owner %s", idRange(id))
	}
	if m.Mark.Value != 0 {
		add("-m mark %s--mark 0x%x", negated(m.Mark.Not), m.Mark.Value)
	}
	if m.ConnMark.Value != 0 {
		add("-m connmark %s--mark 0x%x", negated(m.ConnMark.Not), m.ConnMark.Value)
	}
	if m.State != 0 {
		add("-m conntrack --ctstate %s", states(m.State))
	}
	add("-m comment --comment %q", Tag+r.Why)
	add("-j %s", target(r.Then, f))
	return strings.Join(words, " ")
}

// dropAnywhere leaves out what iptables-save does not print: a prefix that holds every address.
func dropAnywhere(words []string, f redirect.Family) []string {
	anywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0).String()
	if f == redirect.IPv6 {
		anywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0).String()
	}
	return slices.DeleteFunc(words,
		func(w string) bool { return w == "-s "+anywhere || w == "-d "+anywhere })
}

func transport(m redirect.Match) []string {
	if m.Protocol == redirect.AnyProtocol {
		return nil
	}
	name := strings.ToLower(m.Protocol.String())
	words := []string{"-p " + name}
	if m.DestinationPort.Not && len(m.DestinationPort.List) > 1 {
		return append(words, "-m multiport ! --dports "+portList(m.DestinationPort.List))
	}
	if len(m.SourcePort.List)+len(m.DestinationPort.List) > 0 {
		words = append(words, "-m "+name)
	}
	for _, p := range m.SourcePort.List {
		words = append(words, fmt.Sprintf("%s--sport %d", negated(m.SourcePort.Not), p))
	}
	for _, p := range m.DestinationPort.List {
		words = append(words, fmt.Sprintf("%s--dport %d", negated(m.DestinationPort.Not), p))
	}
	return words
}

func portList(ports []uint16) string {
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = strconv.Itoa(int(p))
	}
	return strings.Join(words, ",")
}

// idRange gives numbers, never names: xt_owner would ask the host's name service for those.
func idRange(r redirect.IDRange) string {
	if r.First == r.Last {
		return strconv.FormatUint(uint64(r.First), 10)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// states lists the states in the order in which iptables-save prints them.
func states(s redirect.State) string {
	var words []string
	for _, one := range []redirect.State{redirect.Invalid, redirect.New, redirect.Related,
		redirect.Established} {
		if s&one != 0 {
			words = append(words, strings.ToUpper(one.String()))
		}
	}
	return strings.Join(words, ",")
}

const everyBit = "0xffffffff"

func target(a redirect.Action, f redirect.Family) string {
	switch a.Verb {
	case redirect.Return:
		return "RETURN"
	case redirect.Accept:
		return "ACCEPT"
	case redirect.Drop:
		return "DROP"
	case redirect.Jump:
		return a.Chain
	case redirect.Redirect:
		return fmt.Sprintf("REDIRECT --to-ports %d", a.Port)
	case redirect.TProxy:
		anyAddress := netip.IPv4Unspecified()
		if f == redirect.IPv6 {
			anyAddress = netip.IPv6Unspecified()
		}
		return fmt.Sprintf("TPROXY --on-port %d --on-ip %s --tproxy-mark 0x%x/%s", a.Port,
			anyAddress, a.Mark, everyBit)
	case redirect.SetMark:
		return fmt.Sprintf("MARK --set-xmark 0x%x/%s", a.Mark, everyBit)
	case redirect.SaveMark:
		return fmt.Sprintf("CONNMARK --save-mark --nfmask %s --ctmask %s", everyBit, everyBit)
	case redirect.RestoreMark:
		return fmt.Sprintf("CONNMARK --restore-mark --nfmask %s --ctmask %s", everyBit, everyBit)
	case redirect.SetZone:
		return fmt.Sprintf("CT --zone %d", a.Zone)
	}
	return fmt.Sprintf("unknown verb %d", a.Verb)
}

func negated(not bool) string {
	if not {
		return "! "
	}
	return ""
}
