package initcontainer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/validation"
)

// Program writes the rules, or removes them.
func Program(ctx context.Context, o Options) (Done, error) {
	d := Done{Backend: o.Backend()}
	err := o.inNamespace(func() error {
		tables, err := backend.Find(d.Backend)
		if err != nil {
			return fmt.Errorf("--force-iptables-binary: this image lacks it: leave the flag out, "+
				"since nftables needs no program, or use an image that has it: %w", err)
		}
		before, err := d.before()
		switch {
		case err != nil:
			return err
		case o.Work.CleanupOnly:
			return d.remove(ctx, tables, o, before)
		}
		return d.write(ctx, tables, o, before)
	})
	if errors.Is(err, unix.EPERM) && !errors.Is(err, errEnter) {
		err = lacking(err, "NET_ADMIN")
	}
	return d, err
}

// lacking says which capability the container needs. A process that is not root has none, whatever
// the container may have.
func lacking(err error, capability string) error {
	err = fmt.Errorf("%w: the container needs the capability %s", err, capability)
	if os.Geteuid() != 0 {
		err = fmt.Errorf("%w, and runAsUser 0", err)
	}
	return err
}

// before reports whether the namespace has rules in the place of the backend's. Others are an
// error: beside them nothing is written, and what they need is not taken away.
func (d *Done) before() (bool, error) {
	chains, err := backend.MeshChains()
	if err != nil {
		return false, fmt.Errorf("look for rules in the pod: %w", err)
	}
	for _, c := range chains {
		if c.Backend != d.Backend {
			return false, fmt.Errorf("the pod has rules of another tool, or by another backend "+
				"than %s: %s: remove them as they were written, or start the pod anew without "+
				"what writes them", d.Backend, c)
		}
	}
	return len(chains) > 0, nil
}

// remove also takes away the routing of TPROXY, whichever mode the flags name: only mark and table
// have to be those that were written.
func (d *Done) remove(ctx context.Context, tables backend.Backend, o Options, there bool) error {
	d.Outcome = Absent
	if there {
		d.Outcome = Removed
	}
	rules := redirect.Compile(o.Policy)
	rules.Routes = o.routes()
	if err := tables.Remove(ctx, rules); err != nil {
		return fmt.Errorf("remove the pod's rules: %w", err)
	}
	return nil
}

// routes are those of TPROXY, by the mark and the table of the flags.
func (o Options) routes() []redirect.PolicyRoute {
	return []redirect.PolicyRoute{{Mark: o.Policy.Marks.TProxy, Table: o.Policy.Marks.Table}}
}

// write leaves rules alone that are as they should be: a container of a pod may be started again.
func (d *Done) write(ctx context.Context, tables backend.Backend, o Options, there bool) error {
	rules := redirect.Compile(o.Policy)
	d.Outcome = Written
	if there {
		d.Outcome = Replaced
	}
	if !o.Work.ForceApply && d.verify(ctx, tables, rules) == nil {
		d.Outcome = Unchanged
		return nil
	}
	var err error
	if _, d.Warnings, err = tables.Apply(ctx, rules); err != nil {
		return fmt.Errorf("redirect the pod with %s: %w", d.Backend, err)
	}
	if there && len(rules.Routes) == 0 {
		if err := routing.Remove(redirect.Ruleset{Routes: o.routes()}); err != nil {
			return fmt.Errorf("remove the routing of earlier rules: %w", err)
		}
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
	own, err := podns.Identify(ownNetns)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: this works with /proc mounted, as containers have it", err)
	}
	if err != nil {
		return fmt.Errorf("identify own network namespace: %w", err)
	}
	id, err := podns.Identify(path)
	if err != nil {
		return fmt.Errorf("--network-namespace: %w: want the path of the pod's, or no such flag "+
			"in the pod", err)
	}
	entered := false
	guarded := func() error {
		entered = true
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
	err = n.Do(guarded)
	if !entered && errors.Is(err, unix.EPERM) {
		err = lacking(fmt.Errorf("%w: %w", errEnter, err), "SYS_ADMIN")
	}
	return err
}

var errEnter = errors.New("--network-namespace")

const ownNetns = "/proc/thread-self/ns/net"
