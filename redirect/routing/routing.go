// Package routing writes the part of a ruleset that is not rules: the addresses on lo and the routing policy that brings
// marked packets to a local socket. It works in the network namespace of the calling thread.
//
// Be aware: a namespace without IPv6 takes IPv6 rules of the routing policy and refuses addresses and routes. That is no
// error: what cannot be reached needs no redirection.
package routing

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Apply raises lo and adds what the ruleset asks for. It returns a function that takes back what it added, for a caller
// that fails later; on an error it has done so itself.
func Apply(rs redirect.Ruleset) (undo func(), err error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil { // the kernel refuses local routes through a link that is down
		return nil, fmt.Errorf("raise lo: %w", err)
	}
	var undos []func()
	undo = func() {
		for _, f := range slices.Backward(undos) {
			f()
		}
	}
	steps, err := steps(rs, lo)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		err := s.add()
		switch {
		case err == nil:
			undos = append(undos, func() { _ = s.remove() })
		case errors.Is(err, unix.EEXIST), s.family == redirect.IPv6 && noIPv6(err):
		default:
			undo()
			return nil, fmt.Errorf("%s: %w", s.command, err)
		}
	}
	return undo, nil
}

// Remove takes away what Apply adds; what is not there is not missed.
func Remove(rs redirect.Ruleset) error {
	steps, err := steps(rs, nil)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range slices.Backward(steps) {
		if present, err := s.present(); err != nil {
			errs = append(errs, err)
		} else if present {
			if err := s.remove(); err != nil && !gone(err) {
				errs = append(errs, fmt.Errorf("undo %s: %w", s.command, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Verify names what is missing.
func Verify(rs redirect.Ruleset) ([]redirect.Problem, error) {
	steps, err := steps(rs, nil)
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	var problems []redirect.Problem
	for _, s := range steps {
		present, err := s.present()
		if err != nil {
			return nil, err
		}
		if !present {
			problems = append(problems, redirect.Problem{Where: s.where, What: "missing: " + s.command})
		}
	}
	return problems, nil
}

// Render returns the commands of iproute2 that do the same.
func Render(rs redirect.Ruleset) []string {
	var commands []string
	for _, a := range rs.Addresses {
		commands = append(commands, addressCommand(a))
	}
	for _, r := range rs.Routes {
		for _, f := range redirect.Families {
			commands = append(commands, routeCommand(r, f), ruleCommand(r, f))
		}
	}
	return commands
}

// step is one address, route or rule.
type step struct {
	command string // of iproute2, for people
	where   string
	family  redirect.Family
	add     func() error
	remove  func() error
	present func() (bool, error)
}

// steps lists what the namespace should have, in the order of adding. Where lo has no IPv6, nothing of it is expected.
func steps(rs redirect.Ruleset, lo netlink.Link) ([]step, error) {
	if len(rs.Addresses) == 0 && len(rs.Routes) == 0 {
		return nil, nil
	}
	if lo == nil {
		var err error
		if lo, err = netlink.LinkByName("lo"); err != nil {
			return nil, fmt.Errorf("find lo: %w", err)
		}
	}
	families, err := familiesOf(lo)
	if err != nil {
		return nil, err
	}
	var steps []step
	for _, a := range rs.Addresses {
		if slices.Contains(families, redirect.FamilyOf(a.Addr())) {
			steps = append(steps, addressStep(a, lo))
		}
	}
	for _, r := range rs.Routes {
		for _, f := range families {
			steps = append(steps, routeStep(r, f, lo), ruleStep(r, f))
		}
	}
	return steps, nil
}

// familiesOf looks for ::1, which the kernel gives to lo whenever it does IPv6 there.
func familiesOf(lo netlink.Link) ([]redirect.Family, error) {
	addrs, err := netlink.AddrList(lo, netlink.FAMILY_V6)
	if err != nil && !noIPv6(err) {
		return nil, fmt.Errorf("list addresses of lo: %w", err)
	}
	if len(addrs) == 0 {
		return []redirect.Family{redirect.IPv4}, nil
	}
	return redirect.Families, nil
}

func addressCommand(p netip.Prefix) string { return fmt.Sprintf("ip address add %s dev lo", p) }

func addressStep(p netip.Prefix, lo netlink.Link) step {
	addr := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
	return step{
		command: addressCommand(p), where: "lo", family: redirect.FamilyOf(p.Addr()),
		add:    func() error { return netlink.AddrAdd(lo, addr) },
		remove: func() error { return netlink.AddrDel(lo, addr) },
		present: func() (bool, error) {
			addrs, err := netlink.AddrList(lo, netlinkFamily(redirect.FamilyOf(p.Addr())))
			return slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IPNet.String() == p.String() }), err
		},
	}
}

func routeCommand(r redirect.PolicyRoute, f redirect.Family) string {
	return fmt.Sprintf("ip %sroute add local default dev lo table %d", option(f), r.Table)
}

func routeStep(r redirect.PolicyRoute, f redirect.Family, lo netlink.Link) step {
	route := &netlink.Route{
		LinkIndex: lo.Attrs().Index, Table: int(r.Table), Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Dst: anywhere(f),
	}
	return step{
		command: routeCommand(r, f), where: fmt.Sprintf("routing table %d", r.Table), family: f,
		add:    func() error { return netlink.RouteAdd(route) },
		remove: func() error { return netlink.RouteDel(route) },
		present: func() (bool, error) {
			want := &netlink.Route{Table: int(r.Table), Type: unix.RTN_LOCAL, LinkIndex: lo.Attrs().Index}
			routes, err := netlink.RouteListFiltered(netlinkFamily(f), want, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE|netlink.RT_FILTER_OIF)
			return slices.ContainsFunc(routes, func(have netlink.Route) bool { return isDefault(have.Dst) }), err
		},
	}
}

func ruleCommand(r redirect.PolicyRoute, f redirect.Family) string {
	return fmt.Sprintf("ip %srule add fwmark 0x%x lookup %d", option(f), r.Mark, r.Table)
}

// ruleStep looks before it adds: the kernel accepts the same rule any number of times.
func ruleStep(r redirect.PolicyRoute, f redirect.Family) step {
	rule := netlink.NewRule()
	rule.Family, rule.Mark, rule.Table = netlinkFamily(f), r.Mark, int(r.Table)
	present := func() (bool, error) {
		rules, err := netlink.RuleListFiltered(netlinkFamily(f), rule, netlink.RT_FILTER_MARK|netlink.RT_FILTER_TABLE)
		return len(rules) > 0, err
	}
	return step{
		command: ruleCommand(r, f), where: "routing policy", family: f, present: present,
		add: func() error {
			if already, err := present(); err != nil || already {
				return errors.Join(err, existsIf(already))
			}
			return netlink.RuleAdd(rule)
		},
		remove: func() error { return netlink.RuleDel(rule) },
	}
}

func existsIf(already bool) error {
	if already {
		return unix.EEXIST
	}
	return nil
}

// noIPv6 tells the errors of a namespace or kernel without IPv6 from real ones.
func noIPv6(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

func gone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EADDRNOTAVAIL)
}

func netlinkFamily(f redirect.Family) int {
	if f == redirect.IPv6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

func option(f redirect.Family) string {
	if f == redirect.IPv6 {
		return "-6 "
	}
	return ""
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func anywhere(f redirect.Family) *net.IPNet {
	if f == redirect.IPv6 {
		return ipNet(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	return ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
}

func isDefault(n *net.IPNet) bool {
	if n == nil {
		return true
	}
	ones, _ := n.Mask.Size()
	return ones == 0
}

// Probe names what this kernel lacks.
func Probe() []redirect.Lack {
	if _, err := netlink.RuleList(netlink.FAMILY_V4); err != nil {
		return []redirect.Lack{{Feature: "policy routing, which TPROXY needs", Module: "none: CONFIG_IP_MULTIPLE_TABLES", Cause: err}}
	}
	return nil
}
