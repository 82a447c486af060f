package netconf

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

var byText = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// settled is the part of a configuration that an administrator writes.
func settled(c Conf) Conf {
	c.Given = Given{}
	return c
}

func compare(want, got Conf) string {
	return cmp.Diff(want, got, cmp.AllowUnexported(Conf{}, Given{}), byText)
}

func TestNothingConfiguredWorks(t *testing.T) {
	t.Parallel()
	want := Conf{
		Backend: "nftables", AgentSocket: "/run/sidecar-cni/agent.sock",
		Kubeconfig: "/etc/cni/net.d/sidecar-cni.d/kubeconfig",
		StateDir:   "/run/sidecar-cni/state", Deadline: 10 * time.Second, LogLevel: "info",
		DNSCapture: "servers",
		Redirect:   redirect.Defaults(),
	}
	want.Redirect.Values = map[string]string{}
	if diff := compare(want,
		settled(Parse([]byte(`{"cniVersion":"1.0.0","name":"pods","type":"sidecar-cni"}`)))); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

// Each row changes what its key stands for, and nothing else.
func TestSettings(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		value  string
		change func(*Conf)
	}{
		"backend": {`"iptables-legacy"`,
			func(c *Conf) { c.Backend = redirect.IptablesLegacy }},
		"agentSocket": {`"/a"`, func(c *Conf) { c.AgentSocket = "/a" }},
		"kubeconfig":  {`"/k"`, func(c *Conf) { c.Kubeconfig = "/k" }},
		"stateDir":    {`"/s"`, func(c *Conf) { c.StateDir = "/s" }},
		"excludeNamespaces": {`["a","b-1"]`,
			func(c *Conf) { c.Redirect.ExcludeNamespaces = []string{"a", "b-1"} }},
		"dnsCapture": {`"all"`,
			func(c *Conf) { c.DNSCapture, c.Redirect.CaptureAllDNS = "all", true }},
		"deadline":                {`"1m30s"`, func(c *Conf) { c.Deadline = 90 * time.Second }},
		"logLevel":                {`"debug"`, func(c *Conf) { c.LogLevel = "debug" }},
		"logFile":                 {`"/l"`, func(c *Conf) { c.LogFile = "/l" }},
		"redirect.ports.outbound": {`1`, func(c *Conf) { c.Redirect.Ports.Outbound = 1 }},
		"redirect.ports.inbound":  {`2`, func(c *Conf) { c.Redirect.Ports.Inbound = 2 }},
		"redirect.ports.tunnel":   {`3`, func(c *Conf) { c.Redirect.Ports.Tunnel = 3 }},
		"redirect.ports.dns":      {`4`, func(c *Conf) { c.Redirect.Ports.DNS = 4 }},
		"redirect.statusPort":     {`5`, func(c *Conf) { c.Redirect.Status = 5 }},
		"redirect.openPorts":      {`[6]`, func(c *Conf) { c.Redirect.Open = []uint16{6} }},
		"redirect.proxy.uids":     {`[7]`, func(c *Conf) { c.Redirect.Proxy.UIDs = []uint32{7} }},
		"redirect.proxy.gids":     {`[8]`, func(c *Conf) { c.Redirect.Proxy.GIDs = []uint32{8} }},
		"redirect.marks.tproxy":   {`9`, func(c *Conf) { c.Redirect.Marks.TProxy = 9 }},
		"redirect.marks.selfCall": {`10`, func(c *Conf) { c.Redirect.Marks.SelfCall = 10 }},
		"redirect.marks.table":    {`11`, func(c *Conf) { c.Redirect.Marks.Table = 11 }},
		"redirect.passthroughIPv4": {`"127.1.1.1"`,
			func(c *Conf) { c.Redirect.PassthroughIPv4 = netip.MustParseAddr("127.1.1.1") }},
		"redirect.passthroughIPv6": {`"fd00::6"`,
			func(c *Conf) { c.Redirect.PassthroughIPv6 = netip.MustParseAddr("fd00::6") }},
		"runtimeHandlers": {`{"vm-*":"skip"}`, func(c *Conf) {
			c.Redirect.RuntimeHandlers = redirect.RuntimeHandlers{"vm-*": redirect.Leave}
		}},
		"redirect.values": {`{"INVALID_DROP":"true"}`, func(c *Conf) {
			c.Redirect.Values = map[string]string{"INVALID_DROP": "true"}
		}},
	}
	for _, s := range Settings {
		t.Run(s.Key, func(t *testing.T) {
			t.Parallel()
			row, ok := rows[s.Key]
			if !ok {
				t.Fatal("no row for this key")
			}
			want := Parse([]byte(`{}`))
			row.change(&want)
			if diff := compare(want, Parse([]byte(nested(s.Key, row.value)))); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", s.Key, row.value, diff)
			}
		})
	}
}

// nested writes a value under a key with dots.
func nested(key, value string) string {
	for _, part := range slices.Backward(strings.Split(key, ".")) {
		value = `{"` + part + `":` + value + `}`
	}
	return value
}

func TestNoSettingTakesEverything(t *testing.T) {
	t.Parallel()
	for _, s := range Settings {
		for _, wrong := range []string{`null`, `true`, `1.5`, `-1`, `"\u0000"`, `[[]]`, `{"a":1}`} {
			c := Parse([]byte(nested(s.Key, wrong)))
			if len(c.Mistakes) != 1 || !strings.HasPrefix(c.Mistakes[0], s.Key) {
				t.Errorf("%s: %s: mistakes %q", s.Key, wrong, c.Mistakes)
			}
			c.Mistakes = nil
			if diff := compare(Parse([]byte(`{}`)), c); diff != "" &&
				!strings.HasPrefix(s.Key, "redirect.") {
				t.Errorf("%s: %s changes something (-want +got):\n%s", s.Key, wrong, diff)
			}
		}
	}
}

func TestAllMistakesAreNamed(t *testing.T) {
	t.Parallel()
	c := Parse([]byte(`{
		"backend": "ebpf", "kubeconfig": "kubeconfig", "agentSocket": 7, "stateDir": "", "excludeNamespaces": ["a", "B_"],
		"dnsCapture": true, "deadline": 10, "logLevel": "verbose", "logFile": "x",
		"redirect": {"ports": {"outbound": 0, "inbound": 65536, "dns": 53}, "proxy": [1337], "marks": {"table": 255}, "values": {"a": "b"}}
	}`))
	want := []string{
		`agentSocket: 7: want an absolute path`,
		`backend: "ebpf": want nftables, iptables-nft or iptables-legacy`,
		`deadline: 10: want a duration from 1s to 2m`,
		`dnsCapture: true: want servers or all`,
		`excludeNamespaces: ["a", "B_"]: want a list of namespaces`,
		`kubeconfig: "kubeconfig": want an absolute path`,
		`logFile: "x": want an absolute path; empty for none`,
		`logLevel: "verbose": want debug, info or error`,
		`redirect.ports.inbound: 65536: want a port from 1 to 65535`,
		`redirect.proxy: [1337]: want an object`,
		`stateDir: "": want an absolute path`,
		`redirect.ports.outbound: 0: want a port from 1 to 65535`,
		`redirect.ports.dns: 53: want a port from 1 to 65535 that is not 53`,
		`redirect.marks.table: 255: want a routing table other than 0 and the kernel's own, 253 to 255`,
		`redirect.values: "a": want an annotation or a variable of the reference page`,
	}
	if diff := cmp.Diff(want, c.Mistakes); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
}

func TestDeadlineHasBounds(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"1s": true, "999ms": false, "2m": true, "2m0.1s": false,
		"-5s": false, "": false, "5": false} {
		if c := Parse([]byte(`{"deadline":"` + text + `"}`)); (len(c.Mistakes) == 0) != ok {
			t.Errorf("%q: mistakes %q", text, c.Mistakes)
		}
	}
}

func TestUnknownKeysAreWarnings(t *testing.T) {
	t.Parallel()
	c := Parse([]byte(`{
		"cniVersion": "1.1.0", "name": "pods", "type": "sidecar-cni", "capabilities": {"dns": true}, "ipam": {}, "dns": {}, "args": {},
		"cni.dev/attachments": [], "cni.dev/whatever": 1, "runtimeConfig": {"portMappings": []},
		"backendd": "nftables", "Backend": "x", "redirect": {"ports": {"admin": 15000}, "prots": {}}
	}`))
	want := []string{
		`unknown key "Backend": ignored`, `unknown key "backendd": ignored`,
		`unknown key "redirect.ports.admin": ignored`, `unknown key "redirect.prots": ignored`,
	}
	if diff := cmp.Diff(want, c.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Backend", "backendd", "redirect.ports.admin", "redirect.prots"},
		c.Unknown); diff != "" {
		t.Errorf("unknown keys (-want +got):\n%s", diff)
	}
	if len(c.Mistakes) > 0 {
		t.Errorf("mistakes: %q", c.Mistakes)
	}
}

func TestALongValueIsShortened(t *testing.T) {
	t.Parallel()
	c := Parse([]byte(`{"backend":"` + strings.Repeat("é", 5000) + `"}`))
	if len(c.Mistakes) != 1 || len(c.Mistakes[0]) > 200 ||
		!strings.Contains(c.Mistakes[0], "bytes more") {
		t.Errorf("mistakes: %q", c.Mistakes)
	}
}

func FuzzConf(f *testing.F) {
	seeds := []string{
		``, `{}`, `null`, `[]`, `{"redirect":null}`, `{"redirect":{"ports":{"dns":53}}}`,
		`{"runtimeConfig":{"dns":{"Servers":["x"]}}}`,
		`{"cniVersion":"1.0.0","name":"pods","prevResult":{"cniVersion":"0.4.0","ips":[]},"deadline":"3s","unknown":{"a":[1]}}`,
		`{"cniVersion":"1.1.0","runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"sidecar.istio.io/status":"{}"}}}`,
		`{"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],"excludeNamespaces":["a"]}`,
	}
	for _, s := range Settings {
		seeds = append(seeds, nested(s.Key, s.Initial))
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := Parse(data)
		if c.Deadline < time.Second || c.Deadline > 2*time.Minute || c.StateDir == "" ||
			c.AgentSocket == "" || c.Kubeconfig == "" {
			t.Errorf("unusable settings: %+v", c)
		}
		if len(c.Mistakes) == 0 && c.Redirect.Validate() != nil {
			t.Errorf("a wrong value went unnoticed: %+v", c.Redirect)
		}
	})
}
