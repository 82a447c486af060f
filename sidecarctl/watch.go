package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
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
	var netns string
	c := e.command("watch", "connections as they begin and end", watchAbout, &o)
	w.define(c.Flags())
	c.Flags().StringVar(&netns, "netns", "", "path of the pod's network namespace")
	c.RunE = func(c *cobra.Command, args []string) error {
		if netns == "" {
			return usagef("want --netns")
		}
		policy := redirect.Policy{Ports: redirect.Defaults().Ports, Proxy: redirect.Defaults().Proxy}
		if len(args) > 0 || o.file != "" {
			all, _, err := e.subjects(c.Context(), &o, args)
			if err != nil {
				return err
			}
			if len(all) != 1 {
				return usagef("%d pods: want one to watch", len(all))
			}
			policy = all[0].decision.Policy
		}
		return e.watch(c.Context(), &o, w, func(ctx context.Context,
			show func(watch.Event) error) error {
			what, err := w.options(policy)
			if err != nil {
				return err
			}
			return watchIn(ctx, netns, what, show)
		})
	}
	return c
}

// watch shows the events that a source has, which ends with its context.
func (e env) watch(ctx context.Context, o *options, w watchFlags,
	source func(context.Context, func(watch.Event) error) error) error {
	format := view.Format(o.output)
	if !slices.Contains(view.Formats, format) {
		return usagef("--output %q: want text, json or yaml", o.output)
	}
	if w.duration > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, w.duration)
		defer stop()
	}
	err := source(ctx, watch.NewWriter(e.stdout, format).Write)
	if readerGone(err) {
		return nil
	}
	return err
}

// options are what the flags ask for.
func (w watchFlags) options(policy redirect.Policy) (watch.Options, error) {
	o := watch.Options{Policy: policy, Existing: w.existing, Port: w.port, Count: w.count}
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

// args are the flags for the command in an agent, whose answer watch.Decode reads.
func (w watchFlags) args() []string {
	args := []string{"watch", "-o", string(view.JSON)}
	if w.existing {
		args = append(args, "--existing")
	}
	if w.protocol != "" {
		args = append(args, "--protocol", w.protocol)
	}
	if w.port != 0 {
		args = append(args, "--port", strconv.Itoa(int(w.port)))
	}
	if w.count != 0 {
		args = append(args, "--count", strconv.Itoa(w.count))
	}
	if w.duration != 0 {
		args = append(args, "--for", w.duration.String())
	}
	return args
}

// readerGone reports whether nobody reads any more what is written, as behind head.
func readerGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
