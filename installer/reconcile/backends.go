package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/hostroot"
)

// Backends is what the node can be programmed with.
type Backends struct {
	Backend  string            // to be used; "" if none can
	Lacks    map[string]string // by backend, why it cannot be used; "" if it can
	Warnings []string          // what the backend to be used lacks for some pods, which it refuses
}

// probe tries out the backends in the order of preference. The one that is configured is taken at
// its word only if it works: with another one every meshed pod would fail.
func (p PluginSettings) probe(ctx context.Context) (Backends, error) {
	found := Backends{Lacks: map[string]string{}}
	var all []string
	for _, name := range redirect.Backends {
		warnings, err := p.try(ctx, name)
		found.Lacks[name] = ""
		if err != nil {
			found.Lacks[name] = err.Error()
			all = append(all, name+": "+err.Error())
		}
		wanted := p.Backend == name || p.Backend == "auto" && found.Backend == ""
		if err == nil && wanted {
			found.Backend, found.Warnings = name, warnings
		}
	}
	switch {
	case found.Backend != "":
		return found, nil
	case p.Backend != "auto":
		return found, fmt.Errorf("--backend %s: %s", p.Backend, found.Lacks[p.Backend])
	}
	return found, fmt.Errorf("no backend works on this node: %s", strings.Join(all, "; "))
}

// try returns what the backend lacks for some pods; an error is about what it lacks for all.
// Programs are the host's, which the plugin will find there.
func (p PluginSettings) try(ctx context.Context, name string) (warnings []string, err error) {
	thread := hostroot.OnThread
	if backend.RunsPrograms(name) {
		if p.HostRoot == "" {
			return nil, errors.New("not tried, without --host-root")
		}
		thread = func(do func() error) error { return hostroot.InRoot(p.HostRoot, do) }
	}
	var lacks []redirect.Lack
	errs := []error{thread(func() error {
		if err := throwAway(); err != nil {
			return err
		}
		found, err := backend.Find(name)
		if err == nil {
			lacks = found.Probe(ctx)
		}
		return err
	})}
	for _, l := range lacks {
		if l.Minor {
			warnings = append(warnings, l.String())
		} else {
			errs = append(errs, errors.New(l.String()))
		}
	}
	return warnings, errors.Join(errs...)
}

// throwAway gives the calling thread, which shall end, a new network namespace. Without the right
// to make one it stays in that of the installer's pod, which by the chart is never the host's.
func throwAway() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("make network namespace: %w", err)
	}
	return nil
}
