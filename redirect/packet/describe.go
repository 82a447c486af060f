package packet

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

var lo = Names("lo")

// Describe says in a phrase which packets a class has, and whether an address in it shows their
// family. What goes without saying is left out: that a connection begins, that a packet has no
// mark and comes from none but one address, that what leaves the pod is not for loopback, and that
// it calls itself by an address of its own.
func Describe(c Class, proxy redirect.Identity) (phrase string, showsFamily bool) {
	of := fieldWords{class: c, whole: c.Whole()}
	inside := c.sets[Interface].Equal(lo)
	from, to := of.list(Source), of.destination(inside)
	if of.whole.sets[Source].Without(c.sets[Source]).Single() {
		from = ""
	}
	words := []string{cmp.Or(of.list(Protocol), "everything")}
	add := func(said bool, format, value string) {
		if said && value != "" {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add(true, "%s", of.states())
	add(!c.Leaves, "%s", "that enters")
	add(c.Leaves, "from %s", of.sender(proxy))
	add(true, "from %s", from)
	add(true, "from port %s", of.list(SourcePort))
	port := of.list(DestinationPort)
	add(true, "to port %s", port)
	add(inside && port != "", "of %s", "the pod itself")
	add(inside && port == "", "to %s", "the pod itself")
	add(inside, "by %s", to)
	add(!inside, "to %s", to)
	outside := c.Leaves && of.whole.sets[Interface].Without(lo).Equal(c.sets[Interface])
	add(outside, "%s", "out of the pod")
	add(!inside && !outside, "through %s", of.list(Interface))
	add(of.marked(PacketMark), "with mark %s", of.list(PacketMark))
	add(of.marked(ConnMark), "in a connection with mark %s", of.list(ConnMark))
	text := strings.Join(words, " ")
	return strings.ToUpper(text[:1]) + text[1:], strings.ContainsAny(from+to, ".:")
}

// marked reports whether none of the packets is without a mark.
func (w fieldWords) marked(f Field) bool {
	in, _ := Range(0, 0).Meets(w.class.sets[f])
	return !in
}

// sender says who sent the packets.
func (w fieldWords) sender(proxy redirect.Identity) string {
	if w.class.sets[Socket].Equal(Range(0, 0)) {
		return "no socket"
	}
	var some, none []string
	proxies := 0 // of users and groups, how often nobody of the proxy is meant
	for _, f := range []Field{UID, GID} {
		name, own := "uid ", Numbers(proxy.UIDs...)
		if f == GID {
			name, own = "gid ", Numbers(proxy.GIDs...)
		}
		have := w.class.sets[f]
		lacks := w.whole.sets[f].Without(have)
		ours, others := have.Meets(own)
		switch {
		case lacks.Empty():
		case ours && !others:
			some = append(some, fmt.Sprintf("the proxy (%s%s)", name, w.enumerate(f, have)))
		case length(have) <= length(lacks):
			some = append(some, name+w.enumerate(f, have))
		default:
			if !ours {
				proxies++
				lacks = lacks.Without(own)
			}
			if !lacks.Empty() {
				none = append(none, name+w.enumerate(f, lacks))
			}
		}
	}
	switch {
	case len(some) > 0 && len(none) > 0:
		return strings.Join(some, ", ") + ", but not " + strings.Join(none, " or ")
	case len(some) > 0:
		return strings.Join(some, ", ")
	}
	if proxies > 0 {
		none = append([]string{"the proxy"}, none...)
	}
	if len(none) > 0 {
		return "anybody but " + strings.Join(none, " or ")
	}
	return ""
}

// destination leaves loopback out of account for what leaves the pod, which nothing with such an
// address does, and says within the pod whether it was called by loopback.
func (w fieldWords) destination(inside bool) string {
	loopback := Networks(localhost[w.class.Family][0])
	have, all := w.class.Of(Destination), w.whole.Of(Destination)
	for _, p := range localhost[w.class.Family] {
		if inside && have.Equal(all.Without(Networks(p))) {
			return ""
		}
	}
	if _, other := all.Without(loopback).Meets(have); !inside && !other {
		return ""
	}
	return w.list(Destination)
}

// states says at which moment of a connection the packets are, if none of them begins one.
func (w fieldWords) states() string {
	have := w.class.Of(State)
	if begins, _ := Numbers(redirect.New).Meets(have); begins {
		return ""
	}
	switch {
	case have.Equal(Numbers(redirect.Invalid)):
		return "out of any connection"
	case have.Equal(Numbers(redirect.Established)),
		have.Equal(Numbers(redirect.Established, redirect.Related)):
		return "in a known connection"
	}
	var state redirect.State
	for _, s := range redirect.States {
		if in, _ := Numbers(s).Meets(have); in {
			state |= s
		}
	}
	return "in state " + state.String()
}
