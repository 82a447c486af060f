package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

var byText = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// settled is the part of a configuration that an administrator writes.
func settled(c conf) conf {
	c.given = given{}
	return c
}

func compare(want, got conf) string {
	return cmp.Diff(want, got, cmp.AllowUnexported(conf{}, given{}), byText)
}

func TestNothingConfiguredWorks(t *testing.T) {
	t.Parallel()
	want := conf{
		backend: "nftables", agentSocket: "/run/sidecar-cni/agent.sock", kubeconfig: "/etc/cni/net.d/sidecar-cni.d/kubeconfig",
		stateDir: "/run/sidecar-cni/state", deadline: 10 * time.Second, logLevel: "info", dnsCapture: "servers",
		redirect: redirect.Defaults(),
	}
	want.redirect.Values = map[string]string{}
	if diff := compare(want, settled(parseConf([]byte(`{"cniVersion":"1.0.0","name":"pods","type":"sidecar-cni"}`)))); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

// Each row changes what its key stands for, and nothing else.
func TestSettings(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		value  string
		change func(*conf)
	}{
		"backend":                  {`"iptables-legacy"`, func(c *conf) { c.backend = iptablesLegacy }},
		"agentSocket":              {`"/a"`, func(c *conf) { c.agentSocket = "/a" }},
		"kubeconfig":               {`"/k"`, func(c *conf) { c.kubeconfig = "/k" }},
		"stateDir":                 {`"/s"`, func(c *conf) { c.stateDir = "/s" }},
		"excludeNamespaces":        {`["a","b-1"]`, func(c *conf) { c.redirect.ExcludeNamespaces = []string{"a", "b-1"} }},
		"dnsCapture":               {`"all"`, func(c *conf) { c.dnsCapture, c.redirect.CaptureAllDNS = "all", true }},
		"deadline":                 {`"1m30s"`, func(c *conf) { c.deadline = 90 * time.Second }},
		"logLevel":                 {`"debug"`, func(c *conf) { c.logLevel = "debug" }},
		"logFile":                  {`"/l"`, func(c *conf) { c.logFile = "/l" }},
		"redirect.ports.outbound":  {`1`, func(c *conf) { c.redirect.Ports.Outbound = 1 }},
		"redirect.ports.inbound":   {`2`, func(c *conf) { c.redirect.Ports.Inbound = 2 }},
		"redirect.ports.tunnel":    {`3`, func(c *conf) { c.redirect.Ports.Tunnel = 3 }},
		"redirect.ports.dns":       {`4`, func(c *conf) { c.redirect.Ports.DNS = 4 }},
		"redirect.statusPort":      {`5`, func(c *conf) { c.redirect.Status = 5 }},
		"redirect.openPorts":       {`[6]`, func(c *conf) { c.redirect.Open = []uint16{6} }},
		"redirect.proxy.uids":      {`[7]`, func(c *conf) { c.redirect.Proxy.UIDs = []uint32{7} }},
		"redirect.proxy.gids":      {`[8]`, func(c *conf) { c.redirect.Proxy.GIDs = []uint32{8} }},
		"redirect.marks.tproxy":    {`9`, func(c *conf) { c.redirect.Marks.TProxy = 9 }},
		"redirect.marks.selfCall":  {`10`, func(c *conf) { c.redirect.Marks.SelfCall = 10 }},
		"redirect.marks.table":     {`11`, func(c *conf) { c.redirect.Marks.Table = 11 }},
		"redirect.passthroughIPv4": {`"127.1.1.1"`, func(c *conf) { c.redirect.PassthroughIPv4 = netip.MustParseAddr("127.1.1.1") }},
		"redirect.passthroughIPv6": {`"fd00::6"`, func(c *conf) { c.redirect.PassthroughIPv6 = netip.MustParseAddr("fd00::6") }},
		"redirect.values": {`{"INVALID_DROP":"true"}`, func(c *conf) {
			c.redirect.Values = map[string]string{"INVALID_DROP": "true"}
		}},
	}
	for _, s := range settings {
		t.Run(s.key, func(t *testing.T) {
			t.Parallel()
			row, ok := rows[s.key]
			if !ok {
				t.Fatal("no row for this key")
			}
			want := parseConf([]byte(`{}`))
			row.change(&want)
			if diff := compare(want, parseConf([]byte(nested(s.key, row.value)))); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", s.key, row.value, diff)
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
	for _, s := range settings {
		for _, wrong := range []string{`null`, `true`, `1.5`, `-1`, `"\u0000"`, `[[]]`, `{"a":1}`} {
			c := parseConf([]byte(nested(s.key, wrong)))
			if len(c.mistakes) != 1 || !strings.HasPrefix(c.mistakes[0], s.key) {
				t.Errorf("%s: %s: mistakes %q", s.key, wrong, c.mistakes)
			}
			c.mistakes = nil
			if diff := compare(parseConf([]byte(`{}`)), c); diff != "" && !strings.HasPrefix(s.key, "redirect.") {
				t.Errorf("%s: %s changes something (-want +got):\n%s", s.key, wrong, diff)
			}
		}
	}
}

func TestAllMistakesAreNamed(t *testing.T) {
	t.Parallel()
	c := parseConf([]byte(`{
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
	if diff := cmp.Diff(want, c.mistakes); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
}

func TestDeadlineHasBounds(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"1s": true, "999ms": false, "2m": true, "2m0.1s": false, "-5s": false, "": false, "5": false} {
		if c := parseConf([]byte(`{"deadline":"` + text + `"}`)); (len(c.mistakes) == 0) != ok {
			t.Errorf("%q: mistakes %q", text, c.mistakes)
		}
	}
}

func TestUnknownKeysAreWarnings(t *testing.T) {
	t.Parallel()
	c := parseConf([]byte(`{
		"cniVersion": "1.1.0", "name": "pods", "type": "sidecar-cni", "capabilities": {"dns": true}, "ipam": {}, "dns": {}, "args": {},
		"cni.dev/attachments": [], "cni.dev/whatever": 1, "runtimeConfig": {"portMappings": []},
		"backendd": "nftables", "Backend": "x", "redirect": {"ports": {"admin": 15000}, "prots": {}}
	}`))
	want := []string{
		`unknown key "Backend": ignored`, `unknown key "backendd": ignored`,
		`unknown key "redirect.ports.admin": ignored`, `unknown key "redirect.prots": ignored`,
	}
	if diff := cmp.Diff(want, c.warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if len(c.mistakes) > 0 {
		t.Errorf("mistakes: %q", c.mistakes)
	}
}

func TestALongValueIsShortened(t *testing.T) {
	t.Parallel()
	c := parseConf([]byte(`{"backend":"` + strings.Repeat("é", 5000) + `"}`))
	if len(c.mistakes) != 1 || len(c.mistakes[0]) > 200 || !strings.Contains(c.mistakes[0], "bytes more") {
		t.Errorf("mistakes: %q", c.mistakes)
	}
}

func FuzzConf(f *testing.F) {
	seeds := []string{
		``, `{}`, `null`, `[]`, `{"redirect":null}`, `{"redirect":{"ports":{"dns":53}}}`, `{"runtimeConfig":{"dns":{"Servers":["x"]}}}`,
		`{"cniVersion":"1.0.0","name":"pods","prevResult":{"cniVersion":"0.4.0","ips":[]},"deadline":"3s","unknown":{"a":[1]}}`,
		`{"cniVersion":"1.1.0","runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"sidecar.istio.io/status":"{}"}}}`,
		`{"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],"excludeNamespaces":["a"]}`,
	}
	for _, s := range settings {
		seeds = append(seeds, nested(s.key, s.initial))
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := parseConf(data)
		if c.deadline < time.Second || c.deadline > 2*time.Minute || c.stateDir == "" || c.agentSocket == "" || c.kubeconfig == "" {
			t.Errorf("unusable settings: %+v", c)
		}
		if _, err := findBackend(t.Context(), c.backend); err != nil && c.backend == nftablesBackend {
			t.Errorf("backend %q: %v", c.backend, err)
		}
		if len(c.mistakes) == 0 && c.redirect.Validate() != nil {
			t.Errorf("a wrong value went unnoticed: %+v", c.redirect)
		}
		answer, err := c.result()
		if err == nil && !json.Valid(answer) {
			t.Errorf("answer %q", answer)
		}
	})
}

const configurationPage = "../docs/configuration.md"

func TestConfigurationPage(t *testing.T) {
	t.Parallel()
	want := page()
	if *update {
		if err := os.WriteFile(configurationPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(configurationPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/configuration.md is not what the table says (-table +page); `make generate` writes it anew:\n%s", diff)
	}
}
