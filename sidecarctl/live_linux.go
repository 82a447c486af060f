package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftrace"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
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
		shown := s.subject.newTalk(asked, trace.FollowPacket(pod, played.Sender, played.Packet))
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
	to := asked.To.Addr()
	zoned := to.Is6() && to.IsLinkLocalUnicast() // which may be the pod's own
	switch {
	case err != nil:
		return talk{}, err
	case asked.Interface != "" && way.Out != "" && way.Out != asked.Interface && !zoned:
		return talk{}, fmt.Errorf("the pod's routes lead to %s through %s, not through %s: leave "+
			"out --interface, or --live", to, way.Out, asked.Interface)
	}
	return s.beside(asked, way, played.Packet.Owner), nil
}

// wait follows packets of others.
func (s *spot) wait(ctx context.Context, t talkFlags, found func(talk) error) error {
	if err := s.readAddresses(); err != nil {
		return err
	}
	all, err := s.subject.talks(t)
	if err != nil {
		return err
	}
	asked := all[0]
	legs, err := trace.Follow(s.subject.tracePod(), asked.Talk)
	if err != nil {
		return &usageError{err}
	}
	first := legs[0].Packet
	f := nftrace.Filter{Protocol: first.Protocol, To: first.Destination, In: first.In,
		Rules: redirect.Compile(s.subject.has())}
	if !asked.from.Peer {
		f.Out = asked.Interface
		f.Of, f.Except = s.subject.owners(asked.from)
	}
	return nftrace.Follow(ctx, s.place.NS, f, func(w nftrace.Way) error {
		return found(s.beside(asked, w, first.Owner))
	})
}

// owners are those by whom the packets of a sender are known: the ids that are known. One of whom
// nobody knows the uid is whoever is not the proxy.
func (s subject) owners(from sender) (of, except []nftrace.Owner) {
	var uids, gids []nftrace.Owner // the proxy's
	for _, id := range s.has().Proxy.UIDs {
		uids = append(uids, nftrace.Owner{UID: &id})
	}
	for _, id := range s.has().Proxy.GIDs {
		gids = append(gids, nftrace.Owner{GID: &id})
	}
	switch proxy := s.proxy(); {
	case !from.uid:
		return nil, slices.Concat(uids, gids)
	case from.gid:
		return []nftrace.Owner{{UID: &from.UID, GID: &from.GID}}, nil
	case proxy.gid && proxy.UID == from.UID: // as root: the proxy is known by its group alone
		return []nftrace.Owner{{UID: &from.UID}}, gids
	}
	return []nftrace.Owner{{UID: &from.UID}}, nil
}

// readAddresses takes the addresses of the namespace for the pod's, if nobody says any.
func (s *spot) readAddresses() error {
	if len(s.subject.pod.IPs) > 0 {
		return nil
	}
	err := s.place.NS.DoOn(podns.Apart, func() (err error) {
		s.subject.pod.IPs, err = routing.Reachable()
		return err
	})
	if err == nil && len(s.subject.pod.IPs) == 0 {
		err = fmt.Errorf("%s: its network namespace has no address yet, but on lo: name the one "+
			"that it is to have by --pod-ip", s.subject.pod.Name)
	}
	return err
}

// beside plays the packet as it was, and compares.
func (s *spot) beside(asked namedTalk, way nftrace.Way, owner *packet.Owner) talk {
	p := way.Packet()
	p.Owner = owner
	legs := trace.FollowPacket(s.subject.tracePod(), asked.From, p)
	shown := s.subject.newTalk(asked, legs)
	comparison := way.Compare(legs[0].Fate)
	shown.Kernel = &kernelWay{Way: &way, Comparison: &comparison}
	return shown
}
