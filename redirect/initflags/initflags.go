// Package initflags reads the command line of istio-init, the init container that programs the
// rules where no CNI plugin does.
//
//	args := []string{"-p", "15001", "-z", "15006", "-u", "1337", "-i", "*", "-b", "*"}
//	policy, err := initflags.Policy(args, nil, redirect.Defaults())
//
// Read is the syntax: which flag has which text, on the command line or by a variable. Policy is
// the meaning: what is redirected.
//
// Be aware: flags that make istio-init write no rules, such as --dry-run or --skip-rule-apply,
// do not change the policy, which is what the rules would be. ReadWork reads them.
package initflags

import (
	"net/netip"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// settings are the keys under which a pod says what istio-init is told by a flag, by its long name.
var settings = map[string]string{
	"istio-service-cidr":                 "traffic.sidecar.istio.io/includeOutboundIPRanges",
	"istio-service-exclude-cidr":         "traffic.sidecar.istio.io/excludeOutboundIPRanges",
	"istio-inbound-ports":                "traffic.sidecar.istio.io/includeInboundPorts",
	"istio-local-exclude-ports":          "traffic.sidecar.istio.io/excludeInboundPorts",
	"istio-outbound-ports":               "traffic.sidecar.istio.io/includeOutboundPorts",
	"istio-local-outbound-ports-exclude": "traffic.sidecar.istio.io/excludeOutboundPorts",
	"kube-virt-interfaces":               "istio.io/reroute-virtual-interfaces",
	"istio-exclude-interfaces":           "traffic.sidecar.istio.io/excludeInterfaces",
	"redirect-dns":                       "ISTIO_META_DNS_CAPTURE",
	"capture-all-dns":                    "CAPTURE_ALL_DNS",
	"drop-invalid":                       "INVALID_DROP",
}

// Policy reads istio-init's command line, with or without the programs' names in front, and the
// variables of its container as a policy. The mistakes of all flags come at once, as Mistakes. The
// pod's nameservers are not known here: where DNS is captured, all of port 53 is.
func Policy(args []string, env map[string]string, cfg redirect.Config) (redirect.Policy, error) {
	p, _, err := PolicyIn(args, env, cfg, nil)
	return p, err
}

// PolicyIn reads the same for a pod with these nameservers. Where DNS is captured and there are
// none, all of port 53 is, and unknown is true.
func PolicyIn(args []string, env map[string]string, cfg redirect.Config, nameservers []netip.Addr) (
	p redirect.Policy, unknown bool, err error) {
	values, err := Read(args, env, cfg.Values)
	if err != nil {
		return redirect.Policy{}, false, err
	}
	p = cfg.Basis()
	p.Inbound.ExcludePorts = nil // here the injector names all of them
	var mistakes redirect.Mistakes
	for _, f := range flags {
		mistakes = append(mistakes, set(&p, f.long, values[f.long])...)
	}
	for _, v := range variables {
		mistakes = append(mistakes, p.Set(v.name, v.name, values[v.name].Text)...)
	}
	if len(mistakes) > 0 {
		return redirect.Policy{}, false, mistakes
	}
	unknown = p.DNS.Find(nameservers)
	return p, unknown, nil
}

// set reads the value of a flag. An absent one is an empty value, as it is there: without -i
// nothing outbound is captured, without -b nothing inbound.
func set(p *redirect.Policy, long string, v Value) redirect.Mistakes {
	switch long {
	case "envoy-port":
		return v.port(&p.Ports.Outbound)
	case "inbound-capture-port":
		return v.port(&p.Ports.Inbound)
	case "inbound-tunnel-port":
		return v.port(&p.Ports.Tunnel)
	case "proxy-uid": // for the groups too, which -g may change afterwards
		_ = v.ids(&p.Proxy.GIDs)
		return v.ids(&p.Proxy.UIDs)
	case "proxy-gid":
		return v.ids(&p.Proxy.GIDs)
	case "istio-inbound-interception-mode":
		return v.mode(&p.Mode)
	case "istio-inbound-tproxy-mark":
		return v.number(&p.Marks.TProxy)
	case "istio-inbound-tproxy-route-table":
		return v.number(&p.Marks.Table)
	}
	return p.Set(settings[long], v.Key, v.Text)
}
