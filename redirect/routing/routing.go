//go:build linux

package routing

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// Apply raises lo and adds what the ruleset asks for. It returns a function that takes back what it
// added, for a caller that fails later; on an error it has done so itself.
func Apply(rs redirect.Ruleset) (undo func(), err error) {
	s, err := wire.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	// A link that is down has no addresses to tell the families by, and the kernel refuses local
	// routes through it.
	raised, err := s.Exchange([]wire.Message{raiseLo})
	if err != nil {
		return nil, err
	}
	if err := raised[0].Err; err != nil {
		return nil, fmt.Errorf("raise lo: %w", err)
	}
	steps, err := missing(s, rs)
	if err != nil {
		return nil, err
	}
	return add(s, steps)
}

func add(s *wire.Socket, steps []step) (undo func(), err error) {
	var messages []wire.Message
	for _, one := range steps {
		messages = append(messages, one.add())
	}
	answers, err := s.Exchange(messages)
	if err != nil {
		return nil, err
	}
	var added []step
	for i, a := range answers {
		one := steps[i]
		switch {
		case a.Err == nil:
			added = append(added, one)
		case errors.Is(a.Err, unix.EEXIST), one.family == redirect.IPv6 && noIPv6(a.Err):
		default:
			// The first error counts: others often follow from it.
			err = cmp.Or(err, fmt.Errorf("%s: %w", one.command, a.Err))
		}
	}
	undo = func() { _ = remove(added) } // whoever undoes reports an error already
	if err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

// missing lists what to add. What has only addresses is not read first: the kernel says what it has
// and what it cannot. Rules of the routing policy are looked for, since it takes the same one any
// number of times.
func missing(s *wire.Socket, rs redirect.Ruleset) ([]step, error) {
	if len(rs.Routes) == 0 {
		return steps(rs, redirect.Families), nil
	}
	wanted, err := expected(s, rs)
	if err != nil {
		return nil, err
	}
	var missing []step
	for _, one := range wanted {
		there, err := one.present(s)
		if err != nil {
			return nil, err
		}
		if !there {
			missing = append(missing, one)
		}
	}
	return missing, nil
}

// Remove takes away what Apply adds; what is not there is not missed.
func Remove(rs redirect.Ruleset) error { return remove(steps(rs, redirect.Families)) }

func remove(steps []step) error {
	if len(steps) == 0 {
		return nil
	}
	s, err := wire.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer s.Close()
	var messages []wire.Message
	for _, one := range slices.Backward(steps) {
		messages = append(messages, one.remove())
	}
	answers, err := s.Exchange(messages)
	if err != nil {
		return err
	}
	var errs []error
	for i, a := range answers {
		if a.Err != nil && !gone(a.Err) {
			errs = append(errs, fmt.Errorf("undo %s: %w", steps[len(steps)-1-i].command, a.Err))
		}
	}
	return errors.Join(errs...)
}

// Verify names what is missing.
func Verify(rs redirect.Ruleset) ([]redirect.Problem, error) {
	if len(rs.Addresses) == 0 && len(rs.Routes) == 0 {
		return nil, nil
	}
	s, err := wire.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	steps, err := expected(s, rs)
	if err != nil {
		return nil, err
	}
	var problems []redirect.Problem
	for _, one := range steps {
		there, err := one.present(s)
		if err != nil {
			return nil, err
		}
		if !there {
			problems = append(problems,
				redirect.Problem{Where: one.where, What: "missing: " + one.command})
		}
	}
	return problems, nil
}

// expected lists what the namespace should have. Where lo has no IPv6, nothing of it is.
func expected(s *wire.Socket, rs redirect.Ruleset) ([]step, error) {
	there, err := ipv6(s)
	if err != nil {
		return nil, err
	}
	if there {
		return steps(rs, redirect.Families), nil
	}
	return steps(rs, []redirect.Family{redirect.IPv4}), nil
}

// ipv6 looks for an IPv6 address on lo: the kernel gives it ::1 whenever it does IPv6 there.
func ipv6(s *wire.Socket) (bool, error) {
	addresses, err := s.Dump(addressesOf(redirect.IPv6))
	if err != nil {
		if noIPv6(err) {
			return false, nil
		}
		return false, fmt.Errorf("list addresses of lo: %w", err)
	}
	return slices.ContainsFunc(addresses, onLo), nil
}

// Reachable lists the addresses of the namespace by which others can reach it, IPv4 first: those of
// lo and link-local ones left out.
func Reachable() ([]netip.Addr, error) {
	var all []netip.Addr
	for _, f := range redirect.Families {
		addrs, err := Addresses(f)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(addrs, netip.Addr.IsLinkLocalUnicast)...)
	}
	return all, nil
}

// Addresses lists the namespace's addresses of a family that are on other interfaces than lo.
func Addresses(f redirect.Family) ([]netip.Addr, error) {
	s, err := wire.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	objects, err := s.Dump(addressesOf(f))
	if err != nil {
		if f == redirect.IPv6 && noIPv6(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var all []netip.Addr
	for _, o := range objects {
		if a, ok := netip.AddrFromSlice(wire.Find(o.Attrs, unix.IFA_ADDRESS)); ok && !onLo(o) &&
			o.Header[0] == inet(f) {
			all = append(all, a)
		}
	}
	return all, nil
}

// Probe names what this kernel lacks.
func Probe() []redirect.Lack {
	s, err := wire.Dial(unix.NETLINK_ROUTE)
	if err == nil {
		defer s.Close()
		_, err = s.Dump(rulesOf(redirect.IPv4))
	}
	if err != nil {
		return []redirect.Lack{{Feature: "policy routing, which TPROXY needs",
			Module: "none: CONFIG_IP_MULTIPLE_TABLES", Cause: err}}
	}
	return nil
}

// noIPv6 tells the errors of a namespace or kernel without IPv6 from real ones.
func noIPv6(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAFNOSUPPORT) ||
		errors.Is(err, unix.EOPNOTSUPP)
}

// gone are the errors of what is not there to be removed.
func gone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) ||
		errors.Is(err, unix.EADDRNOTAVAIL) || noIPv6(err)
}
