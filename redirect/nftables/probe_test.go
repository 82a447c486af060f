package nftables

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// TestProbeNamesWhatIsRefused asks for a feature that no kernel has: a jump to a chain that is not
// there.
func TestProbeNamesWhatIsRefused(t *testing.T) {
	t.Parallel()
	impossible := redirect.Feature{Name: "jumps to nowhere", Table: redirect.NAT,
		Rule: redirect.Rule{
			Why: "probe", Then: redirect.Action{Verb: redirect.Jump, Chain: "nowhere"},
		}}
	ns := netns.New(t)
	ns.Do(t, func() {
		s, err := dial()
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		lacks := s.tryAll(t.Context(),
			append([]redirect.Feature{impossible}, redirect.Features()...))
		if len(lacks) != 1 || lacks[0].Feature != impossible.Name {
			t.Errorf("found lacking: %v: want %s alone", lacks, impossible.Name)
		}
	})
	if left := ns.Run(t, "", "nft", "list", "ruleset"); left != "" {
		t.Errorf("the probe left behind:\n%s", left)
	}
}

// TestProbeWithoutRights runs on a thread that may not administer the network.
func TestProbeWithoutRights(t *testing.T) {
	t.Parallel()
	netns.New(t).Do(t, func() {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var have [2]unix.CapUserData
		if err := unix.Capget(&header, &have[0]); err != nil {
			t.Error(err)
			return
		}
		without := have
		without[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &without[0]); err != nil {
			t.Error(err)
			return
		}
		lacks := Probe(t.Context())
		if err := unix.Capset(&header, &have[0]); err != nil {
			t.Error(err)
		}
		if len(lacks) != 1 || !strings.Contains(lacks[0].String(), "CAP_NET_ADMIN") ||
			lacks[0].Module != "nf_tables" {
			t.Errorf("found lacking: %v: want nftables, for want of CAP_NET_ADMIN", lacks)
		}
	})
}

// TestProbeEndsWithItsContext does not take what was not tried for what works.
func TestProbeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	ns := netns.New(t)
	ns.Do(t, func() {
		if lacks := Probe(over); len(lacks) != 1 || !errors.Is(lacks[0].Cause, context.Canceled) {
			t.Errorf("found lacking: %v: want nftables, since no time was left", lacks)
		}
		if err := Remove(over, redirect.Ruleset{}); !errors.Is(err, context.Canceled) {
			t.Errorf("removed with a context that is over: %v", err)
		}
	})
}
