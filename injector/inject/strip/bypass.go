package strip

import (
	"slices"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

const (
	keyBypass      = "sidecar-cni.io/initContainers"
	keyExcludeUIDs = "sidecar-cni.io/excludeOutboundUIDs"

	// What starts behind the rules by design, and needs no network but the pod's own.
	validation = "istio-validation"

	noNetwork = "if it needs no network, annotate the pod with " + keyBypass + `: ""`
)

// bypass sees to the init containers that istio-init had in front of it: they had the network as it
// is, since the rules came later, and would now meet rules and no proxy. The annotation lets them
// keep it. One that the author wrote, whatever it says, decides.
//
// The annotation is for all that starts before the proxy. Containers between istio-init and a
// native proxy met the rules, and would get past them: then it is refused.
func (c *command) bypass(pod podtree.Object, spec *redirect.Spec, asked asked, at int) (
	reasons []string) {
	if !c.capturesOutbound() || asked.settings[keyBypass].Source != redirect.FromDefault {
		return nil
	}
	before, between := untilProxy(spec.Containers, at)
	excluded := c.excluded(asked)
	before = slices.DeleteFunc(before, func(one redirect.Container) bool {
		uid := one.RunAsUser
		if uid == nil {
			uid = spec.RunAsUser
		}
		return uid != nil && *uid >= 0 && *uid < 1<<32 && excluded.Holds(uint32(*uid))
	})
	if len(before) == 0 {
		return nil
	}
	for _, one := range before {
		if one.Stays {
			reasons = append(reasons, reason("init container %q stays and starts before the "+
				"rules of istio-init: without it, it would have no network until the proxy runs: "+
				"put it behind a proxy that is a native sidecar; or, %s", one.Name, noNetwork))
		}
	}
	for _, one := range between {
		if !one.Stays {
			reasons = append(reasons, reason("init container %q starts after the rules of "+
				"istio-init, and %q before: without it both would be captured or neither: put the "+
				"two on one side; or, %s", one.Name, before[0].Name, noNetwork))
		}
	}
	podtree.Set(pod, "bypass", "metadata", "annotations", keyBypass)
	c.bypasses = true
	return reasons
}

// capturesOutbound reports whether anything that the pod sends can be captured.
func (c *command) capturesOutbound() bool {
	p := c.policy
	someone := p.Groups.All || len(p.Groups.Include) > 0
	something := p.Outbound.All || len(p.Outbound.CIDRs) > 0 || len(p.Outbound.Ports) > 0
	return someone && (something || p.DNS.Capture)
}

// excluded returns the users whose traffic is not captured, with rules or without.
func (c *command) excluded(asked asked) redirect.IDs {
	var p redirect.Policy
	_ = p.Set(keyExcludeUIDs, keyExcludeUIDs, asked.settings[keyExcludeUIDs].Value)
	ids := p.Outbound.ExcludeUIDs
	for _, uid := range c.policy.Proxy.UIDs {
		ids = append(ids, redirect.IDRange{First: uid, Last: uid})
	}
	return ids
}

// untilProxy parts the init containers that start before the proxy: those in front of the place
// that istio-init had, and those behind it.
func untilProxy(containers []redirect.Container, at int) (before, between []redirect.Container) {
	for i, one := range containers {
		switch {
		case !one.Init || one.Name == redirect.ProxyContainer:
			return before, between
		case one.Name == validation:
		case i < at:
			before = append(before, one)
		default:
			between = append(between, one)
		}
	}
	return before, between
}

// explain words what Decide has against the pod.
func (c *command) explain(m redirect.Mistake) string {
	if m.Key != keyBypass || !c.bypasses {
		return reason("without it the pod is refused: %s", m.String())
	}
	return reason("init container %q starts before the rules of istio-init and would lose the "+
		"network without it: want %s; or have a native sidecar as the proxy in front of it; or, %s",
		m.Item, m.Want, noNetwork)
}
