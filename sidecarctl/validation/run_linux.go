package validation

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
)

// Run tries all paths in the calling thread's namespace, to which the caller has locked its
// goroutine unless it is the namespace of the whole process. An error says why none could be tried.
func Run(ctx context.Context, policy redirect.Policy, o Options) (Report, error) {
	s := site{owner: packet.Owner{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())},
		route: findRoute}
	r := Report{UID: s.owner.UID, GID: s.owner.GID}
	var err error
	if s.addrs, err = ownAddresses(); err != nil {
		return r, fmt.Errorf("find the pod's addresses: %w", err)
	}
	if len(s.addrs) == 0 {
		return r, fmt.Errorf("the pod has no address but those of lo: %w", ErrNothing)
	}
	pending, untried := plan(policy, s, o)
	r.Untried = untried
	var tried []attempt
	places := placesOf(pending)
	for until := time.Now().Add(o.Timeout); len(pending) > 0; {
		timeout := min(time.Until(until), max(o.Timeout/rounds, leastRound))
		ended, err := try(ctx, pending, places, timeout)
		if err != nil {
			return r, err
		}
		pending = nil
		for _, a := range ended {
			settled := a.untried != "" || a.ok() || !time.Now().Before(until)
			switch {
			case !settled:
				pending = append(pending, a.attempt)
			case r.add(a):
				tried = append(tried, a.attempt)
			}
		}
	}
	r.Untested = untested(redirect.Compile(policy), tried)
	return r, nil
}

// What goes wrong is tried again until the time is up: an IPv6 address is there a moment after it
// was added.
const (
	rounds     = 10
	leastRound = 100 * time.Millisecond
)

// add reports an attempt, and whether it could be tried.
func (r *Report) add(a *trying) bool {
	path := a.Path
	switch {
	case a.untried != "":
		path.Seen = a.untried
		r.Untried = append(r.Untried, path)
		return false
	case a.ok():
		r.Passed = append(r.Passed, path)
	default:
		path.Seen = a.words()
		r.Wrong = append(r.Wrong, path)
	}
	return true
}

// ownAddresses are those that others reach the pod by, the first of each family.
func ownAddresses() ([]netip.Addr, error) {
	var all []netip.Addr
	for _, f := range redirect.Families {
		have, err := routing.Addresses(f)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(have, func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() })
		if i >= 0 {
			all = append(all, have[i])
		}
	}
	return all, nil
}

// findRoute has the kernel choose, by a socket that sends nothing. The interface is the one that
// has the address.
func findRoute(to netip.Addr) (route, error) {
	fd, err := unix.Socket(family(to), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return route{}, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sockaddr(netip.AddrPortFrom(to, portHTTP))); err != nil {
		return route{}, err
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return route{}, err
	}
	r := route{source: addrPort(local).Addr()}
	links, err := net.Interfaces()
	if err != nil {
		return route{}, err
	}
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil {
			return route{}, err
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == r.source {
				r.out = cmp.Or(r.out, link.Name)
			}
		}
	}
	return r, nil
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrPort(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}
