package redirect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Basis returns the policy before anything of a pod has been read: what a cluster may set. It
// captures nothing.
func (c Config) Basis() Policy {
	return Policy{
		Ports:       c.Ports,
		Proxy:       c.Proxy,
		Inbound:     Inbound{ExcludePorts: sorted(slices.Clone(c.Open))},
		Marks:       c.Marks,
		Passthrough: []netip.Addr{c.PassthroughIPv4, c.PassthroughIPv6},
	}
}

// Set reads value as that of a pod's annotation or variable key is read, except that empty items
// of lists are dropped. The mistakes name it name. It is for policies that do not come from a pod;
// a key that is not on the reference page is a mistake too.
func (p *Policy) Set(key, name, value string) Mistakes {
	r := reader{key: name, dropEmpty: true}
	if s, ok := settingOf(key); ok {
		s.read(&r, value, p)
	} else {
		r.mistake(key, "a key of the reference page")
	}
	return r.mistakes
}

// parsePod reads the table for a pod that is known to be ours.
func parsePod(pod Pod, cfg Config) (Decision, error) {
	d := Decision{Policy: cfg.Basis()}
	d.Policy.Proxy = pod.Spec.identity(cfg)
	var mistakes Mistakes
	for _, s := range settings {
		one := s.readFor(pod, cfg, &d.Policy)
		if one.Source == Unreadable {
			d.Warnings = append(d.Warnings, fmt.Sprintf("%s: its value comes from elsewhere and "+
				"cannot be read: taken as %q", one.Key, one.Value))
		}
		mistakes = append(mistakes, one.Mistakes...)
		for _, m := range one.Ignored {
			d.Warnings = append(d.Warnings, m.String()+": taken as false")
		}
	}
	mistakes = append(mistakes, pod.crossCheck(cfg, &d)...)
	if len(mistakes) == 0 {
		mistakes = tooMuch(pod, cfg, d.Policy)
	}
	if len(mistakes) > 0 {
		return Decision{Warnings: d.Warnings, Notices: d.Notices}, mistakes
	}
	return d, nil
}

// tooMuch reports a policy that costs more rules than any pod may have, and names the longest of
// its values.
func tooMuch(pod Pod, cfg Config, p Policy) Mistakes {
	size := Compile(p).Size()
	if size <= MaxRules {
		return nil
	}
	longest := slices.MaxFunc(Readings(pod, cfg),
		func(a, b Reading) int { return cmp.Compare(len(a.Value), len(b.Value)) })
	r := reader{key: longest.Key}
	r.mistake(longest.Value, fmt.Sprintf("shorter lists: all that the pod asks for comes to %d "+
		"rules, at most %d are possible",
		size, MaxRules))
	return r.mistakes
}

// crossCheck reads what depends on more than one fact.
func (p Pod) crossCheck(cfg Config, d *Decision) Mistakes {
	uids, own := reader{key: keyExcludeUIDs}, p.Spec.proxyUsers(d.Policy.Proxy)
	for _, uid := range own {
		if d.Policy.Outbound.ExcludeUIDs.Holds(uid) {
			uids.mistake(cfg.value(p.Annotations, keyExcludeUIDs),
				fmt.Sprintf("uids without the proxy's own, %d", uid))
		}
	}
	bypass := reader{key: keyBypass}
	if cfg.value(p.Annotations, keyBypass) == "bypass" {
		ids := p.Spec.bypass(&bypass, own)
		d.Policy.Outbound.ExcludeUIDs = mergeIDs(append(d.Policy.Outbound.ExcludeUIDs, ids...))
	}
	d.Policy.DNS.Everywhere = d.Policy.DNS.Everywhere || cfg.CaptureAllDNS
	if d.Policy.DNS.Find(p.Nameservers) {
		d.Warnings = append(d.Warnings, UnknownNameservers)
	}
	shared := p.Spec.sharedUID(d)
	p.Spec.noteSharedGIDs(d)
	return slices.Concat(shared, uids.mistakes, bypass.mistakes)
}

// UnknownNameservers is the warning about a pod whose nameservers matter and are not known.
const UnknownNameservers = "the runtime did not pass the pod's nameservers (capability dns): all " +
	"of port 53 is captured"

// Find settles which nameservers are captured: those of the pod where they are known, else
// everything, which it reports. Without Capture nothing is.
func (d *DNS) Find(servers []netip.Addr) (unknown bool) {
	unknown = d.Capture && !d.Everywhere && len(servers) == 0
	d.Everywhere = d.Capture && (d.Everywhere || unknown)
	if !d.Capture || d.Everywhere {
		return unknown
	}
	var hosts []netip.Prefix
	for _, s := range servers {
		hosts = append(hosts, host(s.WithZone("").Unmap()))
	}
	for _, h := range outermost(hosts) {
		d.Servers = append(d.Servers, h.Addr())
	}
	return false
}
