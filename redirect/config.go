package redirect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Config is what a cluster may set for all of its pods. The zero value is not usable: start from
// Defaults.
type Config struct {
	Ports  Listen   `json:"ports"`      // of the proxy
	Status uint16   `json:"statusPort"` // of a pod that does not name its own
	Open   []uint16 `json:"openPorts"`  // inbound ports that always stay open: health and telemetry
	Proxy  Identity `json:"proxy"`      // where a pod's security context does not say
	Marks  Marks    `json:"marks"`      // for TPROXY

	// The addresses from which the proxy calls the app. Both must be set.
	PassthroughIPv4 netip.Addr `json:"passthroughIPv4"`
	PassthroughIPv6 netip.Addr `json:"passthroughIPv6"`

	// CaptureAllDNS redirects all of port 53, even where a pod's nameservers are known.
	CaptureAllDNS bool `json:"-"`
	// Values stand in for annotations and variables that a pod does not have, by key.
	Values map[string]string `json:"values,omitempty"`

	ExcludeNamespaces []string `json:"-"` // nobody's pods are captured there
	Agent             Agent    `json:"-"` // its own pods are left alone

	// RuntimeHandlers says what becomes of pods whose runtime class has such a handler.
	RuntimeHandlers RuntimeHandlers `json:"-"`
}

// Agent names the DaemonSet of the node agent, whose own pods must start without it.
type Agent struct {
	// A pod is the agent's if it is in Namespace, and its name begins with Name and a hyphen. With
	// an empty Name none is.
	Namespace, Name string
}

// Defaults returns the configuration that agrees with istio-init.
func Defaults() Config {
	return Config{
		Ports:             Listen{Outbound: 15001, Inbound: 15006, Tunnel: 15008, DNS: 15053},
		Status:            15020,
		Open:              []uint16{15020, 15021, 15090},
		Proxy:             Identity{UIDs: []uint32{1337}, GIDs: []uint32{1337}},
		Marks:             Marks{TProxy: 1337, SelfCall: 1338, Table: 133},
		PassthroughIPv4:   netip.MustParseAddr("127.0.0.6"),
		PassthroughIPv6:   netip.MustParseAddr("::6"),
		ExcludeNamespaces: []string{"kube-system"},
		Agent:             Agent{Namespace: "kube-system", Name: "sidecar-cni"},
		RuntimeHandlers:   RuntimeHandlers{"runsc*": Refuse, "gvisor*": Refuse, "kata*": Refuse},
	}
}

// Validate reports every value that cannot work.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, key string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("redirect.%s: %v: want %s", key, value, want))
		}
	}
	check(c.Ports.Outbound != 0, "ports.outbound", c.Ports.Outbound, "a port from 1 to 65535")
	check(c.Ports.Inbound != 0, "ports.inbound", c.Ports.Inbound, "a port from 1 to 65535")
	check(c.Ports.Tunnel != 0, "ports.tunnel", c.Ports.Tunnel, "a port from 1 to 65535")
	check(c.Ports.DNS != 0 && c.Ports.DNS != 53, "ports.dns", c.Ports.DNS,
		"a port from 1 to 65535 that is not 53")
	check(len(c.Proxy.UIDs) > 0, "proxy.uids", c.Proxy.UIDs, "at least one uid")
	check(len(c.Proxy.GIDs) > 0, "proxy.gids", c.Proxy.GIDs, "at least one gid")
	for i, ids := range [][]uint32{c.Proxy.UIDs, c.Proxy.GIDs} {
		key := []string{"proxy.uids", "proxy.gids"}[i]
		check(!slices.Contains(ids, 0), key, ids,
			"no 0: root's traffic would all pass as the proxy's")
		check(!slices.Contains(ids, noID), key, ids, fmt.Sprintf("ids up to %d", uint32(maxID)))
	}
	check(c.Marks.TProxy != 0, "marks.tproxy", c.Marks.TProxy, "a mark other than 0")
	check(c.Marks.SelfCall != 0 && c.Marks.SelfCall != c.Marks.TProxy, "marks.selfCall",
		c.Marks.SelfCall,
		"a mark other than 0 and marks.tproxy")
	check(c.Marks.Table != 0 && (c.Marks.Table < 253 || c.Marks.Table > 255), "marks.table",
		c.Marks.Table,
		"a routing table other than 0 and the kernel's own, 253 to 255")
	check(c.PassthroughIPv4.Is4() && c.PassthroughIPv4.IsLoopback(), "passthroughIPv4",
		c.PassthroughIPv4,
		"an address in 127.0.0.0/8")
	check(isOwnIPv6(c.PassthroughIPv6), "passthroughIPv6", c.PassthroughIPv6,
		"an IPv6 address of one host, other than ::1")
	errs = append(errs, c.validateValues()...)
	return errors.Join(errs...)
}

// isOwnIPv6 reports what can be added to lo and be removed again.
func isOwnIPv6(a netip.Addr) bool {
	return a.Is6() && !a.Is4In6() && a.Zone() == "" && !a.IsLoopback() && !a.IsUnspecified() &&
		!a.IsMulticast()
}

// validateValues reads the stand-ins as if a pod had them.
func (c Config) validateValues() []error {
	var errs []error
	p := Policy{Ports: c.Ports}
	for _, key := range sortedKeys(c.Values) {
		s, ok := settingOf(key)
		if !ok {
			errs = append(errs, fmt.Errorf("redirect.values: %q: want an annotation or a "+
				"variable of the reference page", key))
			continue
		}
		r := reader{key: "redirect.values." + key, dropEmpty: s.lenient}
		s.read(&r, c.Values[key], &p)
		for _, m := range slices.Concat(r.mistakes, r.ignored) {
			errs = append(errs, errors.New(m.String()))
		}
	}
	return errs
}
