package redirect

import (
	"flag"
	"fmt"
	"io"
)

// initFlags maps the command line of istio-init to settings and configuration. An absent flag is an empty value, as it
// is there: without -i nothing outbound is captured, without -b nothing inbound.
var initFlags = []struct {
	short, long, initial string
	read                 func(*reader, string, *Policy)
}{
	{"p", "envoy-port", "", func(r *reader, v string, p *Policy) { r.override(v, &p.Ports.Outbound) }},
	{"z", "inbound-capture-port", "", func(r *reader, v string, p *Policy) { r.override(v, &p.Ports.Inbound) }},
	{"e", "inbound-tunnel-port", "", func(r *reader, v string, p *Policy) { r.override(v, &p.Ports.Tunnel) }},
	{"u", "proxy-uid", "", func(r *reader, v string, p *Policy) { r.identities(v, &p.Proxy.UIDs) }},
	{"g", "proxy-gid", "", func(r *reader, v string, p *Policy) { r.identities(v, &p.Proxy.GIDs) }},
	{"m", "istio-inbound-interception-mode", string(ModeRedirect), readCapturingMode},
	{"i", "istio-service-cidr", "", readerOf("traffic.sidecar.istio.io/includeOutboundIPRanges")},
	{"x", "istio-service-exclude-cidr", "", readerOf("traffic.sidecar.istio.io/excludeOutboundIPRanges")},
	{"b", "istio-inbound-ports", "", readerOf("traffic.sidecar.istio.io/includeInboundPorts")},
	{"d", "istio-local-exclude-ports", "", func(r *reader, v string, p *Policy) { p.Inbound.ExcludePorts = r.ports(v) }},
	{"q", "istio-outbound-ports", "", readerOf("traffic.sidecar.istio.io/includeOutboundPorts")},
	{"o", "istio-local-outbound-ports-exclude", "", readerOf("traffic.sidecar.istio.io/excludeOutboundPorts")},
	{"k", "kube-virt-interfaces", "", readerOf("istio.io/reroute-virtual-interfaces")},
	{"c", "istio-exclude-interfaces", "", readerOf("traffic.sidecar.istio.io/excludeInterfaces")},
	{"t", "istio-inbound-tproxy-mark", "", func(r *reader, v string, p *Policy) { r.nonzero(v, &p.Marks.TProxy) }},
	{"r", "istio-inbound-tproxy-route-table", "", func(r *reader, v string, p *Policy) { r.nonzero(v, &p.Marks.Table) }},
}

func readerOf(key string) func(*reader, string, *Policy) {
	s, _ := settingOf(key)
	return s.read
}

// ParseInitFlags reads istio-init's command line, without the program's name, and the variables that it looks at, as a
// policy. The mistakes of all flags come at once, as Mistakes.
func ParseInitFlags(args []string, env map[string]string, cfg Config) (Policy, error) {
	flags := flag.NewFlagSet("istio-iptables", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	values := make([]string, len(initFlags))
	for i, f := range initFlags {
		flags.StringVar(&values[i], f.short, f.initial, "")
		flags.StringVar(&values[i], f.long, f.initial, "")
	}
	if err := flags.Parse(args); err != nil {
		return Policy{}, fmt.Errorf("read the flags of istio-init: %w", err)
	}
	if flags.NArg() > 0 {
		return Policy{}, fmt.Errorf("read the flags of istio-init: %q stands alone: want -flag value", flags.Arg(0))
	}
	p := cfg.basis()
	p.Inbound.ExcludePorts = nil // here the injector names all of them
	var mistakes Mistakes
	for i, f := range initFlags {
		r := reader{key: "-" + f.short}
		f.read(&r, values[i], &p)
		mistakes = append(mistakes, r.mistakes...)
	}
	for _, s := range settings {
		if !s.env {
			continue
		}
		r := reader{key: s.key}
		s.read(&r, cfg.value(env, s.key), &p)
		mistakes = append(mistakes, r.mistakes...)
	}
	if len(mistakes) > 0 {
		return Policy{}, mistakes
	}
	p.DNS.find(nil)
	return p, nil
}

// readCapturingMode knows no NONE: who calls istio-init wants rules.
func readCapturingMode(r *reader, v string, p *Policy) {
	if p.Mode = Mode(v); p.Mode != ModeRedirect && p.Mode != ModeTProxy {
		r.mistake(v, "REDIRECT or TPROXY")
	}
}

// override reads a port of the proxy, if one is given.
func (r *reader) override(value string, port *uint16) {
	if value == "" {
		return
	}
	if *port = r.port(value); *port == 0 && len(r.mistakes) == 0 {
		r.mistake(value, "a port from 1 to 65535")
	}
}

func (r *reader) identities(value string, ids *[]uint32) {
	if value != "" {
		*ids = r.ids(value, maxGroups)
	}
}

func (r *reader) nonzero(value string, n *uint32) {
	if value == "" {
		return
	}
	if *n = r.id(value); *n == 0 && len(r.mistakes) == 0 {
		r.mistake(value, "a number other than 0")
	}
}
