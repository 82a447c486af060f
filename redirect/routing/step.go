// Package routing writes the part of a ruleset that is not rules: the addresses on lo and the
// routing policy that brings marked packets to a local socket. It works in the network namespace of
// the calling thread.
//
// Be aware: a namespace without IPv6 takes IPv6 rules of the routing policy and refuses addresses
// and routes. That is no error: what cannot be reached needs no redirection.
package routing

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// step is one address, route or rule.
type step struct {
	command string // of iproute2, for people
	where   string
	family  redirect.Family

	what    object
	address netip.Prefix         // of an address
	policy  redirect.PolicyRoute // of the others
}

// object is what a step adds.
type object int

const (
	anAddress object = iota
	aRoute
	aRule
)

// steps lists what the ruleset asks for, in the order of adding.
func steps(rs redirect.Ruleset, families []redirect.Family) []step {
	var steps []step
	for _, a := range rs.Addresses {
		if f := redirect.FamilyOf(a.Addr()); slices.Contains(families, f) {
			steps = append(steps, step{what: anAddress, address: a, family: f, where: "lo",
				command: fmt.Sprintf("ip address add %s dev lo", a)})
		}
	}
	for _, r := range rs.Routes {
		for _, f := range families {
			steps = append(steps,
				step{what: aRoute, policy: r, family: f,
					where: fmt.Sprintf("routing table %d", r.Table),
					command: fmt.Sprintf("ip %sroute add local default dev lo table %d", option(f),
						r.Table)},
				step{what: aRule, policy: r, family: f, where: "routing policy",
					command: fmt.Sprintf("ip %srule add fwmark 0x%x lookup %d", option(f), r.Mark,
						r.Table)})
		}
	}
	return steps
}

// Render returns the commands of iproute2 that do the same.
func Render(rs redirect.Ruleset) []string {
	var commands []string
	for _, one := range steps(rs, redirect.Families) {
		commands = append(commands, one.command)
	}
	return commands
}

func option(f redirect.Family) string {
	if f == redirect.IPv6 {
		return "-6 "
	}
	return ""
}
