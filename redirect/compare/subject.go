package compare

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

var lo = packet.Names("lo")

// subject says which packets a class has, and of which family if no address says so. What goes
// without saying is left out: that a connection begins, that a packet has no mark, and that what
// leaves the pod is not for loopback.
func (w Words) subject(c packet.Class, family string) string {
	of := fieldWords{class: c, whole: whole(c)}
	inside := c.Of(packet.Interface).Equal(lo)
	from, to := of.list(packet.Source), of.destination(inside)
	port := of.list(packet.DestinationPort)
	words := []string{cmp.Or(of.list(packet.Protocol), "everything")}
	add := func(said bool, format, value string) {
		if said && value != "" {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add(from+to == "", "over %s", family)
	add(true, "%s", of.states())
	add(!c.Leaves, "%s", "that enters")
	add(c.Leaves, "from %s", w.sender(of))
	add(true, "from %s", from)
	add(true, "from port %s", of.list(packet.SourcePort))
	add(true, "to port %s", port)
	add(inside && port != "", "of %s", "the pod itself")
	add(inside && port == "", "to %s", "the pod itself")
	add(inside, "by %s", to)
	add(!inside, "to %s", to)
	nic := of.list(packet.Interface)
	if c.Leaves && of.whole.Of(packet.Interface).Without(lo).Equal(c.Of(packet.Interface)) {
		words, nic = append(words, "out of the pod"), ""
	}
	add(!inside, "through %s", nic)
	for _, mark := range []packet.Field{packet.PacketMark, packet.ConnMark} {
		if in, _ := packet.Range(0, 0).Meets(c.Of(mark)); !in {
			format := map[packet.Field]string{packet.PacketMark: "with mark %s",
				packet.ConnMark: "in a connection with mark %s"}[mark]
			add(true, format, of.list(mark))
		}
	}
	text := strings.Join(words, " ")
	return strings.ToUpper(text[:1]) + text[1:]
}

// sender says who sent the packets.
func (w Words) sender(of fieldWords) string {
	if of.class.Of(packet.Socket).Equal(packet.Range(0, 0)) {
		return "no socket"
	}
	var some, none []string
	proxies := 0 // of users and groups, how often nobody of the proxy is meant
	for _, f := range []packet.Field{packet.UID, packet.GID} {
		name, proxy := "uid ", packet.Numbers(w.Proxy.UIDs...)
		if f == packet.GID {
			name, proxy = "gid ", packet.Numbers(w.Proxy.GIDs...)
		}
		have := of.class.Of(f)
		lacks := of.whole.Of(f).Without(have)
		ours, others := have.Meets(proxy)
		switch {
		case lacks.Empty():
		case ours && !others:
			some = append(some, fmt.Sprintf("the proxy (%s%s)", name, of.enumerate(f, have)))
		case length(have) <= length(lacks):
			some = append(some, name+of.enumerate(f, have))
		default:
			if !ours {
				proxies++
				lacks = lacks.Without(proxy)
			}
			if !lacks.Empty() {
				none = append(none, name+of.enumerate(f, lacks))
			}
		}
	}
	switch {
	case len(some) > 0 && len(none) > 0:
		return strings.Join(some, ", ") + ", but not " + strings.Join(none, ", ")
	case len(some) > 0:
		return strings.Join(some, ", ")
	}
	if proxies > 0 {
		none = append([]string{"the proxy"}, none...)
	}
	if len(none) > 0 {
		return "anybody but " + strings.Join(none, ", ")
	}
	return ""
}

// destination leaves loopback out of account for what leaves the pod, which nothing with such an
// address does; within the pod it says whether the pod was called by its own address.
func (w fieldWords) destination(inside bool) string {
	loopback := packet.Networks(localhost[w.class.Family][0])
	have, all := w.class.Of(packet.Destination), w.whole.Of(packet.Destination)
	for _, p := range localhost[w.class.Family] {
		if inside && have.Equal(all.Without(packet.Networks(p))) {
			return "its own address"
		}
	}
	if _, other := all.Without(loopback).Meets(have); !inside && !other {
		return ""
	}
	return w.list(packet.Destination)
}

// states says at which moment of a connection the packets are, if none of them begins one.
func (w fieldWords) states() string {
	have := w.class.Of(packet.State)
	if begins, _ := packet.Numbers(redirect.New).Meets(have); begins {
		return ""
	}
	for text, states := range map[string]packet.Set{
		"in a known connection": packet.Numbers(redirect.Established),
		"out of any connection": packet.Numbers(redirect.Invalid),
	} {
		if have.Equal(states) {
			return text
		}
	}
	var state redirect.State
	for _, s := range redirect.States {
		if in, _ := packet.Numbers(s).Meets(have); in {
			state |= s
		}
	}
	return "in state " + state.String()
}
