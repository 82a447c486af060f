package redirect

import (
	"slices"
	"strings"
)

// initFlag is a flag of istio-init.
type initFlag struct {
	short, long string
	toggle      bool   // true or false; the name alone says true
	also        string // a variable that wins over the one of the flag's own name
	// read is nil where a flag says nothing about what is redirected.
	read func(*reader, string, *Policy)
}

// initFlags are the flags that decide what is redirected. An absent flag is an empty value, as it
// is there: without -i nothing outbound is captured, without -b nothing inbound.
//
// Source: tools/istio-iptables/pkg/cmd/root.go of istio/istio.
var initFlags = []initFlag{
	{
		short: "p", long: "envoy-port",
		read: portOf(func(p *Policy) *uint16 { return &p.Ports.Outbound }),
	},
	{
		short: "z", long: "inbound-capture-port",
		read: portOf(func(p *Policy) *uint16 { return &p.Ports.Inbound }),
	},
	{
		short: "e", long: "inbound-tunnel-port",
		read: portOf(func(p *Policy) *uint16 { return &p.Ports.Tunnel }),
	},
	{short: "u", long: "proxy-uid", read: readProxyUIDs}, // before -g
	{short: "g", long: "proxy-gid", read: readProxyGIDs},
	{short: "m", long: "istio-inbound-interception-mode", read: readCapturingMode},
	{
		short: "i", long: "istio-service-cidr",
		read: readerOf("traffic.sidecar.istio.io/includeOutboundIPRanges"),
	},
	{
		short: "x", long: "istio-service-exclude-cidr",
		read: readerOf("traffic.sidecar.istio.io/excludeOutboundIPRanges"),
	},
	{
		short: "b", long: "istio-inbound-ports",
		read: readerOf("traffic.sidecar.istio.io/includeInboundPorts"),
	},
	{short: "d", long: "istio-local-exclude-ports", read: readOpenPorts},
	{
		short: "q", long: "istio-outbound-ports",
		read: readerOf("traffic.sidecar.istio.io/includeOutboundPorts"),
	},
	{
		short: "o", long: "istio-local-outbound-ports-exclude",
		read: readerOf("traffic.sidecar.istio.io/excludeOutboundPorts"),
	},
	{
		short: "k", long: "kube-virt-interfaces",
		read: readerOf("istio.io/reroute-virtual-interfaces"),
	},
	{
		short: "c", long: "istio-exclude-interfaces",
		read: readerOf("traffic.sidecar.istio.io/excludeInterfaces"),
	},
	{
		short: "t", long: "istio-inbound-tproxy-mark",
		read: numberOf(func(p *Policy) *uint32 { return &p.Marks.TProxy }),
	},
	{
		short: "r", long: "istio-inbound-tproxy-route-table",
		read: numberOf(func(p *Policy) *uint32 { return &p.Marks.Table }),
	},
	{
		long: "redirect-dns", also: "ISTIO_META_DNS_CAPTURE", toggle: true,
		read: func(_ *reader, v string, p *Policy) { p.DNS.Capture = v == "true" },
	},
	{
		long: "capture-all-dns", toggle: true,
		read: func(_ *reader, v string, p *Policy) { p.DNS.Everywhere = v == "true" },
	},
	{
		long: "drop-invalid", also: "INVALID_DROP", toggle: true,
		read: func(_ *reader, v string, p *Policy) { p.DropInvalid = v == "true" },
	},
}

// otherInitFlags are about how istio-init works: what it prints, whether it writes rules, checks
// them or removes them, and by which program. Some of them are of older releases, whose command
// lines are still in templates.
var otherInitFlags = []initFlag{
	{long: "dry-run", short: "n", toggle: true},
	{long: "restore-format", short: "f", toggle: true},
	{long: "skip-rule-apply", toggle: true},
	{long: "run-validation", toggle: true},
	{long: "iptables-probe-port"},
	{long: "probe-timeout"},
	{long: "reconcile", toggle: true},
	{long: "cleanup-only", toggle: true},
	{long: "force-apply", toggle: true},
	{long: "native-nftables", toggle: true},
	{long: "force-iptables-version"},
	{long: "iptables-version"},
	{long: "iptables-trace-logging", toggle: true},
	{long: "dual-stack", toggle: true}, // here both families always have their rules
	{long: "network-namespace"},
	{long: "cni-mode", toggle: true},
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

// initVariables are what istio-init reads from variables only.
var initVariables = []string{
	"ISTIO_OUTBOUND_OWNER_GROUPS", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
	"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",
}

// variables are those that istio-init reads a flag from where the command line is silent; the later
// one wins. Only the flag of Envoy's port has none.
func (f initFlag) variables() []string {
	if f.long == "envoy-port" {
		return nil
	}
	names := []string{strings.ToUpper(strings.ReplaceAll(f.long, "-", "_"))}
	if f.also != "" {
		names = append(names, f.also)
	}
	return names
}

// ParseInitFlags reads istio-init's command line, with or without the programs' names in front, and
// the variables of its container as a policy. The mistakes of all flags come at once, as Mistakes.
//
// Be aware: flags that make istio-init write no rules, such as --dry-run or --skip-rule-apply,
// are accepted and change nothing. The policy is what the rules would be.
func ParseInitFlags(args []string, env map[string]string, cfg Config) (Policy, error) {
	given := initFlagsOf(env, cfg)
	if err := given.readArgs(args); err != nil {
		return Policy{}, err
	}
	p := cfg.basis()
	p.Inbound.ExcludePorts = nil // here the injector names all of them
	var mistakes Mistakes
	for _, f := range initFlags {
		g := given[f.long]
		r := reader{key: g.key, dropEmpty: true} // as istio-init does in all lists
		f.read(&r, g.value, &p)
		mistakes = append(mistakes, r.mistakes...)
	}
	for _, key := range initVariables {
		s, _ := settingOf(key)
		r := reader{key: key, dropEmpty: true}
		s.read(&r, cfg.value(env, key), &p)
		mistakes = append(mistakes, r.mistakes...)
	}
	if len(mistakes) > 0 {
		return Policy{}, mistakes
	}
	p.DNS.find(nil)
	return p, nil
}

func readerOf(key string) func(*reader, string, *Policy) {
	s, _ := settingOf(key)
	return s.read
}

// readCapturingMode knows no NONE: who calls istio-init wants rules. Without a mode it redirects.
func readCapturingMode(r *reader, v string, p *Policy) {
	if v == "" {
		v = string(ModeRedirect)
	}
	if p.Mode = Mode(v); p.Mode != ModeRedirect && p.Mode != ModeTProxy {
		r.mistake(v, "REDIRECT or TPROXY")
	}
}

func readOpenPorts(r *reader, v string, p *Policy) { p.Inbound.ExcludePorts = r.ports(v) }

// readProxyUIDs takes the numbers for the groups too, which -g may change afterwards.
func readProxyUIDs(r *reader, v string, p *Policy) {
	if strings.TrimSpace(v) == "" {
		return
	}
	p.Proxy.UIDs = r.ids(v, maxGroups)
	p.Proxy.GIDs = slices.Clone(p.Proxy.UIDs)
}

func readProxyGIDs(r *reader, v string, p *Policy) {
	if strings.TrimSpace(v) != "" {
		p.Proxy.GIDs = r.ids(v, maxGroups)
	}
}

// portOf reads a port of the proxy, if one is given.
func portOf(of func(*Policy) *uint16) func(*reader, string, *Policy) {
	return func(r *reader, v string, p *Policy) {
		if v == "" {
			return
		}
		port := r.port(v)
		if port == 0 && len(r.mistakes) == 0 {
			r.mistake(v, "a port from 1 to 65535")
		}
		*of(p) = port
	}
}

// numberOf reads a mark or a routing table, if one is given.
func numberOf(of func(*Policy) *uint32) func(*reader, string, *Policy) {
	return func(r *reader, v string, p *Policy) {
		if v == "" {
			return
		}
		n := r.id(v)
		if n == 0 && len(r.mistakes) == 0 {
			r.mistake(v, "a number other than 0")
		}
		*of(p) = n
	}
}
