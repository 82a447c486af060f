//go:build linux

package iptables

import (
	"errors"
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
)

var errNoIP6Tables = errors.New("not found on the host")

// uncaptured says what of the namespace's IPv6 traffic the host's programs cannot capture, for want
// of ip6tables: an error if the namespace has an address by which others reach it, a warning if it
// is reached within its link only.
func (t *Tables) uncaptured() (warnings []string, err error) {
	if _, ok := t.tools[redirect.IPv6]; ok || !hasIPv6() {
		return nil, nil
	}
	addresses, err := routing.Addresses(redirect.IPv6)
	if err != nil {
		return nil, err
	}
	lack := fmt.Errorf("ip6tables-%s: %w", t.variant, errNoIP6Tables)
	for _, a := range addresses {
		if !a.IsLinkLocalUnicast() {
			return nil, fmt.Errorf("%w: the pod's traffic from %s would go past the proxy: "+
				"install ip6tables on the host, or choose the nftables backend", lack, a)
		}
		warnings = []string{fmt.Sprintf("%v: the pod's traffic from %s goes past the proxy", lack,
			a)}
	}
	return warnings, nil
}

// lackOfIPv6 is nothing that keeps a node from working: its pods may have no IPv6 addresses.
func (t *Tables) lackOfIPv6() []redirect.Lack {
	if _, ok := t.tools[redirect.IPv6]; ok || !hasIPv6() {
		return nil
	}
	return []redirect.Lack{{
		Feature: "redirection of IPv6, so pods with an IPv6 address are refused",
		Cause:   fmt.Errorf("ip6tables-%s: %w", t.variant, errNoIP6Tables), Minor: true,
	}}
}
