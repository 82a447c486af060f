package initflags

import "strings"

// flag is a flag of istio-init.
type flag struct {
	short, long string
	toggle      bool   // true or false; the name alone says true
	also        string // a variable that wins over the one of the flag's own name
}

// flags are those that decide what is redirected.
//
// Source: tools/istio-iptables/pkg/cmd/root.go of istio/istio.
var flags = []flag{
	{short: "p", long: "envoy-port"},
	{short: "z", long: "inbound-capture-port"},
	{short: "e", long: "inbound-tunnel-port"},
	{short: "u", long: "proxy-uid"},
	{short: "g", long: "proxy-gid"},
	{short: "m", long: "istio-inbound-interception-mode"},
	{short: "i", long: "istio-service-cidr"},
	{short: "x", long: "istio-service-exclude-cidr"},
	{short: "b", long: "istio-inbound-ports"},
	{short: "d", long: "istio-local-exclude-ports"},
	{short: "q", long: "istio-outbound-ports"},
	{short: "o", long: "istio-local-outbound-ports-exclude"},
	{short: "k", long: "kube-virt-interfaces"},
	{short: "c", long: "istio-exclude-interfaces"},
	{short: "t", long: "istio-inbound-tproxy-mark"},
	{short: "r", long: "istio-inbound-tproxy-route-table"},
	{long: "redirect-dns", also: "ISTIO_META_DNS_CAPTURE", toggle: true},
	{long: "capture-all-dns", toggle: true},
	{long: "drop-invalid", also: "INVALID_DROP", toggle: true},
}

// otherFlags are about how istio-init works: what it prints, whether it writes rules, checks them
// or removes them, and by which program. Some of them are of older releases, whose command lines
// are still in templates.
var otherFlags = []flag{
	{long: "dry-run", short: "n", toggle: true},
	{long: "restore-format", short: "f", toggle: true},
	{long: "skip-rule-apply", toggle: true},
	{long: "run-validation", toggle: true},
	{long: "iptables-probe-port"},
	{long: "probe-timeout"},
	{long: "reconcile", toggle: true},
	{long: "cleanup-only", toggle: true},
	{long: "force-apply", toggle: true},
	{long: "native-nftables", toggle: true},
	{long: "force-iptables-version"},
	{long: "iptables-version"},
	{long: "iptables-trace-logging", toggle: true},
	{long: "dual-stack", toggle: true}, // here both families always have their rules
	{long: "network-namespace"},
	{long: "cni-mode", toggle: true},
	{long: "host-nsenter-exec", toggle: true},
	{long: "log_output_level"},
	{long: "log_as_json", toggle: true},
	{long: "log_caller"},
	{long: "log_target"},
	{long: "log_stacktrace_level"},
	{long: "log_rotate"},
	{long: "log_rotate_max_age"},
	{long: "log_rotate_max_size"},
	{long: "log_rotate_max_backups"},
	{long: "vklog"},
}

// What istio-init reads from variables only.
const (
	OwnerGroups        = "ISTIO_OUTBOUND_OWNER_GROUPS"         // whose outbound traffic is captured
	OwnerGroupsExclude = "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE" // whose is not, if all others' is
	LoopbackCIDR       = "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"   // the destinations within the pod
)

// variables are they, with what holds where they are absent.
var variables = []struct{ name, initial string }{
	{OwnerGroups, "*"},
	{OwnerGroupsExclude, ""},
	{LoopbackCIDR, "127.0.0.1/32"},
}

// variables are those that istio-init reads a flag from where the command line is silent; the later
// one wins. Only the flag of Envoy's port has none.
func (f flag) variables() []string {
	if f.long == "envoy-port" {
		return nil
	}
	names := []string{strings.ToUpper(strings.ReplaceAll(f.long, "-", "_"))}
	if f.also != "" {
		names = append(names, f.also)
	}
	return names
}
