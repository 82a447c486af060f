package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/watch"
)

const watchAbout = `Shows the connections of a pod as they begin (+) and end (-), until it is interrupted: who opened
each, which address it was meant for, and where the rules led it. The number behind the sign is
that of the connection. Times are UTC.

The kernel does not know which connection the proxy opens for which that it took: both are shown,
nothing joins them. A connection that ended before its socket was looked up has no uid. UDP ends
when it was idle for long. Bytes are shown where net.netfilter.nf_conntrack_acct is 1.`

// watchFlags say what is watched, and for how long.
type watchFlags struct {
	existing bool
	protocol string
	port     uint16
	count    int
	duration time.Duration
}

func (w *watchFlags) define(f *pflag.FlagSet) {
	f.BoolVar(&w.existing, "existing", false, "begin with the connections that there are (=)")
	f.StringVar(&w.protocol, "protocol", "", "tcp or udp only")
	f.Uint16Var(&w.port, "port", 0,
		"only connections that are meant for this port, or went to it")
	f.IntVar(&w.count, "count", 0, "end after so many lines about connections")
	f.DurationVar(&w.duration, "for", 0, "end after so long, such as 30s")
}

func (e env) watchCommand() *cobra.Command {
	var o options
	var w watchFlags
	c := e.command("watch", "connections as they begin and end", watchAbout, &o)
	w.define(c.Flags())
	o.placeFlags(c)
	o.kernel = true
	c.RunE = func(c *cobra.Command, args []string) error {
		what, err := w.options()
		if err != nil {
			return err
		}
		all, err := e.subjects(c.Context(), &o, args)
		if err != nil {
			return err
		}
		if len(all) != 1 {
			return usagef("%d pods: want one to watch", len(all))
		}
		what.Policy = policyOf(all[0])
		return e.watch(c.Context(), &o, w, func(ctx context.Context,
			show func(watch.Event) error) error {
			return e.follow(ctx, stream{command: c, options: &o,
				here: func(ctx context.Context, at *spot) error {
					return watchHere(ctx, at, what, show)
				},
				read: func(r io.Reader) error { return watch.Decode(r, show) },
			}, all[0])
		})
	}
	return c
}

// policyOf is the policy by whose ports connections are named. A pod without rules has none.
func policyOf(s subject) redirect.Policy {
	if policy := s.has(); policy.Ports != (redirect.Listen{}) {
		return policy
	}
	return redirect.Policy{Ports: s.config.Ports, Proxy: s.config.Proxy}
}

// watch shows the events that a source has, which ends with its context.
func (e env) watch(ctx context.Context, o *options, w watchFlags,
	source func(context.Context, func(watch.Event) error) error) error {
	if w.duration > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, w.duration)
		defer stop()
	}
	err := source(ctx, watch.NewWriter(e.stdout, view.Format(o.output)).Write)
	if readerGone(err) {
		return nil
	}
	return err
}

// options are what the flags ask for.
func (w watchFlags) options() (watch.Options, error) {
	o := watch.Options{Existing: w.existing, Port: w.port, Count: w.count}
	switch strings.ToLower(w.protocol) {
	case "":
	case "tcp":
		o.Protocol = redirect.TCP
	case "udp":
		o.Protocol = redirect.UDP
	default:
		return o, usagef("--protocol %q: want tcp or udp", w.protocol)
	}
	if w.count < 0 {
		return o, usagef("--count %d: want a number of lines", w.count)
	}
	if w.duration < 0 {
		return o, usagef("--for %s: want a time such as 30s", w.duration)
	}
	return o, nil
}

// readerGone reports whether nobody reads any more what is written, as behind head.
func readerGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
