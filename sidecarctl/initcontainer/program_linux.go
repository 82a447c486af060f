package initcontainer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/validation"
)

// Program writes the rules, or removes them.
func Program(ctx context.Context, o Options) (Done, error) {
	d := Done{Backend: o.Backend()}
	err := o.inNamespace(func() error {
		tables, err := backend.Find(d.Backend)
		if err != nil {
			return fmt.Errorf("--force-iptables-binary: %w; or leave the flag out: nftables needs "+
				"no program", err)
		}
		if o.Work.CleanupOnly {
			return d.remove(ctx, tables, o)
		}
		return d.write(ctx, tables, o)
	})
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: the container needs the capability NET_ADMIN", err)
	}
	return d, err
}

func (d *Done) remove(ctx context.Context, tables backend.Backend, o Options) error {
	d.Outcome = Removed
	if err := tables.Remove(ctx, redirect.Compile(o.Policy)); err != nil {
		return fmt.Errorf("remove the pod's rules: %w", err)
	}
	return nil
}

// write leaves rules alone that are as they should be: a container of a pod may be started again.
func (d *Done) write(ctx context.Context, tables backend.Backend, o Options) error {
	rules := redirect.Compile(o.Policy)
	other, err := backend.OtherRules(ctx, d.Backend)
	if err == nil && other != "" {
		err = fmt.Errorf("there are rules of another tool, or by another backend: %s: remove "+
			"them, or start the pod anew without what writes them", other)
	}
	if err != nil {
		return fmt.Errorf("redirect the pod with %s: %w", d.Backend, err)
	}
	before, err := traces.Chains()
	if err != nil {
		return err
	}
	d.Outcome = Written
	if d.Backend != redirect.IptablesLegacy && len(before) > 0 {
		d.Outcome = Replaced
	}
	if !o.Work.ForceApply && d.verify(ctx, tables, rules) == nil {
		d.Outcome = Unchanged
		return nil
	}
	if _, d.Warnings, err = tables.Apply(ctx, rules); err != nil {
		return fmt.Errorf("redirect the pod with %s: %w", d.Backend, err)
	}
	return d.verify(ctx, tables, rules)
}

// verify reads the rules back.
func (d *Done) verify(ctx context.Context, tables backend.Backend, rules redirect.Ruleset) error {
	problems, err := tables.Verify(ctx, rules)
	if err != nil {
		return fmt.Errorf("read the pod's rules back: %w", err)
	}
	if len(problems) == 0 {
		return nil
	}
	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}
	return fmt.Errorf("the pod's rules are not as they were written: %s",
		strings.Join(all, "; "))
}

// Validate tries the pod's paths as the user of this process.
func Validate(ctx context.Context, o Options) (r validation.Report, err error) {
	err = o.inNamespace(func() (err error) {
		r, err = validation.Run(ctx, o.Policy, validation.Options{Nameservers: o.Nameservers,
			ProbePort: o.Work.ProbePort, Timeout: o.Work.ProbeTimeout})
		return err
	})
	return r, err
}

// inNamespace calls a function in the network namespace that the flags name, else in the one of
// this process, on one thread.
func (o Options) inNamespace(do func() error) error {
	path := o.Work.NetworkNamespace
	if path == "" {
		path = ownNetns
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	id, err := podns.Identify(path)
	if err != nil {
		return fmt.Errorf("--network-namespace: %w: want the path of the pod's, or no such flag "+
			"in the pod", err)
	}
	own, err := podns.Identify(ownNetns)
	if err != nil {
		return fmt.Errorf("identify own network namespace: %w", err)
	}
	guarded := func() error {
		if err := refuseHost(); err != nil {
			return err
		}
		return do()
	}
	if id == own {
		return guarded()
	}
	host, err := podns.FindHost("/proc", "sidecarctl")
	if err != nil {
		return err
	}
	n, err := host.Open(path)
	if err != nil {
		return fmt.Errorf("--network-namespace: %w", err)
	}
	defer n.Close()
	return n.Do(guarded)
}

const ownNetns = "/proc/thread-self/ns/net"
