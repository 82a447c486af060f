// Package netconf reads the plugin's entry in a network's configuration, and what the runtime adds
// to it for one call. The table of settings is the parser, and docs/configuration.md is printed
// from it.
//
//	conf := netconf.Parse(stdin)
//
// Be aware: nothing that is wrong is an error here. The plugin must not hold up a pod that is not
// ours because of it; the installer writes no entry that has Mistakes or Unknown keys.
package netconf

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Conf is the plugin's entry in the network's configuration, and what the runtime adds to it for
// one call.
type Conf struct {
	// The settings, by their keys in Settings, which says what each may be and its default. Paths
	// are absolute; LogFile is empty for none.
	Backend     string
	AgentSocket string
	Kubeconfig  string
	StateDir    string
	Deadline    time.Duration
	LogLevel    string
	LogFile     string
	DNSCapture  string

	// The settings under redirect, the excluded namespaces and the runtime handlers. It may be
	// invalid if there are Mistakes.
	Redirect redirect.Config

	// For this call only.
	Given

	Mistakes []string // wrong values, for which the defaults stand
	Unknown  []string // keys; each is also a warning
	Warnings []string // what is ignored
}

// Setting is one key of the entry.
type Setting struct {
	Key     string // with a dot: the second is within the object of the first
	Initial string // JSON
	Form    string // what is accepted
	About   string // for the reference page, in Markdown

	read func([]byte, *Conf) bool // reports whether the value has that form
}

// Settings lists them all.
var Settings = []Setting{
	{
		Key: "backend", Initial: `"` + redirect.NFTables + `"`,
		Form: "`nftables`, `iptables-nft` or `iptables-legacy`",
		About: "What programs the rules. The installer finds out what a node can. A pod with its " +
			"own user namespace always gets nftables, since the kernel refuses the others there.",
		read: value(func(c *Conf) *string { return &c.Backend }, oneOf(redirect.Backends...)),
	},
	{
		Key: "agentSocket", Initial: `"` + names.RunDir + "/" + names.AgentSocket + `"`,
		Form: "an absolute path",
		About: "The socket of the node agent. A pod that may be ours is looked for in `pods` beside " +
			"it, then asked for there.",
		read: value(func(c *Conf) *string { return &c.AgentSocket }, filepath.IsAbs),
	},
	{
		Key: "kubeconfig", Initial: `"` + names.ConfDir + "/" + names.CredentialsDir + "/" +
			names.Kubeconfig + `"`, Form: "an absolute path",
		About: "How the API server is reached, which is asked while the agent is away.",
		read:  value(func(c *Conf) *string { return &c.Kubeconfig }, filepath.IsAbs),
	},
	{
		Key: "stateDir", Initial: `"` + names.RunDir + "/" + names.Records + `"`,
		Form:  "an absolute path",
		About: "The directory, on a tmpfs, in which ADD records what it programmed.",
		read:  value(func(c *Conf) *string { return &c.StateDir }, filepath.IsAbs),
	},
	{
		Key: "excludeNamespaces", Initial: `["kube-system"]`, Form: "a list of namespaces",
		About: "Namespaces whose pods are left alone, unasked. The installer adds its own.",
		read: value(func(c *Conf) *[]string { return &c.Redirect.ExcludeNamespaces },
			each(isName)),
	},
	{
		Key: "runtimeHandlers", Initial: `{"runsc*":"refuse","gvisor*":"refuse","kata*":"refuse"}`,
		Form: "an object of `refuse`, `skip` or `allow`, keyed by patterns of handlers",
		About: "Meshed pods whose runtime class has such a handler have a kernel or a network " +
			"stack of their own, which meets no rules: they do not start, start without " +
			"redirection and with an Event, or are treated like others. A `*` ends a pattern; of " +
			"several that fit the longest counts, but a handler's own name comes first. What is " +
			"said here stands in place of the default, the handlers of Kata and gVisor included.",
		read: value(func(c *Conf) *redirect.RuntimeHandlers { return &c.Redirect.RuntimeHandlers },
			areActions),
	},
	{
		Key: "dnsCapture", Initial: `"servers"`, Form: "`servers` or `all`",
		About: "For pods that ask for DNS capture: only what goes to their nameservers, or " +
			"everything to port 53. Where the runtime does not pass the nameservers it is " +
			"everything.",
		read: value(func(c *Conf) *string { return &c.DNSCapture },
			oneOf(captureServers, captureAll)),
	},
	{
		Key: "deadline", Initial: `"10s"`, Form: "a duration from `1s` to `2m`",
		About: "How long ADD and CHECK try to learn what a pod is.",
		read:  readDeadline,
	},
	{
		Key: "logLevel", Initial: `"info"`, Form: "`debug`, `info` or `error`",
		About: "`info` is a line a command, `debug` logs the steps, `error` nothing but the " +
			"plugin's own faults.",
		read: value(func(c *Conf) *string { return &c.LogLevel }, oneOf("debug", "info", "error")),
	},
	{
		Key: "logFile", Initial: `""`, Form: "an absolute path; empty for none",
		About: "A file for the log, beside the standard error that the runtime keeps or not. " +
			"It is rotated at 10 MiB: the older ones have its name with `.1` to `.3` behind, " +
			"and the file with `.lock` behind is locked meanwhile. " +
			"What is about pods that are not ours does not go there.",
		read: value(func(c *Conf) *string { return &c.LogFile },
			func(path string) bool { return path == "" || filepath.IsAbs(path) }),
	},
	{
		Key: "redirect.ports.outbound", Initial: "15001", Form: "a port from 1 to 65535",
		About: "The proxy's listener for what the pod sends.",
		read:  value(func(c *Conf) *uint16 { return &c.Redirect.Ports.Outbound }, whatever),
	},
	{
		Key: "redirect.ports.inbound", Initial: "15006", Form: "a port from 1 to 65535",
		About: "The proxy's listener for what enters the pod.",
		read:  value(func(c *Conf) *uint16 { return &c.Redirect.Ports.Inbound }, whatever),
	},
	{
		Key: "redirect.ports.tunnel", Initial: "15008", Form: "a port from 1 to 65535",
		About: "The port of tunnelled traffic, which enters the proxy directly and is never " +
			"redirected.",
		read: value(func(c *Conf) *uint16 { return &c.Redirect.Ports.Tunnel }, whatever),
	},
	{
		Key: "redirect.ports.dns", Initial: "15053", Form: "a port from 1 to 65535 that is not 53",
		About: "The proxy's resolver.",
		read:  value(func(c *Conf) *uint16 { return &c.Redirect.Ports.DNS }, whatever),
	},
	{
		Key: "redirect.statusPort", Initial: "15020", Form: "a port from 0 to 65535",
		About: "The status port of a pod that does not name its own: left alone inbound.",
		read:  value(func(c *Conf) *uint16 { return &c.Redirect.Status }, whatever),
	},
	{
		Key: "redirect.openPorts", Initial: "[15020,15021,15090]", Form: "a list of ports",
		About: "Inbound ports of every pod that are left alone.",
		read:  value(func(c *Conf) *[]uint16 { return &c.Redirect.Open }, whatever),
	},
	{
		Key: "redirect.proxy.uids", Initial: "[1337]",
		Form:  "a list of at least one uid, without 0",
		About: "The proxy's users, where the pod does not set them.",
		read:  value(func(c *Conf) *[]uint32 { return &c.Redirect.Proxy.UIDs }, whatever),
	},
	{
		Key: "redirect.proxy.gids", Initial: "[1337]",
		Form:  "a list of at least one gid, without 0",
		About: "The proxy's groups, where the pod does not set them.",
		read:  value(func(c *Conf) *[]uint32 { return &c.Redirect.Proxy.GIDs }, whatever),
	},
	{
		Key: "redirect.marks.tproxy", Initial: "1337", Form: "a mark other than 0",
		About: "TPROXY: the mark of packets for the proxy.",
		read:  value(func(c *Conf) *uint32 { return &c.Redirect.Marks.TProxy }, whatever),
	},
	{
		Key: "redirect.marks.selfCall", Initial: "1338", Form: "a mark other than 0 and " +
			"`redirect.marks.tproxy`",
		About: "TPROXY: the mark of what the proxy sends to its own pod's address.",
		read:  value(func(c *Conf) *uint32 { return &c.Redirect.Marks.SelfCall }, whatever),
	},
	{
		Key: "redirect.marks.table", Initial: "133",
		Form:  "a routing table other than 0 and 253 to 255",
		About: "TPROXY: the routing table that brings marked packets to the proxy.",
		read:  value(func(c *Conf) *uint32 { return &c.Redirect.Marks.Table }, whatever),
	},
	{
		Key: "redirect.passthroughIPv4", Initial: `"127.0.0.6"`, Form: "an address in 127.0.0.0/8",
		About: "The address from which the proxy calls the app.",
		read:  value(func(c *Conf) *netip.Addr { return &c.Redirect.PassthroughIPv4 }, whatever),
	},
	{
		Key: "redirect.passthroughIPv6", Initial: `"::6"`, Form: "an IPv6 address",
		About: "The same for IPv6. It is added to the pod's loopback interface.",
		read:  value(func(c *Conf) *netip.Addr { return &c.Redirect.PassthroughIPv6 }, whatever),
	},
	{
		Key: "redirect.values", Initial: "{}", Form: "an object of strings, keyed by annotations " +
			"and variables of the reference page",
		About: "Stand-ins for what a pod does not say, such as " +
			"`{\"sidecar.istio.io/interceptionMode\": \"TPROXY\"}`.",
		read: value(func(c *Conf) *map[string]string { return &c.Redirect.Values }, whatever),
	},
}

// The values of dnsCapture.
const (
	captureServers = "servers"
	captureAll     = "all"
)

// standard are the keys that CNI gives to every plugin, beside those that begin with cni.dev/.
var standard = []string{"cniVersion", "name", "type", "capabilities", "runtimeConfig", "prevResult",
	"ipam", "dns", "args"}

// Parse reads what came on standard input. Whatever is wrong is remembered, not raised: it must not
// hold up a pod that is not ours.
func Parse(data []byte) Conf {
	c := Conf{Redirect: redirect.Defaults()}
	for _, s := range Settings {
		s.read([]byte(s.Initial), &c)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		c.mistake("configuration", data, "a JSON object")
		return c
	}
	c.readGiven(top)
	c.readObject("", top)
	c.Redirect.CaptureAllDNS = c.DNSCapture == captureAll
	if err := c.Redirect.Validate(); err != nil {
		c.Mistakes = append(c.Mistakes, strings.Split(err.Error(), "\n")...)
	}
	return c
}

func (c *Conf) readObject(prefix string, fields map[string]json.RawMessage) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		key, raw := prefix+name, fields[name]
		i := slices.IndexFunc(Settings, func(s Setting) bool { return s.Key == key })
		switch {
		case i >= 0:
			if !Settings[i].read(raw, c) {
				c.mistake(key, raw, Settings[i].Form)
			}
		case isObject(key):
			var within map[string]json.RawMessage
			if err := json.Unmarshal(raw, &within); err != nil || within == nil {
				c.mistake(key, raw, "an object")
			}
			c.readObject(key+".", within)
		case prefix == "" && (slices.Contains(standard, name) ||
			strings.HasPrefix(name, "cni.dev/")):
		default:
			c.Unknown = append(c.Unknown, key)
			c.warn("unknown key %q: ignored", key)
		}
	}
}

func areActions(handlers redirect.RuntimeHandlers) bool {
	for pattern, action := range handlers {
		if !slices.Contains(redirect.HandlerActions, action) ||
			strings.Contains(strings.TrimSuffix(pattern, "*"), "*") {
			return false
		}
	}
	return true
}

func isObject(key string) bool {
	return slices.ContainsFunc(Settings,
		func(s Setting) bool { return strings.HasPrefix(s.Key, key+".") })
}

func (c *Conf) mistake(key string, raw []byte, want string) {
	const enough = 64 // bytes of a value, to recognise it by
	have := string(raw)
	if len(have) > enough {
		have = fmt.Sprintf("%s... and %d bytes more", strings.ToValidUTF8(have[:enough], ""),
			len(have)-enough)
	}
	c.Mistakes = append(c.Mistakes,
		fmt.Sprintf("%s: %s: want %s", key, have, strings.ReplaceAll(want, "`", "")))
}

func (c *Conf) warn(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}
