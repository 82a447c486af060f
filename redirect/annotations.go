package redirect

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The keys that decide whether a pod is ours, beside the table.
const (
	keyInject       = "sidecar.istio.io/inject"
	keyMode         = "sidecar.istio.io/interceptionMode"
	keyStatusPort   = "status.sidecar.istio.io/port"
	envDisableEnvoy = "DISABLE_ENVOY"
	keyBypass       = "sidecar-cni.io/initContainers"
	keyExcludeUIDs  = "sidecar-cni.io/excludeOutboundUIDs"
	keyOutboundPort = "sidecar-cni.io/outboundPort"
	keyInboundPort  = "sidecar-cni.io/inboundPort"
)

const (
	wantBool      = "true, t, 1, false, f or 0"
	wantPort      = "a port from 0 to 65535"
	wantID        = "a number from 0 to 4294967294; names are not known outside of the container"
	wantIDRange   = "a number from 0 to 4294967294, or a range of them such as 2000-2999"
	wantCIDR      = "a CIDR such as 10.0.0.0/8 or 2001:db8::/32"
	wantInterface = "an interface's name of at most 15 letters, digits and . _ - @ ~, with a + " +
		"at its end for every name that begins so"
	wantMode     = "REDIRECT, TPROXY or NONE"
	wantLoopback = "a CIDR within 127.0.0.0/8 such as 127.0.0.1/32"
)

// setting is one thing that a pod may ask for. The table of them is the parser, and the reference
// page is printed from it.
type setting struct {
	key     string
	older   string // an earlier name, read where the key is absent
	env     bool   // a variable of the proxy's container, else an annotation
	lenient bool   // Istio's injector does not look at it, and istio-init drops empty items
	initial string // what holds where the pod says nothing
	form    string
	about   string
	read    func(*reader, string, *Policy)
}

var settings = []setting{
	{
		key: keyMode, initial: string(ModeRedirect), form: "`REDIRECT`, `TPROXY` or `NONE`",
		about: "How inbound traffic reaches the proxy: `REDIRECT` rewrites its destination, " +
			"`TPROXY` hands it over with the client's address as it is, `NONE` leaves the whole " +
			"pod alone, outbound too.",
		read: readMode,
	},
	{
		key: "traffic.sidecar.istio.io/includeOutboundIPRanges", initial: "*",
		form: "`*`, or a list of CIDRs; empty captures none",
		about: "The destinations whose traffic is captured. One that begins in loopback, such as " +
			"127.0.0.0/8, has the pod's calls to itself captured too.",
		read: func(r *reader, v string, p *Policy) {
			if p.Outbound.All = isAll(v); !p.Outbound.All {
				p.Outbound.CIDRs, p.Outbound.Loopback = r.cidrs(v)
			}
		},
	},
	{
		key: "traffic.sidecar.istio.io/excludeOutboundIPRanges", form: "a list of CIDRs",
		about: "Destinations that are left alone, before any inclusion is looked at.",
		read:  func(r *reader, v string, p *Policy) { p.Outbound.ExcludeCIDRs, _ = r.cidrs(v) },
	},
	{
		key: "traffic.sidecar.istio.io/includeInboundPorts", initial: "*",
		form:  "`*`, or a list of ports; empty captures none",
		about: "The ports of the pod whose inbound traffic is captured.",
		read: func(r *reader, v string, p *Policy) {
			if p.Inbound.All = isAll(v); !p.Inbound.All {
				p.Inbound.Ports = r.ports(v)
			}
		},
	},
	{
		key: "traffic.sidecar.istio.io/excludeInboundPorts", form: "a list of ports",
		about: "Inbound ports that are left alone; matters only where `*` is included. Health, " +
			"telemetry and status ports are always added.",
		read: func(r *reader, v string, p *Policy) {
			p.Inbound.ExcludePorts = sorted(append(p.Inbound.ExcludePorts, r.ports(v)...))
		},
	},
	{
		key: keyStatusPort, initial: "15020", form: "a port; 0 for none",
		about: "The proxy's status port: left alone inbound. 15020 is left alone even where " +
			"another one is named.",
		read: func(r *reader, v string, p *Policy) {
			if port := r.port(v); port != 0 {
				p.Inbound.ExcludePorts = sorted(append(p.Inbound.ExcludePorts, port))
			}
		},
	},
	{
		key: "traffic.sidecar.istio.io/includeOutboundPorts", lenient: true,
		form:  "a list of ports",
		about: "Destination ports that are captured even where the address is not included.",
		read:  func(r *reader, v string, p *Policy) { p.Outbound.Ports = r.ports(v) },
	},
	{
		key: "traffic.sidecar.istio.io/excludeOutboundPorts", form: "a list of ports",
		about: "Destination ports that are left alone, TCP and UDP.",
		read:  func(r *reader, v string, p *Policy) { p.Outbound.ExcludePorts = r.ports(v) },
	},
	{
		key: "traffic.sidecar.istio.io/excludeInterfaces", lenient: true,
		form:  "a list of interfaces",
		about: "Interfaces on which neither direction is captured.",
		read:  func(r *reader, v string, p *Policy) { p.ExcludeInterfaces = r.interfaces(v) },
	},
	{
		key:   "istio.io/reroute-virtual-interfaces",
		older: "traffic.sidecar.istio.io/kubevirtInterfaces", lenient: true,
		form:  "a list of interfaces",
		about: "Interfaces of virtual machines: what enters the pod there is treated as outbound.",
		read:  func(r *reader, v string, p *Policy) { p.VirtualInterfaces = r.interfaces(v) },
	},
	{
		key: keyOutboundPort, initial: "15001", form: "a port from 1",
		about: "The proxy's port for what the pod sends. It may be the inbound port too: before " +
			"Istio 1.3 proxies had one port both ways. Tunnels and name service have ports of " +
			"their own.",
		read: func(r *reader, v string, p *Policy) { r.listener(v, p.Ports, &p.Ports.Outbound) },
	},
	{
		key: keyInboundPort, initial: "15006", form: "a port from 1",
		about: "The proxy's port for what enters the pod, with the same limits.",
		read:  func(r *reader, v string, p *Policy) { r.listener(v, p.Ports, &p.Ports.Inbound) },
	},
	{
		key: keyExcludeUIDs, form: "a list of uids and ranges such as `1000,2000-2999`",
		about: "Users whose outbound traffic is left alone, so that init containers can reach " +
			"the network before the proxy does. The proxy's own uid cannot be among them.",
		read: func(r *reader, v string, p *Policy) { p.Outbound.ExcludeUIDs = r.idRanges(v) },
	},
	{
		key: keyBypass, form: "`bypass`",
		about: "Leaves the traffic of the init containers alone that start before the proxy. " +
			"Each needs a runAsUser that is not the proxy's and that no app container shares.",
		read: func(r *reader, v string, _ *Policy) {
			if v != "" && v != "bypass" {
				r.mistake(v, `"bypass"`)
			}
		},
	},
	{
		key: "ISTIO_META_DNS_CAPTURE", env: true, initial: "false", form: "a bool",
		about: "Redirects DNS, TCP and UDP, to the proxy's resolver.",
		read:  func(r *reader, v string, p *Policy) { p.DNS.Capture = r.bool(v) },
	},
	{
		key: "CAPTURE_ALL_DNS", env: true, initial: "false", form: "a bool",
		about: "DNS capture of everything to port 53, not only of what goes to the pod's " +
			"nameservers.",
		read: func(r *reader, v string, p *Policy) { p.DNS.Everywhere = r.bool(v) },
	},
	{
		key: "INVALID_DROP", env: true, initial: "false", form: "a bool",
		about: "Drops inbound packets that connection tracking calls invalid.",
		read:  func(r *reader, v string, p *Policy) { p.DropInvalid = r.bool(v) },
	},
	{
		key: "ISTIO_OUTBOUND_OWNER_GROUPS", env: true, lenient: true, initial: "*",
		form:  "`*`, or a list of at most 64 gids; empty captures none",
		about: "The groups whose outbound traffic is captured.",
		read: func(r *reader, v string, p *Policy) {
			if p.Groups.All = isAll(v); !p.Groups.All {
				p.Groups.Include = r.ids(v, maxGroups)
			}
		},
	},
	{
		key: "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", env: true, lenient: true,
		form:  "a list of gids",
		about: "Groups whose outbound traffic is left alone; counts only where `*` is included.",
		read:  func(r *reader, v string, p *Policy) { p.Groups.Exclude = r.ids(v, maxIDRanges) },
	},
	{
		key: "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", env: true, initial: "127.0.0.1/32",
		form:  "a CIDR within 127.0.0.0/8",
		about: "What counts as IPv4 loopback, which is not captured.",
		read:  readLoopback,
	},
	{
		key: envDisableEnvoy, env: true, initial: "false", form: "a bool",
		about: "There is no proxy in the pod: it is left alone.",
		read:  func(r *reader, v string, _ *Policy) { r.bool(v) },
	},
}

func isAll(v string) bool { return strings.TrimSpace(v) == "*" }

func readMode(r *reader, v string, p *Policy) {
	p.Mode = Mode(v)
	if p.Mode != ModeRedirect && p.Mode != ModeTProxy && p.Mode != ModeNone {
		r.mistake(v, wantMode)
	}
}

func readLoopback(r *reader, v string, p *Policy) {
	cidr, err := netip.ParsePrefix(strings.TrimSpace(v))
	if err != nil || !cidr.Addr().Is4() || cidr.Bits() < 8 || !cidr.Addr().IsLoopback() {
		r.mistake(v, wantLoopback)
		return
	}
	p.Loopback = cidr.Masked()
}

func settingOf(key string) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}

// value returns what holds for a key.
func (c Config) value(pod map[string]string, key string) string {
	s, _ := settingOf(key)
	value, _ := c.find(pod, s)
	return value
}

// find returns what holds for a setting and where it comes from: what the pod says, else the
// cluster's stand-in, else the contract's.
func (c Config) find(pod map[string]string, s setting) (string, Source) {
	if v, ok := pod[s.key]; ok {
		return v, FromPod
	}
	if v, ok := pod[s.older]; ok && s.older != "" {
		return v, FromOlderName
	}
	if v, ok := c.Values[s.key]; ok {
		return v, FromCluster
	}
	switch s.key {
	case keyStatusPort:
		return strconv.Itoa(int(c.Status)), FromDefault
	case keyOutboundPort:
		return strconv.Itoa(int(c.Ports.Outbound)), FromDefault
	case keyInboundPort:
		return strconv.Itoa(int(c.Ports.Inbound)), FromDefault
	}
	return s.initial, FromDefault
}
