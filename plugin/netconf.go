package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// conf is the plugin's entry in the network's configuration, and what the runtime adds to it for one call.
type conf struct {
	backend     string
	agentSocket string
	kubeconfig  string
	stateDir    string
	deadline    time.Duration
	logLevel    string
	logFile     string
	dnsCapture  string
	redirect    redirect.Config

	given

	mistakes []string // wrong values, for which the defaults stand
	warnings []string // what is ignored
}

// setting is one key of the entry. The table of them is the parser, and docs/configuration.md is printed from it.
type setting struct {
	key     string // with a dot: the second is within the object of the first
	initial string // JSON
	form    string // what is accepted
	about   string
	read    func([]byte, *conf) bool // reports whether the value has that form
}

//go:generate go test . -run TestConfigurationPage -update

var settings = []setting{
	{
		key: "backend", initial: `"nftables"`, form: "`nftables`, `iptables-nft` or `iptables-legacy`",
		about: "What programs the rules. The installer finds out what a node can. A pod with its own user namespace always gets nftables, since the kernel refuses the others there.",
		read:  value(func(c *conf) *string { return &c.backend }, oneOf(nftablesBackend, iptablesNFT, iptablesLegacy)),
	},
	{
		key: "agentSocket", initial: `"/run/sidecar-cni/agent.sock"`, form: "an absolute path",
		about: "The socket of the node agent, which is asked first about a pod that may be ours.",
		read:  value(func(c *conf) *string { return &c.agentSocket }, filepath.IsAbs),
	},
	{
		key: "kubeconfig", initial: `"/etc/cni/net.d/sidecar-cni.d/kubeconfig"`, form: "an absolute path",
		about: "How the API server is reached, which is asked while the agent is away.",
		read:  value(func(c *conf) *string { return &c.kubeconfig }, filepath.IsAbs),
	},
	{
		key: "stateDir", initial: `"/run/sidecar-cni/state"`, form: "an absolute path",
		about: "The directory, on a tmpfs, in which ADD records what it programmed.",
		read:  value(func(c *conf) *string { return &c.stateDir }, filepath.IsAbs),
	},
	{
		key: "excludeNamespaces", initial: `["kube-system"]`, form: "a list of namespaces",
		about: "Namespaces whose pods are left alone, unasked. The installer adds its own.",
		read:  value(func(c *conf) *[]string { return &c.redirect.ExcludeNamespaces }, each(isName)),
	},
	{
		key: "dnsCapture", initial: `"servers"`, form: "`servers` or `all`",
		about: "For pods that ask for DNS capture: only what goes to their nameservers, or everything to port 53. Where the runtime does not tell the nameservers it is everything.",
		read:  value(func(c *conf) *string { return &c.dnsCapture }, oneOf(captureServers, captureAll)),
	},
	{
		key: "deadline", initial: `"10s"`, form: "a duration from `1s` to `2m`",
		about: "How long ADD and CHECK try to learn what a pod is.",
		read:  readDeadline,
	},
	{
		key: "logLevel", initial: `"info"`, form: "`debug`, `info` or `error`",
		about: "`info` is a line a command, `debug` tells the steps, `error` nothing but the plugin's own faults.",
		read:  value(func(c *conf) *string { return &c.logLevel }, oneOf("debug", "info", "error")),
	},
	{
		key: "logFile", initial: `""`, form: "an absolute path; empty for none",
		about: "A file for the log, beside the standard error that the runtime keeps or not. It is rotated at 10 MiB and has three predecessors. What is about pods that are not ours does not go there.",
		read:  value(func(c *conf) *string { return &c.logFile }, func(path string) bool { return path == "" || filepath.IsAbs(path) }),
	},
	{
		key: "redirect.ports.outbound", initial: "15001", form: "a port from 1 to 65535",
		about: "The proxy's listener for what the pod sends.",
		read:  value(func(c *conf) *uint16 { return &c.redirect.Ports.Outbound }, whatever),
	},
	{
		key: "redirect.ports.inbound", initial: "15006", form: "a port from 1 to 65535",
		about: "The proxy's listener for what enters the pod.",
		read:  value(func(c *conf) *uint16 { return &c.redirect.Ports.Inbound }, whatever),
	},
	{
		key: "redirect.ports.tunnel", initial: "15008", form: "a port from 1 to 65535",
		about: "The port of tunnelled traffic, which enters the proxy directly and is never redirected.",
		read:  value(func(c *conf) *uint16 { return &c.redirect.Ports.Tunnel }, whatever),
	},
	{
		key: "redirect.ports.dns", initial: "15053", form: "a port from 1 to 65535 that is not 53",
		about: "The proxy's resolver.",
		read:  value(func(c *conf) *uint16 { return &c.redirect.Ports.DNS }, whatever),
	},
	{
		key: "redirect.statusPort", initial: "15020", form: "a port from 0 to 65535",
		about: "The status port of a pod that does not name its own: left alone inbound.",
		read:  value(func(c *conf) *uint16 { return &c.redirect.Status }, whatever),
	},
	{
		key: "redirect.openPorts", initial: "[15020,15021,15090]", form: "a list of ports",
		about: "Inbound ports of every pod that are left alone.",
		read:  value(func(c *conf) *[]uint16 { return &c.redirect.Open }, whatever),
	},
	{
		key: "redirect.proxy.uids", initial: "[1337]", form: "a list of at least one uid, without 0",
		about: "The proxy's users, where the pod does not tell.",
		read:  value(func(c *conf) *[]uint32 { return &c.redirect.Proxy.UIDs }, whatever),
	},
	{
		key: "redirect.proxy.gids", initial: "[1337]", form: "a list of at least one gid, without 0",
		about: "The proxy's groups, where the pod does not tell.",
		read:  value(func(c *conf) *[]uint32 { return &c.redirect.Proxy.GIDs }, whatever),
	},
	{
		key: "redirect.marks.tproxy", initial: "1337", form: "a mark other than 0",
		about: "TPROXY: the mark of packets for the proxy.",
		read:  value(func(c *conf) *uint32 { return &c.redirect.Marks.TProxy }, whatever),
	},
	{
		key: "redirect.marks.selfCall", initial: "1338", form: "a mark other than 0 and `redirect.marks.tproxy`",
		about: "TPROXY: the mark of what the proxy sends to its own pod's address.",
		read:  value(func(c *conf) *uint32 { return &c.redirect.Marks.SelfCall }, whatever),
	},
	{
		key: "redirect.marks.table", initial: "133", form: "a routing table other than 0 and 253 to 255",
		about: "TPROXY: the routing table that brings marked packets to the proxy.",
		read:  value(func(c *conf) *uint32 { return &c.redirect.Marks.Table }, whatever),
	},
	{
		key: "redirect.passthroughIPv4", initial: `"127.0.0.6"`, form: "an address in 127.0.0.0/8",
		about: "The address from which the proxy calls the app.",
		read:  value(func(c *conf) *netip.Addr { return &c.redirect.PassthroughIPv4 }, whatever),
	},
	{
		key: "redirect.passthroughIPv6", initial: `"::6"`, form: "an IPv6 address",
		about: "The same for IPv6. It is added to the pod's loopback interface.",
		read:  value(func(c *conf) *netip.Addr { return &c.redirect.PassthroughIPv6 }, whatever),
	},
	{
		key: "redirect.values", initial: "{}", form: "an object of strings, keyed by annotations and variables of the reference page",
		about: "Stand-ins for what a pod does not say, such as `{\"sidecar.istio.io/interceptionMode\": \"TPROXY\"}`.",
		read:  value(func(c *conf) *map[string]string { return &c.redirect.Values }, whatever),
	},
}

// The values of backend and dnsCapture.
const (
	nftablesBackend = "nftables"
	iptablesNFT     = "iptables-nft"
	iptablesLegacy  = "iptables-legacy"
	captureServers  = "servers"
	captureAll      = "all"
)

// standard are the keys that CNI gives to every plugin, beside those that begin with cni.dev/.
var standard = []string{"cniVersion", "name", "type", "capabilities", "runtimeConfig", "prevResult", "ipam", "dns", "args"}

// parseConf reads what came on standard input. Whatever is wrong is remembered, not raised: it must not hold up a pod that
// is not ours.
func parseConf(data []byte) conf {
	c := conf{redirect: redirect.Defaults()}
	for _, s := range settings {
		s.read([]byte(s.initial), &c)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		c.mistake("configuration", data, "a JSON object")
		return c
	}
	c.readGiven(top)
	c.readObject("", top)
	c.redirect.CaptureAllDNS = c.dnsCapture == captureAll
	if err := c.redirect.Validate(); err != nil {
		c.mistakes = append(c.mistakes, strings.Split(err.Error(), "\n")...)
	}
	return c
}

func (c *conf) readObject(prefix string, fields map[string]json.RawMessage) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		key, raw := prefix+name, fields[name]
		i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
		switch {
		case i >= 0:
			if !settings[i].read(raw, c) {
				c.mistake(key, raw, settings[i].form)
			}
		case isObject(key):
			var within map[string]json.RawMessage
			if err := json.Unmarshal(raw, &within); err != nil || within == nil {
				c.mistake(key, raw, "an object")
			}
			c.readObject(key+".", within)
		case prefix == "" && (slices.Contains(standard, name) || strings.HasPrefix(name, "cni.dev/")):
		default:
			c.warn("unknown key %q: ignored", key)
		}
	}
}

func isObject(key string) bool {
	return slices.ContainsFunc(settings, func(s setting) bool { return strings.HasPrefix(s.key, key+".") })
}

func (c *conf) mistake(key string, raw []byte, want string) {
	const enough = 64 // bytes of a value, to recognise it by
	have := string(raw)
	if len(have) > enough {
		have = fmt.Sprintf("%s... and %d bytes more", strings.ToValidUTF8(have[:enough], ""), len(have)-enough)
	}
	c.mistakes = append(c.mistakes, fmt.Sprintf("%s: %s: want %s", key, have, strings.ReplaceAll(want, "`", "")))
}

func (c *conf) warn(format string, args ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
}
