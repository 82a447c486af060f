package main

import (
	"context"
	"errors"
	"net/netip"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftrace"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/trace"
)

// nodeNamespaces are where the other ends of pods' interfaces are, beside this program's own.
var nodeNamespaces = []string{"/proc/1/ns/net"}

// live sends the packet of a played leg in the pod, and plays it again as it really was.
func (s *spot) live(ctx context.Context, t talkFlags, asked namedTalk,
	played trace.Leg) (talk, error) {
	found, err := s.send(ctx, asked, played)
	hopeless := errors.Is(err, nftrace.ErrLegacy) || errors.Is(err, nftrace.ErrOldKernel) ||
		errors.Is(err, nftrace.ErrNoNFTables) || ctx.Err() != nil
	if err != nil && t.all && !hopeless { // the others may be possible
		pod := s.subject.tracePod()
		shown := newTalk(asked, trace.FollowPacket(pod, played.Sender, played.Packet))
		shown.Kernel = &kernelWay{Unknown: err.Error()}
		return shown, nil
	}
	return found, err
}

// send sends one packet, and tells how the kernel took it.
func (s *spot) send(ctx context.Context, asked namedTalk, played trace.Leg) (talk, error) {
	request := nftrace.Request{Packet: played.Packet, Nodes: nodeNamespaces,
		Rules: redirect.Compile(s.subject.has())}
	if !asked.From.Peer {
		request.Packet.Source = netip.AddrPort{} // as the kernel chooses
	}
	way, err := nftrace.Send(ctx, s.place.NS, request)
	if err != nil {
		return talk{}, err
	}
	return s.beside(asked, way, played.Packet.Owner), nil
}

// wait follows packets of others.
func (s *spot) wait(ctx context.Context, asked namedTalk, found func(talk) error) error {
	legs, err := trace.Follow(s.subject.tracePod(), asked.Talk)
	if err != nil {
		return &usageError{err}
	}
	first := legs[0].Packet
	f := nftrace.Filter{Protocol: first.Protocol, To: first.Destination, In: first.In,
		Rules: redirect.Compile(s.subject.has())}
	if o := first.Owner; o != nil {
		f.Of = []nftrace.Owner{{UID: &o.UID, GID: &o.GID}}
	}
	return nftrace.Follow(ctx, s.place.NS, f, func(w nftrace.Way) error {
		return found(s.beside(asked, w, first.Owner))
	})
}

// beside plays the packet as it was, and compares.
func (s *spot) beside(asked namedTalk, way nftrace.Way, owner *packet.Owner) talk {
	p := way.Packet()
	p.Owner = owner
	legs := trace.FollowPacket(s.subject.tracePod(), asked.From, p)
	shown := newTalk(asked, legs)
	shown.Kernel = &kernelWay{Way: way, Comparison: way.Compare(legs[0].Fate)}
	return shown
}
