package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/plugin/netconf"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
)

// probed is what the node can.
type probed struct {
	backend  string            // to be used
	lacks    map[string]string // by backend, why it cannot be used; empty if it can
	warnings []string          // what the backend to be used lacks for some pods, which it refuses
}

var backends = []string{netconf.NFTables, netconf.IptablesNFT, netconf.IptablesLegacy}

// probe tries out the backends in the order of preference. The one that is configured is taken at
// its word only if it works: with another one every meshed pod would fail.
func (s *settings) probe(ctx context.Context) (probed, error) {
	p := probed{lacks: map[string]string{}}
	var all []string
	for _, backend := range backends {
		warnings, err := s.try(ctx, backend)
		p.lacks[backend] = ""
		if err != nil {
			p.lacks[backend] = err.Error()
			all = append(all, backend+": "+err.Error())
		}
		wanted := s.backend == backend || s.backend == "auto" && p.backend == ""
		if err == nil && wanted {
			p.backend, p.warnings = backend, warnings
		}
	}
	switch {
	case p.backend != "":
		return p, nil
	case s.backend != "auto":
		return p, fmt.Errorf("--backend %s: %s", s.backend, p.lacks[s.backend])
	}
	return p, fmt.Errorf("no backend works on this node: %s", strings.Join(all, "; "))
}

// try returns what the backend lacks for some pods; an error is about what it lacks for all.
func (s *settings) try(ctx context.Context, backend string) (warnings []string, err error) {
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
		lacks, err = s.tryIptables(ctx, iptables.NFT)
	default:
		lacks, err = s.tryIptables(ctx, iptables.Legacy)
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
func (s *settings) tryIptables(ctx context.Context, variant iptables.Variant) (lacks []redirect.Lack, err error) {
	if s.hostRoot == "" {
		return nil, errors.New("not tried, without --host-root")
	}
	err = node.InRoot(s.hostRoot, func() error {
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
