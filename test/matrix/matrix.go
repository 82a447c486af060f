// Package matrix lists what a pod may ask for: each option alone, and every two of them. It is for
// tests.
//
//	for _, r := range matrix.Alone() {
//		decision, err := redirect.Decide(r.Pod, r.Config)
//	}
package matrix

import (
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Request is a pod and the configuration of its cluster.
type Request struct {
	Name   string // of the options that it has
	Pod    redirect.Pod
	Config redirect.Config
}

// Option is one thing that a pod asks for. Options with the same key exclude each other.
type Option struct {
	Name, Key string
	Set       func(*Request)
}

// Nameservers are those of every pod.
var Nameservers = []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("192.0.2.54"),
	netip.MustParseAddr("2001:db8::53")}

// Plain returns the default pod, which asks for nothing.
func Plain() Request {
	return Request{
		Name: "default",
		Pod: redirect.Pod{
			Namespace: "shop", Name: "web",
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			Spec: &redirect.Spec{Containers: []redirect.Container{
				{Name: "web", RunAsUser: new(int64(1000))},
				{Name: "istio-proxy", Env: map[string]string{}},
			}},
			Nameservers: Nameservers,
		},
		Config: redirect.Defaults(),
	}
}

// Annotation returns an option that is an annotation.
func Annotation(name, key, value string) Option {
	return Option{name, key, func(r *Request) { r.Pod.Annotations[key] = value }}
}

// Variable returns an option that is a variable of the proxy's container.
func Variable(name, key, value string) Option {
	return Option{name, key, func(r *Request) { Proxy(r).Env[key] = value }}
}

// Proxy returns the proxy's container.
func Proxy(r *Request) *redirect.Container {
	i := slices.IndexFunc(r.Pod.Spec.Containers,
		func(c redirect.Container) bool { return c.Name == "istio-proxy" })
	return &r.Pod.Spec.Containers[i]
}

// Traffic begins the keys of annotations about traffic.
const Traffic = "traffic.sidecar.istio.io/"

// Options are everything that a pod can ask for, each value that has rules of its own.
var Options = []Option{
	Annotation("tproxy", "sidecar.istio.io/interceptionMode", "TPROXY"),
	Annotation("include one CIDR", Traffic+"includeOutboundIPRanges", "198.51.100.0/24"),
	Annotation("include CIDRs", Traffic+"includeOutboundIPRanges",
		"198.51.100.0/24,203.0.113.7/32,2001:db8:c::/48"),
	Annotation("include IPv6 only", Traffic+"includeOutboundIPRanges", "2001:db8:c::/48"),
	Annotation("include no CIDR", Traffic+"includeOutboundIPRanges", ""),
	Annotation("include loopback", Traffic+"includeOutboundIPRanges",
		"127.0.0.0/8,198.51.100.0/24"),
	Annotation("include a mapped CIDR", Traffic+"includeOutboundIPRanges",
		"::ffff:198.51.100.0/120,2001:db8:c::/48"),
	Annotation("exclude a mapped CIDR", Traffic+"excludeOutboundIPRanges",
		"::ffff:203.0.113.0/120"),
	Annotation("include all of IPv4", Traffic+"includeOutboundIPRanges", "0.0.0.0/0"),
	Annotation("exclude CIDRs", Traffic+"excludeOutboundIPRanges",
		"198.51.100.0/25,198.51.100.128/26,203.0.113.0/24,2001:db8:c::/48,2001:db8:d::/48"),
	Annotation("include inbound ports", Traffic+"includeInboundPorts", "80,9090"),
	Annotation("include no inbound port", Traffic+"includeInboundPorts", ""),
	Annotation("exclude inbound ports", Traffic+"excludeInboundPorts", "8080, 9090"),
	Annotation("status port", "status.sidecar.istio.io/port", "15030"),
	Annotation("no status port", "status.sidecar.istio.io/port", "0"),
	Annotation("include outbound ports", Traffic+"includeOutboundPorts", "8080,53"),
	Annotation("exclude outbound ports", Traffic+"excludeOutboundPorts", "8080,53"),
	Annotation("exclude one outbound port", Traffic+"excludeOutboundPorts", "9090"),
	Annotation("exclude interface", Traffic+"excludeInterfaces", "extra0"),
	Annotation("exclude interfaces by prefix", Traffic+"excludeInterfaces", "ext+,nonesuch"),
	Annotation("virtual interface", "istio.io/reroute-virtual-interfaces", "extra0"),
	{"one port both ways", "sidecar-cni.io/inboundPort", func(r *Request) {
		r.Pod.Annotations["sidecar-cni.io/outboundPort"] = "25011"
		r.Pod.Annotations["sidecar-cni.io/inboundPort"] = "25011"
	}},
	Annotation("exclude uids", "sidecar-cni.io/excludeOutboundUIDs", "2000,3000-3999"),
	Annotation("exclude a range of uids", "sidecar-cni.io/excludeOutboundUIDs", "2000-2099"),
	{"init containers bypass", "sidecar-cni.io/initContainers", func(r *Request) {
		r.Pod.Annotations["sidecar-cni.io/initContainers"] = "bypass"
		migrate := redirect.Container{Name: "migrate", Init: true, RunAsUser: new(int64(2000))}
		r.Pod.Spec.Containers = append([]redirect.Container{migrate}, r.Pod.Spec.Containers...)
	}},
	Variable("dns", "ISTIO_META_DNS_CAPTURE", "true"),
	{"dns everywhere", "ISTIO_META_DNS_CAPTURE", func(r *Request) {
		Proxy(r).Env["ISTIO_META_DNS_CAPTURE"], Proxy(r).Env["CAPTURE_ALL_DNS"] = "true", "true"
	}},
	{"dns over IPv4", "ISTIO_META_DNS_CAPTURE", func(r *Request) {
		Proxy(r).Env["ISTIO_META_DNS_CAPTURE"], r.Pod.Nameservers = "true", Nameservers[:1]
	}},
	{"dns of unknown nameservers", "ISTIO_META_DNS_CAPTURE", func(r *Request) {
		Proxy(r).Env["ISTIO_META_DNS_CAPTURE"], r.Pod.Nameservers = "true", nil
	}},
	Variable("drop invalid", "INVALID_DROP", "true"),
	Variable("include groups", "ISTIO_OUTBOUND_OWNER_GROUPS", "1000,4000"),
	Variable("include no group", "ISTIO_OUTBOUND_OWNER_GROUPS", ""),
	Variable("exclude groups", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4000,4002"),
	Variable("loopback CIDR", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.0/8"),
	{"proxy user", "proxy", func(r *Request) { Proxy(r).RunAsUser = new(int64(2500)) }},
	{"root proxy", "proxy", func(r *Request) {
		Proxy(r).RunAsUser, Proxy(r).
			RunAsGroup = new(int64(0)), new(int64(1338))
	}},
	{"several proxy users", "proxy", func(r *Request) {
		r.Config.Proxy = redirect.Identity{UIDs: []uint32{1337, 1340}, GIDs: []uint32{1337, 1341}}
	}},
	{"other ports", "config", func(r *Request) {
		r.Config.Ports = redirect.Listen{Outbound: 25001, Inbound: 25006, Tunnel: 25008, DNS: 25053}
		r.Config.Marks = redirect.Marks{TProxy: 77, SelfCall: 78, Table: 79}
	}},
	{"other ports by flags", "config", func(r *Request) {
		r.Config.Ports.Outbound, r.Config.Ports.Inbound, r.Config.Ports.Tunnel = 25001, 25006, 25008
		r.Config.Marks.TProxy, r.Config.Marks.Table = 77, 79
	}},
}

// On returns the request with the option added.
func (o Option) On(r Request) Request {
	o.Set(&r)
	if r.Name == "default" {
		r.Name = o.Name
	} else {
		r.Name += " + " + o.Name
	}
	return r
}

// Alone returns the default pod and every option by itself, with and without TPROXY.
func Alone() []Request {
	all := []Request{Plain()}
	for _, o := range Options {
		all = append(all, o.On(Plain()))
	}
	for _, o := range Options[1:] {
		all = append(all, o.On(Options[0].On(Plain())))
	}
	return all
}

// Pairs returns every option with every other.
func Pairs() []Request {
	var all []Request
	for i, a := range Options {
		for _, b := range Options[i+1:] {
			if a.Key != b.Key {
				all = append(all, b.On(a.On(Plain())))
			}
		}
	}
	return all
}
