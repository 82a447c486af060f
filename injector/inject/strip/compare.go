package strip

import (
	"fmt"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// field is a part of a policy, which both sides have to agree on.
type field struct {
	name  string                        // for people
	flag  string                        // by its long name, or a variable; "": there is none
	mend  string                        // what to do where the sides differ
	value func(*redirect.Policy) string // equal texts are equal values
}

const (
	byAnnotation = "leave istio-init in, since no annotation can say so"
	byVariable   = "set the variable in the env of istio-proxy to what istio-init is told"
	byUser       = "set securityContext.runAsUser of istio-proxy to that number"
	byGroup      = "have runAsUser of istio-proxy, -u and -g say one number, for user and group"
	byCluster    = "have the plugin's configuration say so, or change istio-init and the proxy"
)

// fields are all of redirect.Policy, but for the nameservers, which only the node knows, and the
// excluded users: only annotations of ours exclude some, which the pod's author or its cluster has
// meant so.
var fields = []field{
	{"interception mode", "istio-inbound-interception-mode", byAnnotation,
		func(p *redirect.Policy) string { return string(p.Mode) }},
	{"outbound port", "envoy-port", byAnnotation,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Ports.Outbound) }},
	{"inbound port", "inbound-capture-port", byAnnotation,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Ports.Inbound) }},
	{"tunnel port", "inbound-tunnel-port", byCluster,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Ports.Tunnel) }},
	{"port of name service", "", byCluster,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Ports.DNS) }},
	{"users of the proxy", "proxy-uid", byUser,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Proxy.UIDs) }},
	{"groups of the proxy", "proxy-gid", byGroup,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Proxy.GIDs) }},
	{"included inbound ports", "istio-inbound-ports", byAnnotation,
		func(p *redirect.Policy) string { return included(p.Inbound.All, p.Inbound.Ports) }},
	{"excluded inbound ports", "istio-local-exclude-ports", byAnnotation,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Inbound.ExcludePorts) }},
	{"included CIDRs", "istio-service-cidr", byAnnotation,
		func(p *redirect.Policy) string { return included(p.Outbound.All, p.Outbound.CIDRs) }},
	{"captured loopback", "istio-service-cidr", byAnnotation,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Outbound.Loopback) }},
	{"excluded CIDRs", "istio-service-exclude-cidr", byAnnotation,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Outbound.ExcludeCIDRs) }},
	{"included outbound ports", "istio-outbound-ports", byAnnotation,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Outbound.Ports) }},
	{"excluded outbound ports", "istio-local-outbound-ports-exclude", byAnnotation,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Outbound.ExcludePorts) }},
	{"included groups", "ISTIO_OUTBOUND_OWNER_GROUPS", byVariable,
		func(p *redirect.Policy) string { return included(p.Groups.All, p.Groups.Include) }},
	{"excluded groups", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", byVariable,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Groups.Exclude) }},
	{"capture of name service (ISTIO_META_DNS_CAPTURE)", "redirect-dns", byVariable,
		func(p *redirect.Policy) string { return fmt.Sprint(p.DNS.Capture) }},
	{"capture of all name service (CAPTURE_ALL_DNS)", "capture-all-dns", byVariable,
		func(p *redirect.Policy) string { return fmt.Sprint(p.DNS.Everywhere) }},
	{"excluded interfaces", "istio-exclude-interfaces", byAnnotation,
		func(p *redirect.Policy) string { return fmt.Sprint(p.ExcludeInterfaces) }},
	{"virtual interfaces", "kube-virt-interfaces", byAnnotation,
		func(p *redirect.Policy) string { return fmt.Sprint(p.VirtualInterfaces) }},
	{"loopback", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", byVariable,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Loopback) }},
	{"passthrough sources", "", byCluster,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Passthrough) }},
	{"dropping of invalid packets (INVALID_DROP)", "drop-invalid", byVariable,
		func(p *redirect.Policy) string { return fmt.Sprint(p.DropInvalid) }},
	{"mark of TPROXY", "istio-inbound-tproxy-mark", byCluster,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Marks.TProxy) }},
	{"mark of calls to itself", "", byCluster,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Marks.SelfCall) }},
	{"routing table of TPROXY", "istio-inbound-tproxy-route-table", byCluster,
		func(p *redirect.Policy) string { return fmt.Sprint(p.Marks.Table) }},
}

func included[T any](all bool, list []T) string {
	if all {
		return "*"
	}
	return fmt.Sprint(list)
}

// relevant takes out of two policies what need not agree, or does not count beside the rest.
func relevant(was, would *redirect.Policy, open []uint16) {
	resolved := would.DNS.Capture
	for _, p := range []*redirect.Policy{was, would} {
		p.Inbound.ExcludePorts = except(p.Inbound.ExcludePorts, open)
		if !p.Inbound.All {
			p.Inbound.ExcludePorts = nil
		}
		if !p.Groups.All {
			p.Groups.Exclude = nil
		}
		if !resolved {
			p.Ports.DNS = 0
		}
		if p.Mode != redirect.ModeTProxy {
			p.Marks = redirect.Marks{}
		}
		p.Proxy.UIDs = slices.Sorted(slices.Values(p.Proxy.UIDs))
		p.Proxy.GIDs = slices.Sorted(slices.Values(p.Proxy.GIDs))
	}
}

// differences says where a policy is not that of istio-init.
func (c *command) differences(was, would *redirect.Policy) (reasons []string) {
	for _, f := range fields {
		before, after := f.value(was), f.value(would)
		if before == after {
			continue
		}
		source := "istio-init takes"
		if told := c.values[f.flag]; told.Text != "" {
			source = reason("%q of istio-init says", told.Key)
		}
		reasons = append(reasons, reason("%s: %s %s, without it the pod gets %s: %s", f.name,
			source, before, after, f.mend))
	}
	return reasons
}
