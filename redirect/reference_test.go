package redirect

import (
	"fmt"
	"strings"
	"testing"
)

//go:generate go test . -run TestReferencePage -update

// TestReferencePage compares docs/annotations.md with the table that is also the parser.
func TestReferencePage(t *testing.T) {
	t.Parallel()
	golden(t, "../docs/annotations.md", referencePage(t))
}

const pageHead = `# What a pod can ask for

<!-- Written by ` + "`make generate`" + ` from the table in redirect/annotations.go and the text in redirect/reference_test.go. -->

A pod tells with annotations how its traffic is to be redirected, and its injector with variables in the environment of the
` + "`istio-proxy`" + ` container. They are those that istio-init obeys, so a pod that works with it needs no change; the four
keys under ` + "`sidecar-cni.io/`" + ` are beyond it.

All of it is read once, when the pod is set up: an annotation that changes later changes nothing until the pod is replaced.
A cluster can give other defaults than those below: see ` + "`redirect.values`" + ` in [configuration.md](configuration.md).

## Which pods are redirected

A pod into which an injector has put a proxy. It has the annotation ` + "`sidecar.istio.io/status`" + `, whatever its value, and a
container ` + "`istio-proxy`" + `: an ordinary one, or an init container with ` + "`restartPolicy: Always`" + `, a native sidecar.

Any other pod is left alone and never held up, whatever else its annotations say. Log and metrics name the reason; where
several hold, it is the first of these:

| reason | in words |
|---|---|
`

const pageInject = `
Of a pod in the host's network no plugin is called, so no command of the plugin is counted. The guard, the injector and sidecarctl name
the reason ` + "`host_network`" + `.

` + "`sidecar.istio.io/inject`" + ` is read from the label of that name and, only where there is no such label, from the annotation.
Exactly ` + "`false`" + ` disables. Any other value leaves it to the injector, as Istio's does, and what the injector made of
it shows in the status annotation.

` + "`sidecar-cni.io/stripped`" + ` is ` + "`true`" + ` on a pod out of which our webhook has taken istio-init. Where the container is there
all the same, a webhook that is called later has added it again: it writes the rules, and an Event on the pod says so.

Kata's and gVisor's pods have a kernel or a network stack of their own, which meets no rules of the pod's network namespace. A pod
of the mesh whose runtime class has such a handler does not start: leave istio-init in it. The setting ` + "`runtimeHandlers`" + `
in [configuration.md](configuration.md) can have such pods start without redirection, or name other handlers.

## Annotations

| annotation | default | form | what it does |
|---|---|---|---|
`

const pageVariables = `
## Variables of the proxy's container

| variable | default | form | what it does |
|---|---|---|---|
`

const pageForms = `
A variable with ` + "`valueFrom`" + ` cannot be read: its default holds, and a warning in the log says so.

## How values are written

| form | for example | |
|---|---|---|
| a list | ` + "`80, 443`" + ` | Items with commas between them; blanks around an item do not count. An empty value is an empty list, but an empty item is a mistake, except in lists that Istio's injector does not check: ` + "`includeOutboundPorts`" + `, interfaces and groups. ` + "`*`" + ` is everything, alone and where the form says so. |
| a port | ` + "`8080`" + ` | From 0 to 65535. There are no ranges and no names of ports. |
| a CIDR | ` + "`10.0.0.0/8`, `2001:db8::7/128`" + ` | Always with its length. ` + "`10.1.2.3/8`" + ` is ` + "`10.0.0.0/8`, and `::ffff:10.0.0.0/104`" + ` is that too. At most %[1]d in a list, and fewer by the sum below. |
| an interface | ` + "`net1`, `tap+`" + ` | At most 15 letters, digits and ` + "`. _ - @ ~`" + `. A ` + "`+`" + ` at the end stands for every name that begins so. At most %[2]d in a list. |
| a uid, a gid | ` + "`1000`, `2000-2999`" + ` | Numbers from 0 to %[3]d; names are known within the container only. Ranges where the form speaks of them. At most %[4]d in a list, if the form does not say otherwise. |
| a bool | ` + "`true`" + ` | ` + "`true`, `t`, `1`, `false`, `f` or `0`, the words also as `TRUE`, `True`, `T`, `FALSE`, `False`, `F`" + `: what Go's strconv.ParseBool takes, with which the proxy's programs read it. Anything else is false, and a warning in the log says so. |

All lists of a pod together may come to %[9]d rules in both families, each item of a list counted: about 10,000 CIDRs.

No value is longer than %[5]d bytes, which is as much as Kubernetes allows for all annotations of a pod together.

## Whose traffic is the proxy's

The proxy's own traffic must not come back to it. It is known by its uid and its gid:

| ` + "`runAsUser` of `istio-proxy`" + `, else of the pod | uid | gid |
|---|---|---|
| not set | %[6]d | %[7]d |
| a number | that number | the same number |
| 0, as TPROXY and low ports want it | %[6]d | ` + "`runAsGroup`" + `, of the container, else of the pod; %[7]d if that is not set or 0 |

Nothing else in the pod should run under that uid or gid: it would be out of the mesh. A container beside the proxy that does is
named in the log and in an Event of the pod; where the uid is the pod's and the proxy has none of its own, the pod does not start.

## What wins

Outbound, the first of these that a packet meets decides:

1. an excluded interface, then an excluded port, then an excluded user: left alone
2. sent by the proxy: left alone, except that a call to the pod's own address goes to its inbound listener, as a call from
   outside would
3. within the pod, through lo: left alone, unless an included range begins in loopback, or it is DNS and that is captured
4. by group: an excluded one, or one that is not included, is left alone
5. DNS, if it is captured, goes to the proxy's resolver
6. loopback, then an excluded range: left alone
7. an included port, then an included range: goes to the proxy if it is TCP, else it is left alone

Inbound, from a virtual machine's interface: what goes to an included range goes to the proxy's outbound listener if it is
TCP. From any other: an excluded interface, the tunnel port %[8]d and an excluded port, in this order, are left alone; what is
included of the rest goes to the proxy if it is TCP.

## When a value is wrong

The pod does not start. Its events name every mistake at once: the key, the item and what was wanted. A pod with

`

const pageWrong = `
is refused with

`

const pageExamples = `
## Examples
`

// mistaken is the pod that the page shows being refused.
var mistaken = [][2]string{
	{traffic + "includeOutboundIPRanges", "10.0.0.0/8,10.1.2.3"},
	{traffic + "excludeInboundPorts", "8080,,http"},
	{"sidecar-cni.io/excludeOutboundUIDs", "1337"},
}

// examples are on the page, and hold.
var examples = []struct {
	title, text string
	annotations [][2]string
	variables   [][2]string
	more        string // YAML behind the annotations
	also        change
}{
	{
		title:       "A database beside the mesh",
		text:        "Connections to MySQL and Redis leave the pod as they are, wherever they go.",
		annotations: [][2]string{{traffic + "excludeOutboundPorts", "3306,6379"}},
	},
	{
		title: "Only the cluster's own networks",
		text:  "What goes to the internet does not pass the proxy, except HTTPS.",
		annotations: [][2]string{{traffic + "includeOutboundIPRanges",
			"10.244.0.0/16,10.96.0.0/12,fd00:10::/32"}, {traffic + "includeOutboundPorts", "443"}},
	},
	{
		title:       "The client's address",
		text:        "With TPROXY the app sees who called, not the proxy.",
		annotations: [][2]string{{istio + "interceptionMode", "TPROXY"}},
	},
	{
		title: "Another network",
		text: "A second interface, such as Multus adds, carries storage traffic that the " +
			"mesh has no part in.",
		annotations: [][2]string{{traffic + "excludeInterfaces", "net1"}},
	},
	{
		title: "An init container that needs the network",
		text: "It runs before the proxy does, so what it sends must not be redirected to the " +
			"proxy. It is known by its uid, which therefore\n" +
			"has to be its own.",
		annotations: [][2]string{{"sidecar-cni.io/initContainers", "bypass"}},
		more: "spec:\n  initContainers:\n  - name: migrate\n    securityContext: {runAsUser: 2000}\n" +
			"  containers:\n  - name: web\n    securityContext: {runAsUser: 1000}\n",
		also: first(Container{Name: "migrate", Init: true, RunAsUser: id(2000)}),
	},
	{
		title:     "Names resolved by the proxy",
		text:      "Variables come into the proxy's container by way of the injector:",
		variables: [][2]string{{"ISTIO_META_DNS_CAPTURE", "true"}},
		also:      nameservers(resolver),
	},
}

func referencePage(t *testing.T) string {
	t.Helper()
	cfg := Defaults()
	var b strings.Builder
	b.WriteString(pageHead)
	for _, s := range Skips {
		fmt.Fprintf(&b, "| `%s` | %s |\n", string(s), s)
	}
	b.WriteString(pageInject)
	rows(&b, false)
	b.WriteString(pageVariables)
	rows(&b, true)
	fmt.Fprintf(&b, pageForms, maxCIDRs, maxNames, uint32(maxID), maxIDRanges, maxText,
		cfg.Proxy.UIDs[0], cfg.Proxy.GIDs[0], cfg.Ports.Tunnel, MaxRules)
	b.WriteString(metadata(mistaken, nil, ""))
	b.WriteString(pageWrong)
	b.WriteString("```text\n")
	for _, m := range refused(t, meshed(asChange(mistaken, nil)), cfg) {
		fmt.Fprintf(&b, "%s\n", m)
	}
	b.WriteString("```\n" + pageExamples)
	for _, e := range examples {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n%s", e.title, e.text,
			metadata(e.annotations, e.variables, e.more))
	}
	return b.String()
}

// rows is the part of the table about annotations, or the one about variables.
func rows(b *strings.Builder, env bool) {
	for _, s := range settings {
		if s.env != env {
			continue
		}
		initial, about := "empty", s.about
		if s.initial != "" {
			initial = "`" + s.initial + "`"
		}
		if s.older != "" {
			about += fmt.Sprintf(" Its older name `%s` is read where this one is absent.", s.older)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", s.key, initial, s.form, about)
	}
}

// metadata is what stands in a pod's manifest.
func metadata(annotations, variables [][2]string, more string) string {
	var b strings.Builder
	b.WriteString("```yaml\nmetadata:\n  annotations:\n")
	for _, kv := range annotations {
		fmt.Fprintf(&b, "    %s: %q\n", kv[0], kv[1])
	}
	if len(variables) > 0 {
		b.WriteString("    proxy.istio.io/config: |\n      proxyMetadata:\n")
	}
	for _, kv := range variables {
		fmt.Fprintf(&b, "        %s: %q\n", kv[0], kv[1])
	}
	return b.String() + more + "```\n"
}

func asChange(annotations, variables [][2]string) change {
	return func(p *Pod) {
		for _, kv := range annotations {
			annotation(kv[0], kv[1])(p)
		}
		for _, kv := range variables {
			variable(kv[0], kv[1])(p)
		}
	}
}
