package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
)

// Backends is what the node can be programmed with.
type Backends struct {
	Backend  string            // to be used; "" if none can
	Lacks    map[string]string // by backend, why it cannot be used; "" if it can
	Warnings []string          // what the backend to be used lacks for some pods, which it refuses
}

var backends = []string{netconf.NFTables, netconf.IptablesNFT, netconf.IptablesLegacy}

// probe tries out the backends in the order of preference. The one that is configured is taken at
// its word only if it works: with another one every meshed pod would fail.
func (p PluginSettings) probe(ctx context.Context) (Backends, error) {
	found := Backends{Lacks: map[string]string{}}
	var all []string
	for _, backend := range backends {
		warnings, err := p.try(ctx, backend)
		found.Lacks[backend] = ""
		if err != nil {
			found.Lacks[backend] = err.Error()
			all = append(all, backend+": "+err.Error())
		}
		wanted := p.Backend == backend || p.Backend == "auto" && found.Backend == ""
		if err == nil && wanted {
			found.Backend, found.Warnings = backend, warnings
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
func (p PluginSettings) try(ctx context.Context, backend string) (warnings []string, err error) {
	var lacks []redirect.Lack
	switch backend {
	case netconf.NFTables:
		err = node.OnThread(func() error {
			err := throwAway()
			if err == nil {
				lacks = nftables.Probe()
			}
			return err
		})
	case netconf.IptablesNFT:
		lacks, err = p.tryIptables(ctx, iptables.NFT)
	default:
		lacks, err = p.tryIptables(ctx, iptables.Legacy)
	}
	errs := []error{err}
	for _, l := range lacks {
		if l.Minor {
			warnings = append(warnings, l.String())
		} else {
			errs = append(errs, errors.New(l.String()))
		}
	}
	return warnings, errors.Join(errs...)
}

// tryIptables uses the host's programs, which the plugin will find there.
func (p PluginSettings) tryIptables(ctx context.Context, variant iptables.Variant) (lacks []redirect.Lack, err error) {
	if p.HostRoot == "" {
		return nil, errors.New("not tried, without --host-root")
	}
	err = node.InRoot(p.HostRoot, func() error {
		if err := throwAway(); err != nil {
			return err
		}
		tables, err := iptables.Find(variant)
		if err == nil {
			lacks = tables.Probe(ctx)
		}
		return err
	})
	return lacks, err
}

// throwAway gives the calling thread, which shall end, a new network namespace. Without the right
// to make one it stays in that of the installer's pod, which by the chart is never the host's.
func throwAway() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("make network namespace: %w", err)
	}
	return nil
}
