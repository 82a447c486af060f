package kernel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// request is a pod and the configuration of its cluster.
type request struct {
	name   string
	pod    redirect.Pod
	config redirect.Config
}

// option is one thing that a pod asks for. Options with the same key exclude each other.
type option struct {
	name, key string
	set       func(*request)
}

var nameservers = []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("192.0.2.54"),
	netip.MustParseAddr("2001:db8::53")}

func plain() request {
	return request{
		name: "default",
		pod: redirect.Pod{
			Namespace: "shop", Name: "web",
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			Spec: &redirect.Spec{Containers: []redirect.Container{
				{Name: "web", RunAsUser: new(int64(1000))},
				{Name: "istio-proxy", Env: map[string]string{}},
			}},
			Nameservers: nameservers,
		},
		config: redirect.Defaults(),
	}
}

func annotation(name, key, value string) option {
	return option{name, key, func(r *request) { r.pod.Annotations[key] = value }}
}

func variable(name, key, value string) option {
	return option{name, key, func(r *request) { proxy(r).Env[key] = value }}
}

func proxy(r *request) *redirect.Container {
	i := slices.IndexFunc(r.pod.Spec.Containers,
		func(c redirect.Container) bool { return c.Name == "istio-proxy" })
	return &r.pod.Spec.Containers[i]
}

const traffic = "traffic.sidecar.istio.io/"

// options are everything that a pod can ask for, each value that has rules of its own.
var options = []option{
	annotation("tproxy", "sidecar.istio.io/interceptionMode", "TPROXY"),
	annotation("include one CIDR", traffic+"includeOutboundIPRanges", "198.51.100.0/24"),
	annotation("include CIDRs", traffic+"includeOutboundIPRanges",
		"198.51.100.0/24,203.0.113.7/32,2001:db8:c::/48"),
	annotation("include IPv6 only", traffic+"includeOutboundIPRanges", "2001:db8:c::/48"),
	annotation("include no CIDR", traffic+"includeOutboundIPRanges", ""),
	annotation("include loopback", traffic+"includeOutboundIPRanges",
		"127.0.0.0/8,198.51.100.0/24"),
	annotation("include all of IPv4", traffic+"includeOutboundIPRanges", "0.0.0.0/0"),
	annotation("exclude CIDRs", traffic+"excludeOutboundIPRanges",
		"198.51.100.0/25,198.51.100.128/26,203.0.113.0/24,2001:db8:c::/48,2001:db8:d::/48"),
	annotation("include inbound ports", traffic+"includeInboundPorts", "80,9090"),
	annotation("include no inbound port", traffic+"includeInboundPorts", ""),
	annotation("exclude inbound ports", traffic+"excludeInboundPorts", "8080, 9090"),
	annotation("status port", "status.sidecar.istio.io/port", "15030"),
	annotation("no status port", "status.sidecar.istio.io/port", "0"),
	annotation("include outbound ports", traffic+"includeOutboundPorts", "8080,53"),
	annotation("exclude outbound ports", traffic+"excludeOutboundPorts", "8080,53"),
	annotation("exclude one outbound port", traffic+"excludeOutboundPorts", "9090"),
	annotation("exclude interface", traffic+"excludeInterfaces", "extra0"),
	annotation("exclude interfaces by prefix", traffic+"excludeInterfaces", "ext+,nonesuch"),
	annotation("virtual interface", "istio.io/reroute-virtual-interfaces", "extra0"),
	annotation("exclude uids", "sidecar-cni.io/excludeOutboundUIDs", "2000,3000-3999"),
	annotation("exclude a range of uids", "sidecar-cni.io/excludeOutboundUIDs", "2000-2099"),
	{"init containers bypass", "sidecar-cni.io/initContainers", func(r *request) {
		r.pod.Annotations["sidecar-cni.io/initContainers"] = "bypass"
		migrate := redirect.Container{Name: "migrate", Init: true, RunAsUser: new(int64(2000))}
		r.pod.Spec.Containers = append([]redirect.Container{migrate}, r.pod.Spec.Containers...)
	}},
	variable("dns", "ISTIO_META_DNS_CAPTURE", "true"),
	{"dns everywhere", "ISTIO_META_DNS_CAPTURE", func(r *request) {
		proxy(r).Env["ISTIO_META_DNS_CAPTURE"], proxy(r).Env["CAPTURE_ALL_DNS"] = "true", "true"
	}},
	{"dns over IPv4", "ISTIO_META_DNS_CAPTURE", func(r *request) {
		proxy(r).Env["ISTIO_META_DNS_CAPTURE"], r.pod.Nameservers = "true", nameservers[:1]
	}},
	variable("drop invalid", "INVALID_DROP", "true"),
	variable("include groups", "ISTIO_OUTBOUND_OWNER_GROUPS", "1000,4000"),
	variable("include no group", "ISTIO_OUTBOUND_OWNER_GROUPS", ""),
	variable("exclude groups", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4000,4002"),
	variable("loopback CIDR", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.0/8"),
	{"proxy user", "proxy", func(r *request) { proxy(r).RunAsUser = new(int64(2500)) }},
	{"root proxy", "proxy", func(r *request) {
		proxy(r).RunAsUser, proxy(r).
			RunAsGroup = new(int64(0)), new(int64(1338))
	}},
	{"several proxy users", "proxy", func(r *request) {
		r.config.Proxy = redirect.Identity{UIDs: []uint32{1337, 1340}, GIDs: []uint32{1337, 1341}}
	}},
	{"other ports", "config", func(r *request) {
		r.config.Ports = redirect.Listen{Outbound: 25001, Inbound: 25006, Tunnel: 25008, DNS: 25053}
		r.config.Marks = redirect.Marks{TProxy: 77, SelfCall: 78, Table: 79}
	}},
}

func (o option) on(r request) request {
	o.set(&r)
	if r.name == "default" {
		r.name = o.name
	} else {
		r.name += " + " + o.name
	}
	return r
}

// alone is the default pod and every option by itself, with and without TPROXY.
func alone() []request {
	all := []request{plain()}
	for _, o := range options {
		all = append(all, o.on(plain()))
	}
	for _, o := range options[1:] {
		all = append(all, o.on(options[0].on(plain())))
	}
	return all
}

// pairs is every option with every other.
func pairs() []request {
	var all []request
	for i, a := range options {
		for _, b := range options[i+1:] {
			if a.key != b.key {
				all = append(all, b.on(a.on(plain())))
			}
		}
	}
	return all
}

func compile(t testing.TB, r request) (redirect.Policy, redirect.Ruleset) {
	t.Helper()
	d, err := redirect.Decide(r.pod, r.config)
	if err != nil || d.Skip != "" || d.AskMore {
		t.Fatalf("%s: the pod is not ours: %+v, %v", r.name, d, err)
	}
	return d.Policy, redirect.Compile(d.Policy)
}

// testName makes a subtest's name that can be typed.
func testName(r request) string { return strings.ReplaceAll(r.name, " ", "_") }

func sortStrings(s []string) { slices.Sort(s) }
