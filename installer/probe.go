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
	backend string            // to be used
	lacks   map[string]string // by backend, why it cannot be used; empty if it can
}

var backends = []string{netconf.NFTables, netconf.IptablesNFT, netconf.IptablesLegacy}

// probe tries out the backends in the order of preference. The one that is configured is taken at its word only if it works:
// with another one every meshed pod would fail.
func (s *settings) probe(ctx context.Context) (probed, error) {
	p := probed{lacks: map[string]string{}}
	var all []string
	for _, backend := range backends {
		err := s.try(ctx, backend)
		p.lacks[backend] = ""
		if err != nil {
			p.lacks[backend] = err.Error()
			all = append(all, backend+": "+err.Error())
		}
		wanted := s.backend == backend || s.backend == "auto" && p.backend == ""
		if err == nil && wanted {
			p.backend = backend
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

func (s *settings) try(ctx context.Context, backend string) error {
	switch backend {
	case netconf.NFTables:
		return node.OnThread(func() error {
			if err := throwAway(); err != nil {
				return err
			}
			return lacking(nftables.Probe())
		})
	case netconf.IptablesNFT:
		return s.tryIptables(ctx, iptables.NFT)
	}
	return s.tryIptables(ctx, iptables.Legacy)
}

// tryIptables uses the host's programs, which the plugin will find there.
func (s *settings) tryIptables(ctx context.Context, variant iptables.Variant) error {
	if s.hostRoot == "" {
		return errors.New("not tried, without --host-root")
	}
	return node.InRoot(s.hostRoot, func() error {
		if err := throwAway(); err != nil {
			return err
		}
		tables, err := iptables.Find(ctx, variant)
		if err != nil {
			return err
		}
		return lacking(tables.Probe())
	})
}

func lacking(lacks []redirect.Lack) error {
	var errs []error
	for _, l := range lacks {
		errs = append(errs, errors.New(l.String()))
	}
	return errors.Join(errs...)
}

// throwAway gives the calling thread, which shall end, a new network namespace. Without the right to make one it stays in
// that of the installer's pod, which by the chart is never the host's.
func throwAway() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("make network namespace: %w", err)
	}
	return nil
}
