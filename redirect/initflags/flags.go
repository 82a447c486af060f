package initflags

import (
	"slices"
	"strings"
)

// flag is a flag of istio-init.
type flag struct {
	short, long string
	toggle      bool   // true or false; the name alone says true
	also        string // a variable that wins over the one of the flag's own name
	about       string // for people
}

// flags are those that decide what is redirected.
//
// Source: tools/istio-iptables/pkg/cmd/root.go of istio/istio.
var flags = []flag{
	{short: "p", long: "envoy-port", about: "the proxy's port for what the pod sends (15001)"},
	{short: "z", long: "inbound-capture-port",
		about: "the proxy's port for what enters the pod (15006)"},
	{short: "e", long: "inbound-tunnel-port",
		about: "the proxy's port for tunnels, which is never captured (15008)"},
	{short: "u", long: "proxy-uid",
		about: "the proxy's users, whose traffic is not captured (1337)"},
	{short: "g", long: "proxy-gid", about: "the proxy's groups (the numbers of --proxy-uid)"},
	{short: "m", long: "istio-inbound-interception-mode", about: "REDIRECT or TPROXY (REDIRECT)"},
	{short: "i", long: "istio-service-cidr",
		about: "captured destinations: CIDRs, or * for all (none)"},
	{short: "x", long: "istio-service-exclude-cidr", about: "CIDRs that are not captured"},
	{short: "b", long: "istio-inbound-ports",
		about: "captured ports of what enters, or * for all (none)"},
	{short: "d", long: "istio-local-exclude-ports",
		about: "ports of what enters that are not captured"},
	{short: "q", long: "istio-outbound-ports",
		about: "ports that are captured, whatever the destination"},
	{short: "o", long: "istio-local-outbound-ports-exclude",
		about: "ports that are not captured, whatever the destination"},
	{short: "k", long: "kube-virt-interfaces",
		about: "interfaces of virtual machines, which send what enters there"},
	{short: "c", long: "istio-exclude-interfaces",
		about: "interfaces on which nothing is captured"},
	{short: "t", long: "istio-inbound-tproxy-mark",
		about: "the mark of packets for the proxy, with TPROXY (1337)"},
	{short: "r", long: "istio-inbound-tproxy-route-table",
		about: "the routing table for them (133)"},
	{long: "redirect-dns", also: "ISTIO_META_DNS_CAPTURE", toggle: true,
		about: "capture name service, for the nameservers of /etc/resolv.conf"},
	{long: "capture-all-dns", toggle: true,
		about: "with --redirect-dns: capture name service for any nameserver"},
	{long: "drop-invalid", also: "INVALID_DROP", toggle: true,
		about: "drop packets that belong to no connection"},
}

// workFlags decide what istio-init does with the rules, where, and by what.
var workFlags = []flag{
	{long: "dry-run", short: "n", toggle: true, about: "print the rules, and write none"},
	{long: "skip-rule-apply", toggle: true, about: "write no rules"},
	{long: "run-validation", toggle: true,
		about: "try whether connections are redirected; ends with 126 if not"},
	{long: "iptables-probe-port", about: "port on which validation calls the pod itself (15002)"},
	{long: "probe-timeout", about: "how long validation may take (5s)"},
	{long: "reconcile", toggle: true,
		about: "accepted: rules of earlier runs are always replaced"},
	{long: "cleanup-only", toggle: true,
		about: "remove the rules, given the flags that wrote them"},
	{long: "force-apply", toggle: true, about: "write the rules even if they are there"},
	{long: "native-nftables", toggle: true, about: "accepted: nftables is the default"},
	{long: "force-iptables-binary",
		about: "nft or legacy: use the image's iptables instead of nftables"},
	{long: "network-namespace",
		about: "path of the pod's network namespace (that of the process)"},
	{long: "cni-mode", toggle: true,
		about: "with --network-namespace: accepted, changes nothing"},
}

// otherFlags change nothing here. Most of them are about logs, or of older releases, whose command
// lines are still in templates.
var otherFlags = []flag{
	{long: "dual-stack", toggle: true, about: "accepted: both families always have their rules"},
	{long: "restore-format", short: "f", toggle: true},
	{long: "force-iptables-version"},
	{long: "iptables-version"},
	{long: "iptables-trace-logging", toggle: true},
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

// Usage is a flag for people.
type Usage struct {
	Short, Long string // the names, without hyphens; Short is "" where there is none
	Toggle      bool   // it takes no value
	About       string // what it does, and in parentheses what holds without it
}

// Usages lists the flags of today's istio-init.
func Usages() []Usage {
	var all []Usage
	for _, f := range slices.Concat(flags, workFlags, otherFlags) {
		if f.about != "" {
			all = append(all, Usage{f.short, f.long, f.toggle, f.about})
		}
	}
	return all
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
