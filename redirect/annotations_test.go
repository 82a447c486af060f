package redirect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// usual is the policy of a pod that asks for nothing.
func usual() Policy {
	return Policy{
		Mode:        "REDIRECT",
		Ports:       Listen{Outbound: 15001, Inbound: 15006, Tunnel: 15008, DNS: 15053},
		Proxy:       Identity{UIDs: []uint32{1337}, GIDs: []uint32{1337}},
		Inbound:     Inbound{All: true, ExcludePorts: []uint16{15020, 15021, 15090}},
		Outbound:    Outbound{All: true},
		Groups:      Groups{All: true},
		Loopback:    netip.MustParsePrefix("127.0.0.1/32"),
		Passthrough: []netip.Addr{netip.MustParseAddr("127.0.0.6"), netip.MustParseAddr("::6")},
		Marks:       Marks{TProxy: 1337, SelfCall: 1338, Table: 133},
	}
}

// check compares the decision about a pod with the usual policy as want leaves it, and with the
// warnings.
func check(t *testing.T, pod Pod, cfg Config, want func(*Policy), warnings ...string) {
	t.Helper()
	decision := Decision{Policy: usual(), Warnings: warnings}
	if want != nil {
		want(&decision.Policy)
	}
	if diff := cmp.Diff(decision, ours(t, pod, cfg), byValue); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

func TestPodThatAsksForNothing(t *testing.T) {
	t.Parallel()
	check(t, meshed(), Defaults(), nil)
}

// asked is a value of a setting, and what it changes of the usual policy.
type asked struct {
	value string
	want  func(*Policy)
}

var accepted = map[string][]asked{
	"sidecar.istio.io/interceptionMode": {
		{"REDIRECT", nil},
		{"TPROXY", func(p *Policy) { p.Mode = ModeTProxy }},
	},
	"traffic.sidecar.istio.io/includeOutboundIPRanges": {
		{"*", nil},
		{" * ", nil},
		{"", only()},
		{" \t", only()},
		{"10.0.0.0/8", only("10.0.0.0/8")},
		{"\t10.0.0.0/8 ,\n2001:db8::/32 ", only("10.0.0.0/8", "2001:db8::/32")},
		{"10.1.2.3/8,2001:db8::1/32", only("10.0.0.0/8", "2001:db8::/32")},
		{"::ffff:10.0.0.0/104", only("10.0.0.0/8")},
		{"2001:db8::/32,192.0.2.0/24,10.0.0.0/8",
			only("10.0.0.0/8", "192.0.2.0/24", "2001:db8::/32")},
		{"10.1.0.0/16,10.0.0.0/8,10.0.0.0/8,10.255.0.0/16", only("10.0.0.0/8")},
		{"10.0.0.0/8,10.1.0.0/16,192.0.2.0/24,2001:db8::/32,2001:db8:1::/48,fd00::/8",
			only("10.0.0.0/8", "192.0.2.0/24", "2001:db8::/32", "fd00::/8")},
		{"192.0.2.128/25,192.0.2.0/25", only("192.0.2.0/25", "192.0.2.128/25")},
		{"0.0.0.0/0,::/0", only("0.0.0.0/0", "::/0")},
		{"127.0.0.0/8", both(only("127.0.0.0/8"), loopbackToo)},
		{"10.0.0.0/8,::1/128", both(only("10.0.0.0/8", "::1/128"), loopbackToo)},
		{"127.0.0.1/0", both(only("0.0.0.0/0"), loopbackToo)},
	},
	"traffic.sidecar.istio.io/excludeOutboundIPRanges": {
		{"", nil},
		{"::ffff:0.0.0.0/96", func(p *Policy) { p.Outbound.ExcludeCIDRs = prefixes("0.0.0.0/0") }},
		{"::ffff:0.0.0.0/95", func(p *Policy) {
			p.Outbound.ExcludeCIDRs = prefixes("::fffe:0:0/95")
		}},
		{"10.1.2.3/8, ::ffff:192.0.2.7/128",
			func(p *Policy) { p.Outbound.ExcludeCIDRs = prefixes("10.0.0.0/8", "192.0.2.7/32") }},
		{"10.0.0.0/8,10.0.0.0/9",
			func(p *Policy) { p.Outbound.ExcludeCIDRs = prefixes("10.0.0.0/8") }},
		{"127.0.0.0/8", func(p *Policy) { p.Outbound.ExcludeCIDRs = prefixes("127.0.0.0/8") }},
	},
	"traffic.sidecar.istio.io/includeInboundPorts": {
		{"*", nil},
		{" *", nil},
		{"", inboundPorts()},
		{"9090, 80 ,80,0", inboundPorts(0, 80, 9090)},
		{"65535", inboundPorts(65535)},
	},
	"traffic.sidecar.istio.io/excludeInboundPorts": {
		{"", nil},
		{"9090, 8080,15021", open(8080, 9090, 15020, 15021, 15090)},
	},
	"status.sidecar.istio.io/port": {
		{"15020", nil},
		{"0", nil},
		{" 15030 ", open(15020, 15021, 15030, 15090)},
	},
	"traffic.sidecar.istio.io/includeOutboundPorts": {
		{"", nil},
		{"443,80,443", func(p *Policy) { p.Outbound.Ports = []uint16{80, 443} }},
	},
	"traffic.sidecar.istio.io/excludeOutboundPorts": {
		{"", nil},
		{"3306, 00022", func(p *Policy) { p.Outbound.ExcludePorts = []uint16{22, 3306} }},
	},
	"traffic.sidecar.istio.io/excludeInterfaces": {
		{"", nil},
		{"net1, eth1,net1", func(p *Policy) { p.ExcludeInterfaces = []Interface{"eth1", "net1"} }},
		{"a23456789012345,tap+,k6t-eth0.1_@~", func(p *Policy) {
			p.ExcludeInterfaces = []Interface{"a23456789012345", "k6t-eth0.1_@~", "tap+"}
		}},
	},
	"istio.io/reroute-virtual-interfaces": {
		{"", nil},
		{"k6t-eth0", func(p *Policy) { p.VirtualInterfaces = []Interface{"k6t-eth0"} }},
		{"09azAZ", func(p *Policy) { p.VirtualInterfaces = []Interface{"09azAZ"} }},
	},
	"sidecar-cni.io/outboundPort": {
		{"15001", nil},
		{" 25001 ", func(p *Policy) { p.Ports.Outbound = 25001 }},
		{"15006", func(p *Policy) { p.Ports.Outbound = 15006 }},
		{"65535", func(p *Policy) { p.Ports.Outbound = 65535 }},
	},
	"sidecar-cni.io/inboundPort": {
		{"15006", nil},
		{"15001", func(p *Policy) { p.Ports.Inbound = 15001 }},
		{"1", func(p *Policy) { p.Ports.Inbound = 1 }},
	},
	"sidecar-cni.io/excludeOutboundUIDs": {
		{"", nil},
		{"2000 - 2999, 1000", uids(IDRange{1000, 1000}, IDRange{2000, 2999})},
		{"5-7,1-3,4,10-10,6", uids(IDRange{1, 7}, IDRange{10, 10})},
		{"0,4294967294", uids(IDRange{0, 0}, IDRange{4294967294, 4294967294})},
		{"1338-4294967294,0-1336", uids(IDRange{0, 1336}, IDRange{1338, 4294967294})},
	},
	"sidecar-cni.io/initContainers": {
		{"", nil},
		{"bypass", nil}, // there are none
	},
	"ISTIO_META_DNS_CAPTURE": {
		{"false", nil},
		{"true", func(p *Policy) { p.DNS = DNS{Capture: true, Servers: addrs("10.96.0.10")} }},
	},
	"CAPTURE_ALL_DNS": {
		{"false", nil},
		{"true", nil}, // of nothing
	},
	"INVALID_DROP": {
		{"false", nil},
		{"true", func(p *Policy) { p.DropInvalid = true }},
	},
	"ISTIO_OUTBOUND_OWNER_GROUPS": {
		{"*", nil},
		{"", groups()},
		{"2000, 0,2000", groups(0, 2000)},
	},
	"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": {
		{"", nil},
		{"202,101", func(p *Policy) { p.Groups.Exclude = []uint32{101, 202} }},
	},
	"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": {
		{"127.0.0.1/32", nil},
		{" 127.0.0.1/8 ", func(p *Policy) { p.Loopback = netip.MustParsePrefix("127.0.0.0/8") }},
		{"127.1.0.0/16", func(p *Policy) { p.Loopback = netip.MustParsePrefix("127.1.0.0/16") }},
	},
	"DISABLE_ENVOY": {
		{"false", nil},
		{"0", nil},
	},
}

func only(cidrs ...string) func(*Policy) {
	return func(p *Policy) { p.Outbound.All, p.Outbound.CIDRs = false, prefixes(cidrs...) }
}

func loopbackToo(p *Policy) { p.Outbound.Loopback = true }

func both(a, b func(*Policy)) func(*Policy) {
	return func(p *Policy) { a(p); b(p) }
}

func inboundPorts(ports ...uint16) func(*Policy) {
	return func(p *Policy) { p.Inbound.All, p.Inbound.Ports = false, ports }
}

func open(ports ...uint16) func(*Policy) {
	return func(p *Policy) { p.Inbound.ExcludePorts = ports }
}

func uids(ids ...IDRange) func(*Policy) { return func(p *Policy) { p.Outbound.ExcludeUIDs = ids } }

func groups(gids ...uint32) func(*Policy) {
	return func(p *Policy) { p.Groups.All, p.Groups.Include = false, gids }
}

// says has a pod say something in the place where the setting is read.
func says(s setting, value string) change {
	if s.env {
		return variable(s.key, value)
	}
	return annotation(s.key, value)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for _, s := range settings {
		t.Run(s.key, func(t *testing.T) {
			t.Parallel()
			if len(accepted[s.key]) < 2 {
				t.Fatal("too few rows for this key")
			}
			for _, row := range accepted[s.key] {
				t.Run(fmt.Sprintf("%q", row.value), func(t *testing.T) {
					t.Parallel()
					check(t, meshed(nameservers("10.96.0.10"), says(s, row.value)), Defaults(),
						row.want)

					// the same, from a cluster that lets it stand in for what pods do not say
					cfg := Defaults()
					cfg.Values = map[string]string{s.key: row.value}
					if err := cfg.Validate(); err != nil {
						t.Errorf("as a stand-in: %v", err)
					}
					check(t, meshed(nameservers("10.96.0.10")), cfg, row.want)
				})
			}
		})
	}
}

func TestWhatIsReadFirst(t *testing.T) {
	t.Parallel()
	const newer, older = "istio.io/reroute-virtual-interfaces",
		"traffic.sidecar.istio.io/kubevirtInterfaces"
	virtual := func(names ...Interface) func(*Policy) {
		return func(p *Policy) { p.VirtualInterfaces = names }
	}
	status := func(port uint16) func(*Config) { return func(c *Config) { c.Status = port } }
	standIn := func(key, value string) func(*Config) {
		return func(c *Config) { c.Values = map[string]string{key: value} }
	}
	rows := []struct {
		name string
		pod  change
		cfg  func(*Config)
		want func(*Policy)
	}{
		{"older key", annotation(older, "a"), nil, virtual("a")},
		{"newer key over older", together(annotation(older, "a"), annotation(newer, "b")), nil,
			virtual("b")},
		{"empty newer key over older", together(annotation(older, "a"), annotation(newer, "")), nil,
			nil},
		{"older key over the cluster's stand-in", annotation(older, "a"), standIn(newer, "c"),
			virtual("a")},
		{"stand-in", nil, standIn(newer, "c"), virtual("c")},
		{"pod over stand-in", annotation(newer, ""), standIn(newer, "c"), nil},
		{"variable over stand-in", variable("INVALID_DROP", "false"),
			standIn("INVALID_DROP", "true"), nil},
		{"annotation is no variable", annotation("INVALID_DROP", "true"), nil, nil},
		{"variable is no annotation", variable(newer, "a"), nil, nil},
		{"variable of another container",
			first(Container{Name: "a", Env: map[string]string{"INVALID_DROP": "true"}}), nil, nil},
		{"status port of the cluster", nil, status(15999), open(15020, 15021, 15090, 15999)},
		{"no status port in the cluster", nil, status(0), nil},
		{"status port of the pod over the cluster's",
			annotation("status.sidecar.istio.io/port", "15030"), status(15999),
			open(15020, 15021, 15030, 15090)},
		{"other open ports", nil, func(c *Config) { c.Open = []uint16{9, 7, 9} },
			open(7, 9, 15020)},
		{"no open ports", annotation("status.sidecar.istio.io/port", "0"),
			func(c *Config) { c.Open = nil }, open()},
		{"other ports, marks and addresses", nil, func(c *Config) {
			c.Ports, c.Marks = Listen{Outbound: 1, Inbound: 2, Tunnel: 3, DNS: 4},
				Marks{TProxy: 5, SelfCall: 6, Table: 7}
			c.PassthroughIPv4, c.PassthroughIPv6 = netip.MustParseAddr("127.0.0.9"),
				netip.MustParseAddr("fd00::9")
		}, func(p *Policy) {
			p.Ports, p.Marks = Listen{Outbound: 1, Inbound: 2, Tunnel: 3, DNS: 4},
				Marks{TProxy: 5, SelfCall: 6, Table: 7}
			p.Passthrough = addrs("127.0.0.9", "fd00::9")
		}},
		{"loopback among the excluded ranges",
			annotation(traffic+"excludeOutboundIPRanges", "::1/128"), nil,
			func(p *Policy) { p.Outbound.ExcludeCIDRs = prefixes("::1/128") }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pod, cfg := meshed(), Defaults()
			if row.pod != nil {
				row.pod(&pod)
			}
			if row.cfg != nil {
				row.cfg(&cfg)
			}
			check(t, pod, cfg, row.want)
		})
	}
}

// Decisions share nothing with the configuration that could be written to.
func TestConfigIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	cfg := Defaults()
	cfg.Open = append(make([]uint16, 0, 100), 15090, 15021)
	ours(t, meshed(annotation(traffic+"excludeInboundPorts", "80,1")), cfg)
	if diff := cmp.Diff([]uint16{15090, 15021}, cfg.Open); diff != "" {
		t.Errorf("open ports (-want +got):\n%s", diff)
	}
	if spare := cfg.Open[:3][2]; spare != 0 {
		t.Errorf("port %d was written behind the configured ones", spare)
	}
}

func TestBools(t *testing.T) {
	t.Parallel()
	for want, spellings := range map[bool][]string{
		true:  {"true", "True", "TRUE", "t", "T", "1"},
		false: {"false", "False", "FALSE", "f", "F", "0"},
	} {
		for _, text := range spellings {
			d := ours(t, meshed(variable("INVALID_DROP", text)), Defaults())
			if d.Policy.DropInvalid != want || len(d.Warnings) > 0 {
				t.Errorf("%q is %t, want %t; warnings %q", text, d.Policy.DropInvalid, want,
					d.Warnings)
			}
		}
	}
	for _, text := range []string{"yes", "Y", "on", "tRue", " true", "", " ", "no", "tru", "2",
		"true,false", "*", "\x00"} {
		d := ours(t, meshed(variable("INVALID_DROP", text)), Defaults())
		want := []string{fmt.Sprintf(
			"INVALID_DROP: %q: want true, t, 1, false, f or 0: taken as false", text)}
		if diff := cmp.Diff(want, d.Warnings); diff != "" || d.Policy.DropInvalid {
			t.Errorf("%q is %t; warnings (-want +got):\n%s", text, d.Policy.DropInvalid, diff)
		}
	}
}

func TestValueThatOnlyTheKubeletKnows(t *testing.T) {
	t.Parallel()
	elsewhere := func(keys ...string) change {
		return proxy(func(c *Container) { c.EnvFrom = keys })
	}
	check(t, meshed(elsewhere("POD_NAME", "INVALID_DROP")), Defaults(), nil,
		`INVALID_DROP: its value comes from elsewhere and cannot be read: taken as "false"`)
	check(t, meshed(elsewhere("ISTIO_OUTBOUND_OWNER_GROUPS", "ISTIO_META_DNS_CAPTURE")), Defaults(),
		nil,
		`ISTIO_META_DNS_CAPTURE: its value comes from elsewhere and cannot be read: taken as "false"`,
		`ISTIO_OUTBOUND_OWNER_GROUPS: its value comes from elsewhere and cannot be read: taken as "*"`)

	cfg := Defaults()
	cfg.Values = map[string]string{"INVALID_DROP": "true"}
	check(t, meshed(elsewhere("INVALID_DROP")), cfg, func(p *Policy) { p.DropInvalid = true },
		`INVALID_DROP: its value comes from elsewhere and cannot be read: taken as "true"`)

	d, err := Decide(meshed(elsewhere("INVALID_DROP"),
		annotation(traffic+"excludeInboundPorts", "http")), Defaults())
	if err == nil || len(d.Warnings) != 1 {
		t.Errorf("warnings %q beside the error %v, want one", d.Warnings, err)
	}
}

func TestProxyIdentity(t *testing.T) {
	t.Parallel()
	identity := func(uid, gid uint32) Identity {
		return Identity{UIDs: []uint32{uid},
			GIDs: []uint32{gid}}
	}
	container := func(uid, gid *int64) change {
		return proxy(func(c *Container) { c.RunAsUser, c.RunAsGroup = uid, gid })
	}
	whole := func(uid, gid *int64) change {
		return func(p *Pod) { p.Spec.RunAsUser, p.Spec.RunAsGroup = uid, gid }
	}
	rows := []struct {
		name string
		pod  change
		want Identity
	}{
		{"unset", container(nil, nil), identity(1337, 1337)},
		{"unset user, group set", container(nil, id(5000)), identity(1337, 1337)},
		{"user set", container(id(2500), nil), identity(2500, 2500)},
		{"group is not read beside a user", container(id(2500), id(5000)), identity(2500, 2500)},
		{"root", container(id(0), nil), identity(1337, 1337)},
		{"root with a group", container(id(0), id(5000)), identity(1337, 5000)},
		{"root with root's group", container(id(0), id(0)), identity(1337, 1337)},
		{"user of the pod", whole(id(2500), nil), identity(2500, 2500)},
		{"container before pod", together(whole(id(2500), nil), container(id(2600), nil)),
			identity(2600, 2600)},
		{"container's root before the pod's user",
			together(whole(id(2500), id(5000)), container(id(0), nil),
				func(p *Pod) { p.Spec.Containers[0].RunAsGroup = id(1) }), identity(1337, 5000)},
		{"container's group before the pod's",
			together(whole(id(0), id(5000)), container(nil, id(5001))), identity(1337, 5001)},
		{"highest uid", container(id(4294967294), nil), identity(4294967294, 4294967294)},
		{"native sidecar", together(container(id(2500), nil), native), identity(2500, 2500)},
		{"user of another container", first(Container{Name: "a", RunAsUser: id(7)}),
			identity(1337, 1337)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			check(t, meshed(row.pod), Defaults(), func(p *Policy) { p.Proxy = row.want })
		})
	}

	cfg := Defaults()
	cfg.Proxy = Identity{UIDs: []uint32{1, 2}, GIDs: []uint32{3, 4}}
	check(t, meshed(), cfg, func(p *Policy) { p.Proxy = cfg.Proxy })
	check(t, meshed(container(id(2500), nil)), cfg,
		func(p *Policy) { p.Proxy = identity(2500, 2500) })
	check(t, meshed(container(id(0), id(9))), cfg,
		func(p *Policy) { p.Proxy = Identity{UIDs: []uint32{1, 2}, GIDs: []uint32{9}} })
}

func TestNameservers(t *testing.T) {
	t.Parallel()
	const nobody = "the runtime did not pass the pod's nameservers (capability dns): all of port " +
		"53 is captured"
	capture, everything := variable("ISTIO_META_DNS_CAPTURE", "true"),
		variable("CAPTURE_ALL_DNS", "true")
	rows := []struct {
		name     string
		pod      change
		all      bool
		want     DNS
		warnings []string
	}{
		{"not captured", nameservers("10.96.0.10"), false, DNS{}, nil},
		{"not captured, but all of it", together(nameservers("10.96.0.10"), everything), true,
			DNS{}, nil},
		{"one", together(capture, nameservers("10.96.0.10")), false,
			DNS{Capture: true, Servers: addrs("10.96.0.10")}, nil},
		{"sorted and once each",
			together(capture, nameservers("2001:db8::53", "10.96.0.10", "10.96.0.1", "10.96.0.10")),
			false,
			DNS{Capture: true, Servers: addrs("10.96.0.1", "10.96.0.10", "2001:db8::53")}, nil},
		{"zones and mapped addresses",
			together(capture, nameservers("fe80::1%eth0", "::ffff:10.96.0.10")), false,
			DNS{Capture: true, Servers: addrs("10.96.0.10", "fe80::1")}, nil},
		{"everything, by the pod", together(capture, everything, nameservers("10.96.0.10")), false,
			DNS{Capture: true, Everywhere: true}, nil},
		{"everything, by the cluster", together(capture, nameservers("10.96.0.10")), true,
			DNS{Capture: true, Everywhere: true}, nil},
		{"everything, and nobody told", together(capture, everything), false,
			DNS{Capture: true, Everywhere: true}, nil},
		{"nobody told", capture, false, DNS{Capture: true, Everywhere: true}, []string{nobody}},
		{"told that there are none",
			together(capture, func(p *Pod) { p.Nameservers = []netip.Addr{} }), false,
			DNS{Capture: true, Everywhere: true}, []string{nobody}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			cfg := Defaults()
			cfg.CaptureAllDNS = row.all
			check(t, meshed(row.pod), cfg, func(p *Policy) { p.DNS = row.want }, row.warnings...)
		})
	}
}

func TestInitContainersBypass(t *testing.T) {
	t.Parallel()
	const key = "sidecar-cni.io/initContainers: "
	bypass := annotation("sidecar-cni.io/initContainers", "bypass")
	start := func(name string,
		uid *int64) Container {
		return Container{Name: name, Init: true, RunAsUser: uid}
	}
	stays := func(name string, uid *int64) Container {
		return Container{Name: name, Init: true, Stays: true, RunAsUser: uid}
	}
	whole := func(uid int64) change { return func(p *Pod) { p.Spec.RunAsUser = new(uid) } }
	behind := func(c Container) change { // behind a native proxy
		return func(p *Pod) {
			native(p)
			p.Spec.Containers = slices.Insert(p.Spec.Containers, len(p.Spec.Containers)-1, c)
		}
	}
	rows := []struct {
		name string
		pod  change
		want IDs
		err  string
	}{
		{"one", first(start("migrate", id(2000))), IDs{{2000, 2000}}, ""},
		{"several", first(start("b", id(2002)), start("a", id(2000)), start("c", id(2000))),
			IDs{{2000, 2000}, {2002, 2002}}, ""},
		{"beside excluded uids",
			together(first(start("a", id(2000))),
				annotation("sidecar-cni.io/excludeOutboundUIDs", "1999,3000-3005")),
			IDs{{1999, 2000}, {3000, 3005}}, ""},
		{"root", first(start("a", id(0))), IDs{{0, 0}}, ""},
		{"uid from the pod", together(first(start("a", nil)), whole(2000),
			proxy(func(c *Container) { c.RunAsUser = id(1337) })),
			IDs{{2000, 2000}}, ""},
		{"istio-validation, which is the proxy's", first(start("istio-validation", id(1337))), nil,
			""},
		{"native proxy: those before it", together(first(start("a", id(2000))), native),
			IDs{{2000, 2000}}, ""},
		{"native proxy: none behind it",
			together(first(start("a", id(2000))), behind(start("late", id(2001)))),
			IDs{{2000, 2000}}, ""},
		{"native proxy: nothing is asked of those behind it", behind(start("late", nil)), nil, ""},
		{"native sidecar that is not the proxy",
			first(stays("logs", id(3000)), start("a", id(2000))), IDs{{2000, 2000}}, ""},

		{"uid unknown", first(start("a", nil)), nil,
			key + `"a": want an init container with runAsUser, so that its uid is known`},
		{"the proxy's uid", first(start("a", id(1337))), nil,
			key + `"a": want an init container that does not run as the proxy's uid 1337`},
		{"the root proxy's uid",
			together(first(start("a", id(0))), proxy(func(c *Container) { c.RunAsUser = id(0) })),
			nil,
			key + `"a": want an init container that does not run as the proxy's uid 0`},
		{"shared with the app", first(start("a", id(1000))), nil,
			key + `"a": want a uid of its own: container "web" runs as 1000 too and would leave the mesh`},
		{"shared with an app that is called istio-validation",
			first(start("a", id(3000)), Container{Name: "istio-validation", RunAsUser: id(3000)}),
			nil,
			key + `"a": want a uid of its own: container "istio-validation" runs as 3000 too and would leave the mesh`},
		{"shared with a native sidecar", first(start("a", id(3000)), stays("logs", id(3000))), nil,
			key + `"a": want a uid of its own: container "logs" runs as 3000 too and would leave the mesh`},
		{"shared with an init container that has a proxy",
			together(first(start("a", id(2000))), behind(start("late", id(2000)))), nil,
			key + `"a": want a uid of its own: container "late" runs as 2000 too and would leave the mesh`},
		{"uid of the app unknown",
			together(first(start("a", id(2000))),
				func(p *Pod) { p.Spec.Containers[1].RunAsUser = nil }), nil,
			key + `"a": want runAsUser on container "web" too, so that its uid is known to differ from 2000`},
		{"uid of a native sidecar unknown", first(stays("logs", nil), start("a", id(2000))), nil,
			key + `"a": want runAsUser on container "logs" too, so that its uid is known to differ from 2000`},
		{"all at once", together(first(start("a", nil), start("b", id(1337)), start("c", id(1000)),
			start("d", id(-1)))), nil,
			key + `"a": want an init container with runAsUser, so that its uid is known; ` +
				key + `"b": want an init container that does not run as the proxy's uid 1337; ` +
				key + `"c": want a uid of its own: container "web" runs as 1000 too and would leave the mesh; ` +
				key + `"d": want an init container with runAsUser, so that its uid is known`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pod := meshed(row.pod, bypass)
			if row.err == "" {
				d := ours(t, pod, Defaults())
				if diff := cmp.Diff(row.want, d.Policy.Outbound.ExcludeUIDs); diff != "" {
					t.Errorf("excluded uids (-want +got):\n%s", diff)
				}
				return
			}
			if diff := cmp.Diff(row.err, refused(t, pod, Defaults()).Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func passthroughIPv6(addr string) string {
	return "redirect.passthroughIPv6: " + addr +
		": want an IPv6 address of one host, other than ::1"
}

func TestConfigThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, table := range []uint32{133, 1, 252, 256, 4294967295} {
		cfg := Defaults()
		cfg.Marks.Table = table
		if err := cfg.Validate(); err != nil {
			t.Errorf("defaults, with table %d: %v", table, err)
		}
	}
	rows := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no outbound port", func(c *Config) { c.Ports.Outbound = 0 },
			"redirect.ports.outbound: 0: want a port from 1 to 65535"},
		{"no inbound port", func(c *Config) { c.Ports.Inbound = 0 },
			"redirect.ports.inbound: 0: want a port from 1 to 65535"},
		{"no tunnel port", func(c *Config) { c.Ports.Tunnel = 0 },
			"redirect.ports.tunnel: 0: want a port from 1 to 65535"},
		{"no DNS port", func(c *Config) { c.Ports.DNS = 0 }, "redirect.ports.dns: 0: want a port " +
			"from 1 to 65535 that is not 53"},
		{"resolver on the nameservers' port", func(c *Config) { c.Ports.DNS = 53 },
			"redirect.ports.dns: 53: want a port from 1 to 65535 that is not 53"},
		{"no proxy uid", func(c *Config) { c.Proxy.UIDs = nil },
			"redirect.proxy.uids: []: want at least one uid"},
		{"no proxy gid", func(c *Config) { c.Proxy.GIDs = nil },
			"redirect.proxy.gids: []: want at least one gid"},
		{"root is the proxy", func(c *Config) { c.Proxy.UIDs = []uint32{1337, 0} },
			"redirect.proxy.uids: [1337 0]: want no 0: root's traffic would all pass as the proxy's"},
		{"root's group is the proxy's", func(c *Config) { c.Proxy.GIDs = []uint32{0} },
			"redirect.proxy.gids: [0]: want no 0: root's traffic would all pass as the proxy's"},
		{"nobody's uid", func(c *Config) { c.Proxy.UIDs = []uint32{4294967295} },
			"redirect.proxy.uids: [4294967295]: want ids up to 4294967294"},
		{"no TPROXY mark", func(c *Config) { c.Marks.TProxy = 0 },
			"redirect.marks.tproxy: 0: want a mark other than 0"},
		{"no self-call mark", func(c *Config) { c.Marks.SelfCall = 0 },
			"redirect.marks.selfCall: 0: want a mark other than 0 and marks.tproxy"},
		{"one mark for both", func(c *Config) { c.Marks.SelfCall = 1337 },
			"redirect.marks.selfCall: 1337: want a mark other than 0 and marks.tproxy"},
		{"no table", func(c *Config) { c.Marks.Table = 0 }, "redirect.marks.table: 0: want a " +
			"routing table other than 0 and the kernel's own, 253 to 255"},
		{"the main table", func(c *Config) { c.Marks.Table = 254 }, "redirect.marks.table: 254: " +
			"want a routing table other than 0 and the kernel's own, 253 to 255"},
		{"the first of the kernel's tables", func(c *Config) { c.Marks.Table = 253 },
			"redirect.marks.table: 253: want a routing table other than 0 and the kernel's own, " +
				"253 to 255"},
		{"the last of them", func(c *Config) { c.Marks.Table = 255 }, "redirect.marks.table: " +
			"255: want a routing table other than 0 and the kernel's own, 253 to 255"},
		{"IPv6 for IPv4", func(c *Config) { c.PassthroughIPv4 = netip.MustParseAddr("::1") },
			"redirect.passthroughIPv4: ::1: want an address in 127.0.0.0/8"},
		{"no IPv4 passthrough", func(c *Config) { c.PassthroughIPv4 = netip.Addr{} },
			"redirect.passthroughIPv4: invalid IP: want an address in 127.0.0.0/8"},
		{"IPv4 passthrough elsewhere",
			func(c *Config) { c.PassthroughIPv4 = netip.MustParseAddr("10.0.0.6") },
			"redirect.passthroughIPv4: 10.0.0.6: want an address in 127.0.0.0/8"},
		{"IPv4 of another host for IPv6",
			func(c *Config) { c.PassthroughIPv6 = netip.MustParseAddr("192.0.2.6") },
			passthroughIPv6("192.0.2.6")},
		{"IPv4 for IPv6", func(c *Config) { c.PassthroughIPv6 = netip.MustParseAddr("127.0.0.6") },
			passthroughIPv6("127.0.0.6")},
		{"mapped IPv4 for IPv6",
			func(c *Config) { c.PassthroughIPv6 = netip.MustParseAddr("::ffff:127.0.0.6") },
			passthroughIPv6("::ffff:127.0.0.6")},
		{"IPv6 passthrough with a zone",
			func(c *Config) { c.PassthroughIPv6 = netip.MustParseAddr("fe80::6%lo") },
			passthroughIPv6("fe80::6%lo")},
		{"IPv6 passthrough that is there already",
			func(c *Config) { c.PassthroughIPv6 = netip.MustParseAddr("::1") },
			passthroughIPv6("::1")},
		{"IPv6 passthrough of nobody",
			func(c *Config) { c.PassthroughIPv6 = netip.MustParseAddr("::") },
			passthroughIPv6("::")},
		{"IPv6 passthrough of many",
			func(c *Config) { c.PassthroughIPv6 = netip.MustParseAddr("ff02::1") },
			passthroughIPv6("ff02::1")},
		{"unknown value", func(c *Config) { c.Values = map[string]string{"invalid_drop": "true"} },
			`redirect.values: "invalid_drop": want an annotation or a variable of the reference page`},
		{"older key", func(c *Config) {
			c.Values = map[string]string{"traffic.sidecar.istio.io/kubevirtInterfaces": "a"}
		},
			`redirect.values: "traffic.sidecar.istio.io/kubevirtInterfaces": want an annotation or a variable of the reference page`},
		{"wrong value", func(c *Config) {
			c.Values = map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "80,http"}
		},
			`redirect.values.traffic.sidecar.istio.io/excludeInboundPorts: "http": want a port from 0 to 65535`},
		{"all at once, in order", func(c *Config) {
			c.Ports.Outbound, c.Proxy, c.Values = 0, Identity{[]uint32{0}, []uint32{0}},
				map[string]string{"b": "", "a": ""}
		}, strings.Join([]string{
			"redirect.ports.outbound: 0: want a port from 1 to 65535",
			"redirect.proxy.uids: [0]: want no 0: root's traffic would all pass as the proxy's",
			"redirect.proxy.gids: [0]: want no 0: root's traffic would all pass as the proxy's",
			`redirect.values: "a": want an annotation or a variable of the reference page`,
			`redirect.values: "b": want an annotation or a variable of the reference page`,
		}, "\n")},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			cfg := Defaults()
			row.change(&cfg)
			err := cfg.Validate()
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(row.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	p := Defaults().Basis()
	if mistakes := p.Set(traffic+"includeInboundPorts", "-b", "80,,81"); len(mistakes) > 0 {
		t.Error(mistakes)
	}
	if want := []uint16{80, 81}; !slices.Equal(p.Inbound.Ports, want) {
		t.Errorf("ports %d, want %d", p.Inbound.Ports, want)
	}
	for want, mistakes := range map[string]Mistakes{
		`-b: "http": want a port`: p.Set(traffic+"includeInboundPorts", "-b", "http"),
		`-y: "nonesuch": want a`:  p.Set("nonesuch", "-y", "1"),
	} {
		if !strings.Contains(mistakes.Error(), want) {
			t.Errorf("%v: want %s in it", mistakes, want)
		}
	}
}
