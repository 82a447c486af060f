// Package validate tells whether the traffic of the pod that it runs in is redirected. It needs no
// right: it listens on the proxy's inbound port, as the proxy's user, and calls the pod itself. The
// rules bring such a call to the inbound port, whatever else they capture.
//
//	err := validate.Run(ctx, validate.Options{Inbound: 15006, Out: os.Stdout})
//	if errors.Is(err, validate.ErrNotRedirected) { // the pod must not start
//
// Be aware: it sees whether rules are there, not whether they are the right ones for all of the
// pod's traffic; sidecarctl verify does. It wants the inbound port for itself, so it runs before
// the proxy.
package validate

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// Call is a connection that has to arrive at the inbound port.
type Call struct {
	From netip.Addr // an address of lo
	// To is where the connection is meant to go. Where the pod does not have the address, its own
	// one of that family calls itself: 0.0.0.0 and :: always stand for it.
	To netip.AddrPort
}

func (c Call) String() string { return c.From.String() + ">" + c.To.String() }

// Options say what is tried.
type Options struct {
	Inbound uint16 // the port that the proxy would listen on
	Calls   []Call // none: 127.0.0.6 and ::6, at a port that nobody has
	// Out gets one line that says why the pod may start; nil: nobody does.
	Out io.Writer
}

// ErrNotRedirected is in an error that says that a call went elsewhere.
var ErrNotRedirected = errors.New("this pod is not redirected")

// usualPort is one that no proxy and no app of a mesh listens on.
const usualPort = 15002

// usualCalls are those that most policies redirect.
func usualCalls() []Call {
	return []Call{
		{netip.AddrFrom4([4]byte{127, 0, 0, 1}),
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 6}), usualPort)},
		{netip.IPv6Loopback(),
			netip.AddrPortFrom(netip.AddrFrom16([16]byte{15: 6}), usualPort)},
	}
}

// ParseCalls reads calls as Call.String writes them, such as "::1>[::6]:15002".
func ParseCalls(words []string) ([]Call, error) {
	var calls []Call
	for _, word := range words {
		from, to, _ := strings.Cut(word, ">")
		source, err := netip.ParseAddr(from)
		target, toErr := netip.ParseAddrPort(to)
		if err := errors.Join(err, toErr); err != nil {
			return nil, fmt.Errorf("call %q: want an address and an address with a port, such as "+
				"127.0.0.1>127.0.0.6:%d", word, usualPort)
		}
		calls = append(calls, Call{source, target})
	}
	return calls, nil
}

// check reports what cannot be tried, or what would arrive without any rule.
func (o Options) check() error {
	if o.Inbound == 0 {
		return errors.New("inbound port 0: want that on which the proxy listens, from 1 to 65535")
	}
	for _, c := range o.Calls {
		from, to := c.From, c.To.Addr()
		switch {
		case !from.IsLoopback():
			return fmt.Errorf("call %q: want it from 127.0.0.1 or ::1", c)
		case to.Is4() != from.Is4() || to.Is4In6() || from.Is4In6() || to.Zone()+from.Zone() != "":
			return fmt.Errorf("call %q: want two addresses of one family", c)
		case c.To.Port() == 0 || c.To.Port() == o.Inbound:
			return fmt.Errorf("call %q: want a port from 1 to 65535 other than the inbound port "+
				"%d, which is reached without redirection too", c, o.Inbound)
		}
	}
	return nil
}
