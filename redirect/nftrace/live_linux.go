package nftrace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kernelrules"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// sendTimeout is how long a packet may take that the kernel drops without a word. It is less than
// the second after which TCP repeats it.
const sendTimeout = 900 * time.Millisecond

// Send sends a packet in a namespace and returns the way that the kernel took it. It is the pod's,
// or with Packet.In one that a peer of the pod sends. Nobody gets it.
func Send(ctx context.Context, n *podns.Namespace, r Request) (Way, error) {
	if (r.Packet.Owner == nil) == (r.Packet.In == "") {
		return Way{}, errors.New("want a packet with an owner, or one that enters")
	}
	nodes := openNodes(r.Nodes)
	defer func() {
		for _, f := range nodes {
			_ = f.Close()
		}
	}()
	var way Way
	err := n.Do(func() error {
		var err error
		way, err = r.sendHere(ctx, nodes)
		return err
	})
	return way, err
}

// sendHere sends in the namespace of the calling thread.
func (r Request) sendHere(ctx context.Context, nodes []*os.File) (Way, error) {
	rules, err := readRules(r.Rules)
	if err != nil {
		return Way{}, err
	}
	s, err := r.prepare(nodes)
	if err != nil {
		return Way{}, err
	}
	defer s.close()
	name, err := linkNames()
	if err != nil {
		return Way{}, err
	}
	heard, err := listen(reportsBuffer)
	if err != nil {
		return Way{}, err
	}
	defer heard.close()
	table := newTable(fmt.Sprint(s.tuple.source.Port()), rulesFor(s.tuple, s.in))
	tracing, err := table.arm()
	if err != nil {
		return Way{}, err
	}
	defer tracing.Close()
	// What goes over lo is known to conntrack from then on.
	defer func() { _ = s.tuple.forget(zones(r.Rules)) }()
	if err := s.send(); err != nil {
		return Way{}, err
	}
	return s.follow(ctx, heard, newTracker(table.name, rules, name))
}

// attempts is how often another port is chosen where conntrack knows the first one: what was
// decided about that connection would be done with the packet as well.
const attempts = 8

func (r Request) prepare(nodes []*os.File) (*sender, error) {
	for range attempts {
		var s *sender
		var err error
		if r.Packet.Owner != nil {
			s, err = fromPod(r)
		} else {
			s, err = fromPeer(r, nodes)
		}
		if err != nil {
			return nil, err
		}
		known, err := s.tuple.tracked(zones(r.Rules))
		if err == nil && !known {
			return s, nil
		}
		s.close()
		if err != nil {
			return nil, fmt.Errorf("look for a port that is free: %w", err)
		}
	}
	return nil, errors.New("conntrack has connections of every port that was tried: try again")
}

// follow waits for the end of the packet.
func (s *sender) follow(ctx context.Context, heard *reports, t *tracker) (Way, error) {
	within, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	from := s.tuple.origin()
	var way *Way
	err := heard.each(within, func(e event) (bool, error) {
		ended := t.add(e)
		if ended != nil && ended.protocol == from.protocol && ended.Source == from.source {
			way = ended
		}
		return way != nil, nil
	})
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return Way{}, err
	}
	if way == nil {
		var begun bool
		if way, begun = t.unfinished(from); !begun {
			return Way{}, errors.New("the kernel reported nothing of the packet: look at the " +
				"pod's interfaces, whether they are up, and at its routes")
		}
	}
	way.Lost = heard.lost
	return *way, nil
}

// readRules reads the rules of the namespace of the calling thread, by which reports are
// understood.
func readRules(rs redirect.Ruleset) (known, error) {
	tables, err := kernelrules.Read()
	if err != nil {
		return nil, err
	}
	rules := recognize(tables, rs)
	for _, r := range rules {
		if r.Ours {
			return rules, nil
		}
	}
	for _, f := range redirect.Families {
		legacy, err := traces.LegacyTables(f)
		if err != nil {
			return nil, err
		}
		if len(legacy) > 0 {
			return nil, ErrLegacy
		}
	}
	return rules, nil
}

// Follow reports the ways of packets that others send and that a filter is about, until ctx ends or
// found returns an error, which it returns. It drops none, and of what is sent again it reports the
// first.
func Follow(ctx context.Context, n *podns.Namespace, f Filter, found func(Way) error) error {
	var heard *reports
	var t *tracker
	closing := func() {}
	err := n.Do(func() error {
		rules, err := readRules(f.Rules)
		if err != nil {
			return err
		}
		name, err := linkNames()
		if err != nil {
			return err
		}
		if heard, err = listen(reportsBuffer); err != nil {
			return err
		}
		table := newTable(fmt.Sprintf("wait-%08x", rand.Uint32()), f.rules())
		tracing, err := table.arm()
		if err != nil {
			heard.close()
			return err
		}
		t, closing = newTracker(table.name, rules, name), func() {
			tracing.Close()
			heard.close()
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer closing()
	t.reread = func() (rules known, err error) {
		err = n.Do(func() error {
			rules, err = readRules(f.Rules)
			return err
		})
		return rules, err
	}
	return heard.each(ctx, func(e event) (bool, error) {
		ended := t.add(e)
		if ended == nil || ended.known {
			return false, nil
		}
		ended.Lost = heard.lost + t.forgotten
		return false, found(*ended)
	})
}
