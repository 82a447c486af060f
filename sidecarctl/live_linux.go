package main

import (
	"context"
	"errors"
	"net/netip"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftrace"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/trace"
)

// nodeNamespaces are where the other ends of pods' interfaces are, beside this program's own.
var nodeNamespaces = []string{"/proc/1/ns/net"}

// live sends the packet of a played leg in the pod, and plays it again as it really was.
func (s subject) live(ctx context.Context, t talkFlags, asked namedTalk,
	played trace.Leg) (talk, error) {
	n, err := open(t.netns)
	if err != nil {
		return talk{}, err
	}
	defer n.Close()
	found, err := s.liveIn(ctx, n, asked, played)
	hopeless := errors.Is(err, nftrace.ErrLegacy) || errors.Is(err, nftrace.ErrOldKernel) ||
		errors.Is(err, nftrace.ErrNoNFTables) || ctx.Err() != nil
	if err != nil && t.all && !hopeless { // the others may be possible
		shown := newTalk(asked, trace.FollowPacket(s.tracePod(), played.Sender, played.Packet))
		shown.Kernel = &kernelWay{Unknown: err.Error()}
		return shown, nil
	}
	return found, err
}

// liveIn does it in an open namespace.
func (s subject) liveIn(ctx context.Context, n *podns.Namespace, asked namedTalk,
	played trace.Leg) (talk, error) {
	request := nftrace.Request{Packet: played.Packet, Nodes: nodeNamespaces,
		Rules: redirect.Compile(s.decision.Policy)}
	if !asked.From.Peer {
		request.Packet.Source = netip.AddrPort{} // as the kernel chooses
		request.Device = asked.Interface
	}
	way, err := nftrace.Send(ctx, n, request)
	if err != nil {
		return talk{}, err
	}
	return s.beside(asked, way, played.Packet.Owner), nil
}

// wait follows packets of others.
func (s subject) wait(ctx context.Context, t talkFlags, asked namedTalk,
	found func(talk) error) error {
	n, err := open(t.netns)
	if err != nil {
		return err
	}
	defer n.Close()
	return s.waitIn(ctx, n, asked, found)
}

// waitIn does it in an open namespace.
func (s subject) waitIn(ctx context.Context, n *podns.Namespace, asked namedTalk,
	found func(talk) error) error {
	legs, err := trace.Follow(s.tracePod(), asked.Talk)
	if err != nil {
		return &usageError{err}
	}
	first := legs[0].Packet
	f := nftrace.Filter{Protocol: first.Protocol, To: first.Destination, In: first.In,
		Owner: first.Owner, Rules: redirect.Compile(s.decision.Policy)}
	return nftrace.Follow(ctx, n, f, func(w nftrace.Way) error {
		return found(s.beside(asked, w, first.Owner))
	})
}

// beside plays the packet as it was, and compares.
func (s subject) beside(asked namedTalk, way nftrace.Way, owner *packet.Owner) talk {
	p := way.Packet()
	p.Owner = owner
	legs := trace.FollowPacket(s.tracePod(), asked.From, p)
	shown := newTalk(asked, legs)
	shown.Kernel = &kernelWay{Way: way, Comparison: way.Compare(legs[0].Fate)}
	return shown
}

// open opens the namespace at a path.
func open(path string) (*podns.Namespace, error) {
	if path == "" {
		return nil, usagef("want --netns, the path of the pod's network namespace on this node")
	}
	host, err := podns.FindHost("/proc", "sidecarctl")
	if err != nil {
		return nil, err
	}
	return host.Open(path)
}
