package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// deployment is a Deployment's, in which lines stand for what makes the situation.
func deployment(annotations, spec, app, env string) string {
	return `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata:
      annotations:
        sidecar.istio.io/status: '{}'
` + lines(8, annotations) + `    spec:
` + lines(6, spec) + `      containers:
      - name: app
        image: app
        ports: [{containerPort: 8080}]
` + lines(8, app) + `      - name: istio-proxy
        image: proxy
        args: [proxy, sidecar]
        securityContext: {runAsUser: 1337}
        env:
        - {name: A, value: b}
` + lines(8, env)
}

func lines(indent int, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.Repeat(" ", indent) + strings.TrimRight(line, "\n") + "\n")
	}
	return b.String()
}

// run runs the program, as somebody does who types a line.
func run(ctx context.Context, stdin string,
	args ...string) (stdout, stderr string, code int) {
	var out, err bytes.Buffer
	e := env{args: args, stdin: strings.NewReader(stdin), stdout: &out, stderr: &err}
	code = e.run(ctx)
	return out.String(), err.String(), code
}

// Questions that people have asked of such meshes, each with the situation that made them ask.
func TestQuestions(t *testing.T) {
	t.Parallel()
	const traffic = "traffic.sidecar.istio.io/"
	dns := "- {name: ISTIO_META_DNS_CAPTURE, value: \"true\"}"
	for name, row := range map[string]struct {
		manifest string
		args     []string
		want     []string
		code     int
	}{
		"why is this pod not captured?": {deployment("", "hostNetwork: true", "", ""),
			[]string{"explain"}, []string{"web (Deployment): skipped, host_network", "hostNetwork"}, 0},
		"that, whatever else it asks for": {
			deployment("traffic.sidecar.istio.io/excludeInboundPorts: x", "hostNetwork: true", "", ""),
			[]string{"explain"}, []string{"skipped, host_network"}, 0},
		"why is the excluded port still captured?": {
			strings.Replace(deployment("", "", "", ""), "namespace: shop}", "namespace: shop, "+
				"annotations: {"+traffic+"excludeOutboundPorts: \"3306\"}}", 1),
			[]string{"explain"}, []string{`excludeOutboundPorts: "3306" is an annotation of the ` +
				"Deployment web itself, which no pod gets", "spec.template.metadata.annotations"}, 0},
		"has the runtime a kernel of its own?": {
			deployment("", "runtimeClassName: vm", "", ""), []string{"explain"},
			[]string{`runtime class "vm" is not known here`, "kubectl get runtimeclass"}, 0},
		"are nameservers missing?": {deployment("", "", "", dns), []string{"rules"},
			[]string{"# DNS is captured, and the pod's nameservers are not known here"}, 0},
		"why can the init container reach nothing?": {
			deployment("", "initContainers: [{name: migrate, image: x}]", "", ""),
			[]string{"explain"}, []string{`init container "migrate" runs before the proxy`,
				"remedy: run the proxy as a native sidecar"}, 0},
		"why does the pod not start?": {
			deployment(traffic+"excludeOutboundPorts: 80,a", "", "", ""), []string{"explain"},
			[]string{"web (Deployment): refused", `"a": want a port`, "remedy: correct it"}, 3},
		"why is the excluded range captured?": {
			deployment(traffic+"excludeOutboundIPRanges: 10.1.0.0/16", "", "", ""),
			[]string{"trace", "--to", "10.2.0.1:80"}, []string{"redirected to port 15001"}, 0},
		"is the excluded range left alone?": {
			deployment(traffic+"excludeOutboundIPRanges: 10.1.0.0/16", "", "", ""),
			[]string{"trace", "--to", "10.1.0.1:80"},
			[]string{"left alone", "──▶ eth0 ──▶ 10.1.0.1:80, past the proxy"}, 0},
		"why does includeOutboundPorts not limit?": {
			deployment(traffic+"includeOutboundPorts: \"443\"", "", "", ""), []string{"explain"},
			[]string{"includeOutboundPorts limits nothing"}, 0},
		"does a peer reach the app past the proxy?": {
			deployment(traffic+"excludeInboundPorts: \"8080\"", "", "", ""),
			[]string{"trace", "--from", "peer", "--to", "self:8080"},
			[]string{"excluded inbound port", ", in the pod"}, 0},
		"the app runs as the proxy's uid": {
			deployment("", "", "securityContext: {runAsUser: 1337}", ""), []string{"explain"},
			[]string{"runs under the proxy's uid 1337"}, 0},
		"is DNS captured?": {deployment("", "", "", dns),
			[]string{"trace", "--udp", "--to", "10.96.0.10:53", "--nameserver", "10.96.0.10"},
			[]string{"──▶ proxy, port 15053"}, 0},
		"DNS of another server": {deployment("", "", "", dns),
			[]string{"trace", "--udp", "--to", "8.8.8.8:53", "--nameserver", "10.96.0.10"},
			[]string{"──▶ eth0 ──▶ 8.8.8.8:53, past the proxy"}, 0},
		"is UDP captured?": {deployment("", "", "", ""),
			[]string{"trace", "--udp", "--to", "10.0.0.1:5000"},
			[]string{", UDP, leaves through eth0", "past the proxy"}, 0},
		"what becomes of calls to itself?": {deployment("", "", "", ""),
			[]string{"trace", "--to", "self:8080"}, []string{"leaves through lo", "in the pod"}, 0},
		"does IPv6 bypass the proxy?": {deployment("", "", "", ""), []string{"trace", "--all"},
			[]string{"[2001:db8:1::7]:443", "proxy, port 15001"}, 0},
		"is net1 captured?": {
			deployment(traffic+"excludeInterfaces: net1", "", "", ""),
			[]string{"trace", "--to", "10.0.0.1:80", "--interface", "net1"},
			[]string{"leaves through net1", "excluded interface", "past the proxy"}, 0},
		"a row that is too long for its columns": {
			deployment("sidecar.istio.io/interceptionMode: TPROXY", "", "", ""),
			[]string{"trace", "--from", "peer", "--to", "self:80"},
			[]string{"handed to the transparent listener on port 15006 with mark 1337, or dropped"}, 0},
		"no address is the pod itself": {deployment("", "", "", ""),
			[]string{"trace", "--to", "0.0.0.0:80"}, []string{"──▶ 127.0.0.1:80, TCP, leaves through lo",
				"0.0.0.0 is no destination: the kernel goes to the pod's own 127.0.0.1 instead"}, 0},
		"that, with IPv6": {deployment("", "", "", ""),
			[]string{"trace", "--to", "[::]:80"}, []string{"──▶ [::1]:80, TCP, leaves through lo"}, 0},
		"whom does an init container reach?": {
			deployment("", "initContainers: [{name: migrate, image: x}]", "", ""),
			[]string{"trace", "--from", "migrate", "--to", "10.0.0.1:80"},
			[]string{`──▶ proxy, port 15001 init container "migrate" runs before the proxy: what ` +
				"it sends is refused, since nobody listens yet"}, 0},
		"whom, past the proxy?": {
			deployment(traffic+"excludeOutboundPorts: \"80\"",
				"initContainers: [{name: migrate, image: x}]", "", ""),
			[]string{"trace", "--from", "migrate", "--to", "10.0.0.1:80"},
			[]string{"──▶ eth0 ──▶ 10.0.0.1:80, past the proxy"}, 0},
		"is a name asked for there?": {deployment("", "", "", dns),
			[]string{"trace", "--udp", "--to", "10.96.0.99:53"},
			[]string{"the pod's nameservers are not known here", "──▶ proxy, port 15053"}, 0},
		"where does a pod with a runtime class call?": {
			deployment("", "runtimeClassName: vm", "", ""), []string{"trace", "--to", "10.0.0.1:80"},
			[]string{`runtime class "vm" is not known here`}, 0},
		"where does a pod call that does not start?": {
			deployment(traffic+"excludeOutboundPorts: 80,a\n"+traffic+"excludeInboundPorts: b", "", "", ""),
			[]string{"trace", "--to", "10.0.0.1:80"}, []string{
				"web (Deployment): refused it does not start: what it asks for cannot be ",
				`"a": want a port`, `"b": want a port`}, 3},
		"who is on the link?": {deployment("", "", "", ""),
			[]string{"trace", "--to", "[fe80::1%net1]:80"},
			[]string{"leaves through net1", "redirected to port 15001", "──▶ nobody",
				"it reaches neither the proxy nor anybody else"}, 0},
		"all on the link": {deployment("", "", "", ""),
			[]string{"trace", "--udp", "--to", "255.255.255.255:67"},
			[]string{"──▶ eth0 ──▶ 255.255.255.255:67, past the proxy"}, 0},
		"a gid that no rule asks for": {deployment("", "", "securityContext: {runAsUser: 1000}", ""),
			[]string{"trace", "--to", "10.0.0.1:80"}, []string{"app (uid 1000) ──▶"}, 0},
		"a gid that nobody knows": {deployment("", "", "securityContext: {runAsUser: 1000}",
			"- {name: ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE, value: \"2000\"}"),
			[]string{"trace", "--to", "10.0.0.1:80"},
			[]string{"app (uid 1000, gid 0, assumed) ──▶"}, 0},
		"do probes of the proxy pass?": {deployment("", "", "", ""), []string{"trace", "--all"},
			[]string{"kubelet probes the proxy", ":15021, in the pod"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, stderr, code := run(t.Context(), row.manifest, append(row.args, "-f", "-")...)
			if code != row.code {
				t.Errorf("it ended with %d, want %d: %s", code, row.code, stderr)
			}
			words := strings.Join(strings.Fields(out), " ")
			for _, want := range row.want {
				if !strings.Contains(words, strings.Join(strings.Fields(want), " ")) {
					t.Errorf("the answer lacks %q:\n%s", want, out)
				}
			}
			for line := range strings.Lines(out) {
				listed := strings.HasPrefix(line, "\t") // as nft writes it
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 && !listed {
					t.Errorf("a line of %d columns: %s", n, line)
				}
			}
		})
	}
}

// What people paste by mistake is answered in one line that says what is wanted.
func TestMistakes(t *testing.T) {
	t.Parallel()
	good := deployment("", "", "", "")
	for name, row := range map[string]struct {
		stdin string
		args  []string
		want  string
		code  int
	}{
		"no target":           {"", []string{"explain"}, "want a target", 2},
		"nothing to verify":   {"", []string{"verify"}, "--node or -A", 2},
		"two targets":         {"", []string{"explain", "a", "b"}, "2 targets", 2},
		"a target and a file": {"", []string{"explain", "a", "-f", "-"}, "want one of them", 2},
		"no such command":     {"", []string{"explian"}, "explian", 2},
		"no such flag":        {"", []string{"explain", "--x"}, "--x", 2},
		"no YAML":             {"\x00", []string{"explain", "-f", "-"}, "standard input", 1},
		"no file": {"", []string{"explain", "-f", "/nonexistent"},
			"/nonexistent: no such file or directory; name a manifest by --filename", 1},
		"no file with an entry": {good, []string{"explain", "-f", "-", "--entry", "/nonexistent"},
			"/nonexistent: no such file or directory; name by --entry a file", 1},
		"no pod in it":   {"kind: Service\napiVersion: v1\n", []string{"explain", "-f", "-"}, "Service", 1},
		"a wrong output": {good, []string{"explain", "-f", "-", "-o", "xml"}, "text, json or yaml", 2},
		"a wrong format": {good, []string{"rules", "-f", "-", "--format", "x"}, "nft or iptables", 2},
		"nobody by that name": {good, []string{"trace", "-f", "-", "--from", "x", "--to", "1.2.3.4:5"},
			"app, istio-proxy", 2},
		"a name":  {good, []string{"trace", "-f", "-", "--to", "db:5432"}, "names are not looked up", 2},
		"no --to": {good, []string{"trace", "-f", "-"}, "--all", 2},
		"all from one": {good, []string{"trace", "-f", "-", "--all", "--from", "app"},
			"--from has no effect with --all", 2},
		"all by UDP": {good, []string{"trace", "-f", "-", "--all", "--udp"},
			"--udp has no effect with --all", 2},
		"all of an interface": {good, []string{"trace", "-f", "-", "--all", "--interface", "net1"},
			"--interface has no effect with --all", 2},
		"a wrong nameserver": {good, []string{"explain", "-f", "-", "--nameserver", "x"},
			"want an address", 2},
		"an interface that is none": {good, []string{"trace", "-f", "-", "--to", "1.2.3.4:5",
			"--interface", "eth 0"}, `--interface "eth 0": want an interface's name`, 2},
		"many interfaces": {good, []string{"trace", "-f", "-", "--to", "1.2.3.4:5",
			"--interface", "eth+"}, "want an interface's name", 2},
		"no interface": {good, []string{"trace", "-f", "-", "--to", "1.2.3.4:5",
			"--interface="}, "want an interface's name", 2},
		"an interface to itself": {good, []string{"trace", "-f", "-", "--to", "self:80",
			"--interface", "eth0"}, "what is for the pod itself goes through lo", 2},
		"lo to others": {good, []string{"trace", "-f", "-", "--to", "1.2.3.4:5",
			"--interface", "lo"}, "through lo goes only what is for the pod itself", 2},
		"a peer on lo": {good, []string{"trace", "-f", "-", "--from", "peer", "--to", "self:5",
			"--interface", "lo"}, "does not enter through lo", 2},
		"two interfaces": {good, []string{"trace", "-f", "-", "--to", "[fe80::1%net1]:80",
			"--interface", "eth0"}, "no other by --interface", 2},
		"a zone that is none": {good, []string{"trace", "-f", "-", "--to", "[fe80::1%a b]:80"},
			"want the interface's name behind the %", 2},
		"nobody's uid": {good, []string{"trace", "-f", "-", "--from", "uid:4294967295", "--to",
			"1.2.3.4:5"}, "a number of at most 4294967294", 2},
		"TCP to all": {good, []string{"trace", "-f", "-", "--to", "255.255.255.255:80"},
			"want --udp", 2},
		"TCP to many": {good, []string{"trace", "-f", "-", "--to", "[ff02::1]:80"}, "want --udp", 2},
		"a peer on loopback": {good, []string{"trace", "-f", "-", "--from", "peer", "--to",
			"127.0.0.1:80"}, "cannot reach loopback", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, stderr, code := run(t.Context(), row.stdin, row.args...)
			if code != row.code || !strings.Contains(stderr, row.want) ||
				strings.Count(stderr, "\n") != 1 || out != "" {
				t.Errorf("code %d, want %d; output %q; error, want %q: %q", code, row.code, out,
					row.want, stderr)
			}
		})
	}
}
