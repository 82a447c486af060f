package redirect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestMistakesRead(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		pod  change
		want string
	}{
		{"port's name", annotation(traffic+"excludeInboundPorts", "8080,http"),
			`traffic.sidecar.istio.io/excludeInboundPorts: "http": want a port from 0 to 65535`},
		{"port too high", annotation(traffic+"includeOutboundPorts", "65536"),
			`traffic.sidecar.istio.io/includeOutboundPorts: "65536": want a port from 0 to 65535`},
		{"empty items", annotation(traffic+"excludeOutboundPorts", ",22,"),
			`traffic.sidecar.istio.io/excludeOutboundPorts: "": want a port from 0 to 65535; ` +
				`traffic.sidecar.istio.io/excludeOutboundPorts: "": want a port from 0 to 65535`},
		{"everything where only a list makes sense",
			annotation(traffic+"excludeOutboundIPRanges", "*"),
			`traffic.sidecar.istio.io/excludeOutboundIPRanges: "*": want a CIDR such as 10.0.0.0/8 or 2001:db8::/32`},
		{"address without a length", annotation(traffic+"includeOutboundIPRanges", "10.0.0.1"),
			`traffic.sidecar.istio.io/includeOutboundIPRanges: "10.0.0.1": want a CIDR such as 10.0.0.0/8 or 2001:db8::/32`},
		{"a CIDR behind a wrong one",
			annotation(traffic+"includeOutboundIPRanges", "a,10.0.0.0/8,b"),
			`traffic.sidecar.istio.io/includeOutboundIPRanges: "a": want a CIDR such as 10.0.0.0/8 or 2001:db8::/32; ` +
				`traffic.sidecar.istio.io/includeOutboundIPRanges: "b": want a CIDR such as 10.0.0.0/8 or 2001:db8::/32`},
		{"long name of an interface",
			annotation(traffic+"excludeInterfaces", "net1,a234567890123456"),
			`traffic.sidecar.istio.io/excludeInterfaces: "a234567890123456": want an interface's name of at most 15 letters, digits and ` +
				`. _ - @ ~, with a + at its end for every name that begins so`},
		{"an interface behind a wrong one", annotation(traffic+"excludeInterfaces", "a b,net1,c d"),
			`traffic.sidecar.istio.io/excludeInterfaces: "a b": want an interface's name of at most 15 letters, digits and ` +
				`. _ - @ ~, with a + at its end for every name that begins so; ` +
				`traffic.sidecar.istio.io/excludeInterfaces: "c d": want an interface's name of at most 15 letters, digits and ` +
				`. _ - @ ~, with a + at its end for every name that begins so`},
		{"older key", annotation(traffic+"kubevirtInterfaces", "a b"),
			`traffic.sidecar.istio.io/kubevirtInterfaces: "a b": want an interface's name of at most 15 letters, digits and ` +
				`. _ - @ ~, with a + at its end for every name that begins so`},
		{"older key beside the newer", annotations(map[string]string{
			"istio.io/reroute-virtual-interfaces": "a b", traffic + "kubevirtInterfaces": "c d",
		}),
			`istio.io/reroute-virtual-interfaces: "a b": want an interface's name of at most 15 letters, digits and ` +
				`. _ - @ ~, with a + at its end for every name that begins so`},
		{"control characters", annotation(traffic+"includeInboundPorts", "80\n; drop\x00\x1b[2J"),
			`traffic.sidecar.istio.io/includeInboundPorts: "80\n; drop\x00\x1b[2J": want a port from 0 to 65535`},
		{"mode", annotation(istio+"interceptionMode", "redirect"),
			`sidecar.istio.io/interceptionMode: "redirect": want REDIRECT, TPROXY or NONE`},
		{"status port", annotation("status.sidecar.istio.io/port", ""),
			`status.sidecar.istio.io/port: "": want a port from 0 to 65535`},
		{"outbound port", annotation("sidecar-cni.io/outboundPort", "0"),
			`sidecar-cni.io/outboundPort: "0": want a port from 1 to 65535, without 15008 for tunnels and 15053 for name service`},
		{"inbound port", annotation("sidecar-cni.io/inboundPort", ""),
			`sidecar-cni.io/inboundPort: "": want a port from 1 to 65535, without 15008 for tunnels and 15053 for name service`},
		{"outbound port of tunnels", annotation("sidecar-cni.io/outboundPort", "15008"),
			`sidecar-cni.io/outboundPort: "15008": want a port from 1 to 65535, without 15008 for tunnels and 15053 for name service`},
		{"inbound port of name service", annotation("sidecar-cni.io/inboundPort", "15053"),
			`sidecar-cni.io/inboundPort: "15053": want a port from 1 to 65535, without 15008 for tunnels and 15053 for name service`},
		{"inbound ports", annotation("sidecar-cni.io/inboundPort", "80,81"),
			`sidecar-cni.io/inboundPort: "80,81": want a port from 1 to 65535, without 15008 for tunnels and 15053 for name service`},
		{"init containers", annotation("sidecar-cni.io/initContainers", "Bypass"),
			`sidecar-cni.io/initContainers: "Bypass": want "bypass"`},
		{"half of a range", annotation("sidecar-cni.io/excludeOutboundUIDs", "1000-,-5,9-3,app"),
			`sidecar-cni.io/excludeOutboundUIDs: "1000-": want a number from 0 to 4294967294, or a range of them such as 2000-2999; ` +
				`sidecar-cni.io/excludeOutboundUIDs: "-5": want a number from 0 to 4294967294, or a range of them such as 2000-2999; ` +
				`sidecar-cni.io/excludeOutboundUIDs: "9-3": want a range from the lower to the higher id; ` +
				`sidecar-cni.io/excludeOutboundUIDs: "app": want a number from 0 to 4294967294, or a range of them such as 2000-2999`},
		{"the proxy excluded", annotation("sidecar-cni.io/excludeOutboundUIDs", "1000-1999"),
			`sidecar-cni.io/excludeOutboundUIDs: "1000-1999": want uids without the proxy's own, 1337`},
		{"the proxy excluded, whatever its uid",
			together(annotation("sidecar-cni.io/excludeOutboundUIDs", "2500"),
				proxy(func(c *Container) { c.RunAsUser = id(2500) })),
			`sidecar-cni.io/excludeOutboundUIDs: "2500": want uids without the proxy's own, 2500`},
		{"the root proxy excluded",
			together(annotation("sidecar-cni.io/excludeOutboundUIDs", "0"),
				proxy(func(c *Container) { c.RunAsUser = id(0) })),
			`sidecar-cni.io/excludeOutboundUIDs: "0": want uids without the proxy's own, 0`},
		{"loopback of IPv6", variable("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "::1/128"),
			`ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: "::1/128": want a CIDR within 127.0.0.0/8 such as 127.0.0.1/32`},
		{"loopback wider than loopback",
			variable("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.1/7"),
			`ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: "127.0.0.1/7": want a CIDR within 127.0.0.0/8 such as 127.0.0.1/32`},
		{"group's name", variable("ISTIO_OUTBOUND_OWNER_GROUPS", "101,java"),
			`ISTIO_OUTBOUND_OWNER_GROUPS: "java": want a number from 0 to 4294967294; names are not known outside of the container`},
		{"too many groups", variable("ISTIO_OUTBOUND_OWNER_GROUPS", numbers(65)),
			`ISTIO_OUTBOUND_OWNER_GROUPS: "a list of 65 items": want at most 64`},
		{"too long", annotation(traffic+"excludeInboundPorts", strings.Repeat("1,", 1<<17)+"1"),
			`traffic.sidecar.istio.io/excludeInboundPorts: "` + strings.Repeat("1,", 32) +
				`" and 262081 bytes more: want at most 262144 bytes`},
		{"a long item", annotation(traffic+"includeOutboundIPRanges", strings.Repeat("ab", 500)),
			`traffic.sidecar.istio.io/includeOutboundIPRanges: "` + strings.Repeat("ab", 32) +
				`" and 936 bytes more: ` +
				`want a CIDR such as 10.0.0.0/8 or 2001:db8::/32`},
		{"an item that is just short enough",
			annotation(traffic+"includeOutboundIPRanges", strings.Repeat("ab", 32)),
			`traffic.sidecar.istio.io/includeOutboundIPRanges: "` + strings.Repeat("ab", 32) +
				`": ` +
				`want a CIDR such as 10.0.0.0/8 or 2001:db8::/32`},
		{"many", annotation(traffic+"includeInboundPorts", "a,b,c,d,e,f,g,h,i,j"),
			strings.Join([]string{
				port("a"), port("b"), port("c"), port("d"), port("e"), port("f"), port("g"),
				port("3 more items"),
			}, "; ")},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(row.want,
				refused(t, meshed(row.pod), Defaults()).Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func port(item string) string {
	return `traffic.sidecar.istio.io/includeInboundPorts: "` + item +
		`": want a port from 0 to 65535`
}

// numbers is a list of n different ones.
func numbers(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return strings.Join(list, ",")
}

// The keys that hold lists, by what is in them.
var (
	portLists = []string{
		traffic + "includeInboundPorts", traffic + "excludeInboundPorts",
		traffic + "includeOutboundPorts", traffic + "excludeOutboundPorts",
	}
	cidrLists = []string{traffic + "includeOutboundIPRanges",
		traffic + "excludeOutboundIPRanges"}
	interfaceLists = []string{traffic + "excludeInterfaces", "istio.io/reroute-virtual-interfaces"}
	idLists        = []string{"ISTIO_OUTBOUND_OWNER_GROUPS", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
		"sidecar-cni.io/excludeOutboundUIDs"}
	oneBool = []string{"ISTIO_META_DNS_CAPTURE", "CAPTURE_ALL_DNS", "INVALID_DROP", "DISABLE_ENVOY"}
)

// A bad item is named beside a good one, in front of it and behind it; that goes for * too.
func TestEveryKeyRefuses(t *testing.T) {
	t.Parallel()
	kinds := []struct {
		keys  []string
		items []string
		want  string
	}{
		{portLists, []string{"", "*", "65536", "-1", "+1", "0x50", "80-90", "80 90", "http", "８０",
			"1e3", "80;", "\x00", "\u202e80"}, wantPort},
		{cidrLists, []string{"", "*", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/08",
			"10.0.0/8", "010.0.0.0/8", "::/129", "fe80::1%eth0/64",
			"2001:db8::", "example.org/32", "10.0.0.0/8 10.0.0.0/9", "/8", "\x00", "\u202e::/0"},
			wantCIDR},
		{interfaceLists, []string{"", "*", "+", ".", "..", "..+", "-eth0", "eth 0", "eth0/1",
			"eth0:1", "a234567890123456", "a23456789012345+", "et+h",
			"eth0\"", "$(id)", "ëth0", "\x00", "\u202e"}, wantInterface},
		{idLists[:2], []string{"", "-1", "4294967295", "4294967296", "1-2", "users", "*1", "\x00"},
			wantID},
		{idLists[2:], []string{"", "*", "-1", "4294967295", "1-", "1-2-3", "1--2", "0-4294967296",
			"users", "\x00"}, wantIDRange},
	}
	for _, kind := range kinds {
		for _, key := range kind.keys {
			s, ok := settingOf(key)
			if !ok {
				t.Fatalf("no setting %s", key)
			}
			good := accepted[key][len(accepted[key])-1].value
			for _, item := range kind.items {
				if item == "" && s.lenient {
					continue
				}
				want := Mistakes{{key, item, kind.want}}
				for _, value := range []string{good + "," + item, " " + item + " ," + good} {
					if diff := cmp.Diff(want,
						refused(t, meshed(says(s, value)), Defaults())); diff != "" {
						t.Errorf("%s: %q: mistakes (-want +got):\n%s", key, value, diff)
					}
				}
			}
		}
	}
}

// What istio-init drops and Istio's injector lets pass does not keep a pod from starting.
func TestEmptyItems(t *testing.T) {
	t.Parallel()
	for _, s := range settings {
		if !s.lenient {
			continue
		}
		good := accepted[s.key][len(accepted[s.key])-1].value
		want := ours(t, meshed(says(s, good)), Defaults())
		for _, value := range []string{good + ",", "," + good, " , " + good + ",,"} {
			if diff := cmp.Diff(want, ours(t, meshed(says(s, value)), Defaults()),
				byValue); diff != "" {
				t.Errorf("%s: %q (-want +got):\n%s", s.key, value, diff)
			}
		}
	}
	if got := ours(t, meshed(annotation(traffic+"includeOutboundPorts", "443,")), Defaults()).
		Policy.Outbound.Ports; !slices.Equal(got, []uint16{443}) {
		t.Errorf(`"443," is %d`, got)
	}
}

func TestTheLongestValue(t *testing.T) {
	t.Parallel()
	value := "22" + strings.Repeat(" ", maxText-len("22"))
	got := ours(t, meshed(annotation(traffic+"excludeOutboundPorts", value)), Defaults()).
		Policy.Outbound.ExcludePorts
	if diff := cmp.Diff([]uint16{22}, got); diff != "" {
		t.Errorf("of a value of %d bytes (-want +got):\n%s", len(value), diff)
	}
	key := traffic + "excludeOutboundPorts"
	want := Mistakes{{key, value + " ", "at most 262144 bytes"}}
	if diff := cmp.Diff(want,
		refused(t, meshed(annotation(key, value+" ")), Defaults())); diff != "" {
		t.Errorf("of one byte more: mistakes (-want +got):\n%s", diff)
	}
}

// Each value below is wrong for every key, and long.
func TestMistakesOfAllKeysAtOnce(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"ten thousand bad items":          "-" + strings.Repeat(",-", 9999),
		"sixty thousand bad items":        "-" + strings.Repeat(",-", 59999),
		"a megabyte of text":              strings.Repeat("spam", 1<<18),
		"four megabytes of commas":        strings.Repeat(",", 4<<20),
		"control characters":              strings.Repeat("\x00\x1b\x7f,", 1000),
		"long items that need escaping":   strings.Repeat(strings.Repeat("\x00", 500)+",", 100),
		"runes that are cut":              "x" + strings.Repeat("é", 60000),
		"runes that need long escapes":    strings.Repeat("\U000e0001", 60000),
		"a quarter of a megabyte, barely": "-" + strings.Repeat(" ", maxText-1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := meshed()
			for _, s := range settings {
				if !slices.Contains(oneBool, s.key) { // what is no bool is false, and no mistake
					says(s, value)(&pod)
				}
			}
			mistakes := refused(t, pod, Defaults())
			var keys []string
			for _, m := range mistakes {
				if keys = append(keys, m.Key); m.Want == "" {
					t.Errorf("%s: nothing is wanted", m.Key)
				}
			}
			for _, s := range settings {
				if n := count(keys, s.key); (n == 0) != slices.Contains(oneBool, s.key) || n > 8 {
					t.Errorf("%s is named %d times", s.key, n)
				}
			}
			checkText(t, mistakes.Error())
		})
	}
}

func count(list []string, one string) int {
	return len(list) - len(slices.DeleteFunc(slices.Clone(list),
		func(s string) bool { return s == one }))
}

// checkText holds an error to what a log, an event and a terminal can take.
func checkText(t testing.TB, text string) {
	t.Helper()
	const most = 48 << 10
	if len(text) > most {
		t.Errorf("%d bytes of error, at most %d are in order: %.2000s...", len(text), most, text)
	}
	if !utf8.ValidString(text) {
		t.Errorf("not UTF-8: %q", text)
	}
	if i := strings.IndexFunc(text, func(c rune) bool { return !strconv.IsPrint(c) }); i >= 0 {
		t.Errorf("not printable: %q", text[i:min(len(text), i+10)])
	}
}

func TestMoreThanAnybodyNeeds(t *testing.T) {
	t.Parallel()
	names := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("net%d", i))
		}
		return strings.Join(list, ",")
	}
	rows := []struct {
		keys  []string
		value func(n int) string
		most  int
	}{
		// one port, many times
		{portLists, func(n int) string { return "1" + strings.Repeat(",1", n-1) }, 1 << 16},
		{interfaceLists, names, 256},
		{idLists[:1], numbers, 64},
		{idLists[1:2], numbers, 1024},
	}
	for _, row := range rows {
		for _, key := range row.keys {
			s, _ := settingOf(key)
			ours(t, meshed(says(s, row.value(row.most))), Defaults())
			for _, n := range []int{row.most + 1, max(row.most+1, 10000)} {
				value := row.value(n)
				want := Mistakes{{key, fmt.Sprintf("a list of %d items", n),
					fmt.Sprintf("at most %d", row.most)}}
				if diff := cmp.Diff(want,
					refused(t, meshed(says(s, value)), Defaults())); diff != "" {
					t.Errorf("%d items: mistakes (-want +got):\n%s", n, diff)
				}
			}
		}
	}
}

// What a pod costs is bounded as a whole, not key by key.
func TestAllThatAPodAsksForIsBounded(t *testing.T) {
	t.Parallel()
	cidrs := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("10.%d.%d.0/25", i/250, i%250))
		}
		return strings.Join(list, ",")
	}
	fitting := 1 + MaxRules - compiled(t, annotation(outboundRanges, cidrs(1))).Size()
	included, excluded := annotation(traffic+"includeOutboundIPRanges", cidrs(5000)),
		annotation(traffic+"excludeOutboundIPRanges", cidrs(5000))
	interfaces := func(n int) change {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("vm%d", i))
		}
		return annotation("istio.io/reroute-virtual-interfaces", strings.Join(list, ","))
	}
	for name, row := range map[string]struct {
		change change
		key    string // that is named; "" if the pod is taken
	}{
		"CIDRs that just fit": {annotation(outboundRanges, cidrs(fitting)), ""},
		"one CIDR more": {annotation(outboundRanges, cidrs(fitting+1)),
			outboundRanges},
		"CIDRs, included and excluded": {together(included, excluded), ""},
		"CIDRs for every interface":    {together(included, interfaces(64)), ""},
		"CIDRs for more interfaces than fit": {together(included, excluded, interfaces(128)),
			traffic + "includeOutboundIPRanges"},
		"CIDRs for DNS, groups and TPROXY": {together(included, variable(captureDNS, "true"),
			variable("ISTIO_OUTBOUND_OWNER_GROUPS", numbers(64))), ""},
		"ports in both directions": {
			together(annotation(traffic+"includeInboundPorts", numbers(2000)),
				annotation(traffic+"excludeOutboundPorts", numbers(1500))), ""},
		"more ports than fit": {annotation(traffic+"includeInboundPorts", numbers(6000)),
			traffic + "includeInboundPorts"},
		"ports that TPROXY needs two rules for": {
			together(annotation(traffic+"includeInboundPorts", numbers(3000)),
				annotation(istio+"interceptionMode", "TPROXY")),
			traffic + "includeInboundPorts"},
	} {
		d, err := Decide(meshed(row.change), Defaults())
		switch mistakes, _ := err.(Mistakes); { //nolint:errorlint // Decide promises the bare type
		case row.key == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case row.key == "":
			if size := Compile(d.Policy).Size(); size > MaxRules {
				t.Errorf("%s: accepted with %d rules", name, size)
			}
		case len(mistakes) != 1 || mistakes[0].Key != row.key ||
			!strings.Contains(err.Error(), "rules, at most 10240 are possible"):
			t.Errorf("%s: %v; want a mistake of %s", name, err, row.key)
		}
	}
}

func TestTenThousandCIDRs(t *testing.T) {
	t.Parallel()
	for family, format := range map[Family]string{IPv4: "10.%d.%d.0/25",
		IPv6: "2001:db8:%x:%x::/64"} {
		var list []string
		for i := range 10000 {
			list = append(list, fmt.Sprintf(format, i/250, i%250))
		}
		want := prefixes(list...)
		slices.Reverse(list)
		value := strings.Join(list, ", ")
		for _, key := range cidrLists {
			policy := ours(t, meshed(annotation(key, value)), Defaults()).Policy
			got := policy.Outbound.CIDRs
			if key == traffic+"excludeOutboundIPRanges" {
				got = policy.Outbound.ExcludeCIDRs
			}
			if diff := cmp.Diff(want, got, byValue); diff != "" {
				t.Errorf("%s: %s: %.2000s", key, family, diff)
			}
		}
	}
}

// The pod repeats what its cluster has set; another pod's own choice is a mistake there.
func TestTheClustersOwnListenersAreNoMistakeOfThePod(t *testing.T) {
	t.Parallel()
	cfg := Defaults()
	cfg.Ports.Tunnel = cfg.Ports.Inbound
	ours(t, meshed(), cfg)
	ours(t, meshed(annotation(keyInboundPort, "15006")), cfg)
	if m := refused(t, meshed(annotation(keyOutboundPort, "15006")), cfg); len(m) != 1 {
		t.Errorf("mistakes: %s", m)
	}
}

func TestAStandInForAListenerIsCheckedAgainstTheOthers(t *testing.T) {
	t.Parallel()
	cfg := Defaults()
	cfg.Values = map[string]string{keyInboundPort: "15053"}
	if err := cfg.Validate(); err == nil ||
		!strings.Contains(err.Error(), `redirect.values.sidecar-cni.io/inboundPort: "15053"`) {
		t.Errorf("error %v", err)
	}
}
