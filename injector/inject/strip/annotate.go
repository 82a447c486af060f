package strip

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

const (
	keyMode         = "sidecar.istio.io/interceptionMode"
	keyStatusPort   = "status.sidecar.istio.io/port"
	keyOutboundPort = "sidecar-cni.io/outboundPort"
	keyInboundPort  = "sidecar-cni.io/inboundPort"
	traffic         = "traffic.sidecar.istio.io/"
)

// carried are the flags that become annotations, by their long names.
var carried = []struct{ flag, key string }{
	{"istio-inbound-interception-mode", keyMode},
	{"envoy-port", keyOutboundPort},
	{"inbound-capture-port", keyInboundPort},
	{"istio-service-cidr", traffic + "includeOutboundIPRanges"},
	{"istio-service-exclude-cidr", traffic + "excludeOutboundIPRanges"},
	{"istio-inbound-ports", traffic + "includeInboundPorts"},
	{"istio-local-exclude-ports", traffic + "excludeInboundPorts"},
	{"istio-outbound-ports", traffic + "includeOutboundPorts"},
	{"istio-local-outbound-ports-exclude", traffic + "excludeOutboundPorts"},
	{"istio-exclude-interfaces", traffic + "excludeInterfaces"},
	{"kube-virt-interfaces", "istio.io/reroute-virtual-interfaces"},
}

// asked is what a pod asks for beside istio-init.
type asked struct {
	settings map[string]redirect.Reading // by key

	// Inbound ports that are left alone whatever an author says of them: those of the cluster, and
	// the proxy's status port.
	open []uint16
}

func asks(facts redirect.Pod, cfg redirect.Config) asked {
	a := asked{settings: map[string]redirect.Reading{}}
	for _, one := range redirect.Readings(facts, cfg) {
		a.settings[one.Key] = one
	}
	var p redirect.Policy
	_ = p.Set(keyStatusPort, keyStatusPort, a.settings[keyStatusPort].Value) // Decide reports it
	a.open = slices.Concat(cfg.Open, p.Inbound.ExcludePorts)
	return a
}

// annotate writes what the flags say into the annotations. An annotation that says the same stays
// as its author wrote it; one that says something else gives way, since istio-init did not follow
// it. What agrees with a default is written too, since a node may have other ones; but the ports of
// the proxy are the cluster's own setting, and are written only where they differ from that.
func (c *command) annotate(pod podtree.Object, asked asked) []string {
	if mode := asked.settings[keyMode]; mode.Source == redirect.FromPod &&
		mode.Value == string(redirect.ModeNone) {
		return []string{keyMode + " is NONE, and istio-init redirects all the same: remove one " +
			"of the two"}
	}
	for _, row := range carried {
		was := asked.settings[row.key]
		said := was.Source == redirect.FromPod || was.Source == redirect.FromOlderName
		cluster := row.key == keyOutboundPort || row.key == keyInboundPort
		told := c.values[row.flag].Key != "" && !cluster
		if value := c.value(row.flag); !same(was, value, asked.open) || told && !said {
			podtree.Set(pod, value, "metadata", "annotations", row.key)
		}
	}
	return nil
}

// value returns what a flag comes to, as an annotation has it.
func (c *command) value(flag string) string {
	switch flag {
	case "istio-inbound-interception-mode":
		return string(c.policy.Mode)
	case "envoy-port":
		return strconv.Itoa(int(c.policy.Ports.Outbound))
	case "inbound-capture-port":
		return strconv.Itoa(int(c.policy.Ports.Inbound))
	}
	items := strings.Split(c.values[flag].Text, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	// istio-init drops empty items, which are mistakes in annotations
	return strings.Join(slices.DeleteFunc(items, func(s string) bool { return s == "" }), ",")
}

// same reports whether what holds for an annotation is what another value of it would be.
func same(was redirect.Reading, value string, open []uint16) bool {
	if len(was.Mistakes) > 0 || was.Value == value {
		return len(was.Mistakes) == 0
	}
	read := func(text string) *redirect.Policy {
		var p redirect.Policy
		_ = p.Set(was.Key, was.Key, text) // was has no mistakes, and the flags are read without
		p.Inbound.ExcludePorts = except(p.Inbound.ExcludePorts, open)
		return &p
	}
	a, b := read(was.Value), read(value)
	return !slices.ContainsFunc(fields, func(f field) bool { return f.value(a) != f.value(b) })
}

// except returns the ports that are not among others.
func except(ports, others []uint16) []uint16 {
	return slices.DeleteFunc(slices.Clone(ports),
		func(port uint16) bool { return slices.Contains(others, port) })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
