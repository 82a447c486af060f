package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/redirect/trace"
)

const traceAbout = `Follows a connection through the rules that a pod gets, rule by rule with the reason of each,
and then the one that the proxy opens in its turn. It is played, not sent.

With --live the packet that begins it is sent as well, as that user of the pod or from the node's
end of the pod's interface, and the rules are shown through which the kernel really took it. It is
dropped behind them and reaches nobody. With --wait the packets are followed that others send.
Both read what the kernel reports about rules of nftables, among them those of iptables-nft.

It ends with 3 where the kernel does something else than was played, or if none of the packets of
--all could be sent; those that could not be sent count for nothing beside others that were.`

// talkFlags say who talks to whom.
type talkFlags struct {
	from, to  string
	udp       bool
	netdevice string
	all       bool
	live      bool
	wait      bool
	count     uint
}

// wrong says what is wrong with them together, and with a network namespace that is named.
func (t talkFlags) wrong(placed bool) error {
	switch {
	case placed && !t.live && !t.wait:
		return usagef("--netns and --pid say where a packet is sent: want --live or --wait, too")
	case t.all == (t.to != ""):
		return usagef("want --to, or --all for the usual connections")
	case t.live && t.wait:
		return usagef("--live and --wait: want one of them: the one sends a packet, the other " +
			"follows those that others send")
	case t.wait && t.all:
		return usagef("--wait follows one kind of packets: want --to, not --all")
	case t.count > 0 && !t.wait:
		return usagef("--count says how many packets --wait follows: want --wait, too")
	}
	return nil
}

func (e env) traceCommand() *cobra.Command {
	var o options
	var t talkFlags
	c := e.command("trace", "where a connection of a pod goes, and why", traceAbout, &o)
	f := c.Flags()
	f.StringVar(&t.from, "from", "app",
		"who begins: app, proxy, peer (somebody outside), a container's name, or uid:N")
	complete(c, "from", "app", "proxy", "peer", "uid:")
	f.StringVar(&t.to, "to", "",
		"where to: ADDRESS:PORT, or self:PORT for the pod's own address")
	f.BoolVar(&t.udp, "udp", false, "UDP instead of TCP")
	f.StringVar(&t.netdevice, "interface", "", "the interface that it leaves or enters by (eth0)")
	f.BoolVar(&t.all, "all", false, "the usual connections, as a table")
	f.BoolVar(&t.live, "live", false, "send the packet in the pod, and show how the kernel "+
		"takes it")
	f.BoolVar(&t.wait, "wait", false, "follow the packets of others, until interrupted")
	f.UintVar(&t.count, "count", 0, "with --wait: end after so many packets (0: never)")
	o.placeFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := t.wrong(o.path() != ""); err != nil {
			return err
		}
		for _, one := range []string{"from", "udp", "interface"} {
			if t.all && c.Flags().Changed(one) {
				return usagef("--%s has no effect with --all: leave it out, or name one "+
					"connection by --to", one)
			}
		}
		if c.Flags().Changed("interface") && !realInterface(t.netdevice) {
			return usagef("--interface %q: want an interface's name of at most 15 letters, digits "+
				"and . _ - @ ~", t.netdevice)
		}
		o.kernel = t.live || t.wait
		all, err := e.subjects(c.Context(), &o, args)
		if err != nil {
			return err
		}
		if t.wait {
			return e.wait(c, &o, t, all)
		}
		shown, err := e.ways(c, &o, t, all)
		if err != nil {
			return err
		}
		return e.answer(&o, shown, slices.ContainsFunc(shown, way.amiss))
	}
	return c
}

// ways follows what the flags ask for, and sends it where the pods are if they do.
func (e env) ways(c *cobra.Command, o *options, t talkFlags, all []subject) (ways, error) {
	if t.live {
		shown, err := values(ask(c.Context(), e, question[way]{command: c, options: o,
			here: func(ctx context.Context, at *spot) (way, error) {
				return at.subject.way(ctx, t, at)
			}, pod: func(w way) string { return w.Pod }}, all))
		for i := range shown {
			shown[i].table = t.all
		}
		return shown, err
	}
	var shown ways
	for _, one := range all {
		w, err := one.way(c.Context(), t, nil)
		if err != nil {
			return nil, err
		}
		shown = append(shown, w)
	}
	return shown, nil
}

// way follows what the flags ask for, if the pod has rules; at is where a packet is sent, nil if
// none is.
func (s subject) way(ctx context.Context, t talkFlags, at *spot) (way, error) {
	if s.facts.Spec == nil {
		return s.recordedWay(ctx, t, at)
	}
	x := s.explain(false)
	w := way{Pod: s.pod.Name, Outcome: x.Outcome, Because: x.Because, table: t.all}
	switch {
	case x.Outcome == isRefused:
		w.Findings = x.Findings
	case s.redirected(x.Outcome):
		w.Findings = s.aside()
	}
	if !s.redirected(x.Outcome) {
		return w, nil
	}
	var err error
	w.Talks, err = s.follow(ctx, t, at)
	return w, err
}

// recordedWay is that of a network namespace, of whose pod there is no more than a record.
func (s subject) recordedWay(ctx context.Context, t talkFlags, at *spot) (w way, err error) {
	if err := s.known(); err != nil {
		return w, err
	}
	w = way{Pod: s.pod.Name, Outcome: isRedirected, Findings: s.aside(), table: t.all}
	w.Talks, err = s.follow(ctx, t, at)
	return w, err
}

// known says of a network namespace whose rules nobody knows what to do about that.
func (s subject) known() error {
	if s.facts.Spec == nil && s.record == nil {
		return fmt.Errorf("%s: no record says which pod's it is: name the pod by --filename, too",
			s.pod.Name)
	}
	return nil
}

// follow plays what the flags ask for, and sends it if they do.
func (s subject) follow(ctx context.Context, t talkFlags, at *spot) ([]talk, error) {
	known := s
	if at != nil {
		if err := at.readAddresses(); err != nil {
			return nil, err
		}
		known = at.subject
	}
	asked, err := known.talks(t)
	if err != nil {
		return nil, err
	}
	var shown []talk
	for _, one := range asked {
		legs, err := trace.Follow(known.tracePod(), one.Talk)
		if err != nil {
			return nil, usagef("%s to %s: %w", one.From.Name, one.To, err)
		}
		played := known.newTalk(one, legs)
		if at != nil {
			if played, err = at.live(ctx, t, one, legs[0]); err != nil {
				return nil, err
			}
		}
		shown = append(shown, played)
	}
	return shown, nil
}
