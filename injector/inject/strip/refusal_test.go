package strip

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Each row has its reasons in whole, in their order.
func TestWhyIstioInitStays(t *testing.T) {
	t.Parallel()
	const line = `istio-iptables -p 15001 -z 15006 -i * -b * `
	for name, row := range map[string]struct {
		pod  podtree.Object
		want []string
	}{
		"neither command nor args": {meshed(""), []string{
			"it has neither command nor args: what it does is known to its image only: write its " +
				"flags into args"}},
		"a shell": {meshed("", ofInit([]any{"/bin/sh", "-c", "istio-iptables -p 1"}, "command")),
			[]string{`it runs "sh": want istio-iptables and its flags, not in a shell`}},
		"another program": {meshed("/usr/local/bin/istio-clean-iptables -p 1"), []string{
			`it runs "istio-clean-iptables": want istio-iptables and its flags, not in a shell`}},
		"half of a program": {meshed("pilot-agent -p 1"), []string{
			`it runs "pilot-agent": want istio-iptables and its flags, not in a shell`}},
		"a word that belongs to no flag": {meshed(line + "--dry-run true"), []string{
			`read the flags of istio-init: "true" stands alone: --dry-run takes no value but as ` +
				`--dry-run=false: correct it`}},
		"an empty word": {meshed(`istio-iptables "" -p 1`), []string{
			`read the flags of istio-init: "" stands alone: want -flag value; quote an asterisk, ` +
				`and write a value that is empty as '': correct it`}},
		"mistakes": {meshed(line + "-u app -o http"), []string{
			`-u: "app": want a number from 0 to 4294967294; names are not known outside of the ` +
				`container; -o: "http": want a port from 0 to 65535: correct it`}},
		"no rules": {meshed(line + "-n --skip-rule-apply"), []string{
			"--dry-run has it write no rules, and without it the pod would be redirected: remove " +
				"the flag, or the container",
			"--skip-rule-apply has it write no rules, and without it the pod would be redirected: " +
				"remove the flag, or the container"}},
		"rules go": {meshed(line + "--cleanup-only"), []string{
			"--cleanup-only has it write no rules, and without it the pod would be redirected: " +
				"remove the flag, or the container"}},
		"rules of others": {meshed(line + "--network-namespace /proc/1/ns/net"), []string{
			`--network-namespace "/proc/1/ns/net" is not known to be the pod's: remove the flag`}},
		"work that cannot be read": {meshed(line + "--probe-timeout soon"), []string{
			`--probe-timeout: "soon": want a duration such as 5s, at most 10m: correct it`}},
		"one port or two": {meshed("-p 15001 -i *", ofInit("mirror.example:5000/a/init:1",
			"image")), []string{
			`it has no -z, and its image "mirror.example:5000/a/init:1" does not tell what ` +
				`runs in it: before Istio 1.3 the inbound port was then that of -p, since then it is ` +
				`15006: add -z`}},
		"a tag is no name": {meshed("", ofInit("proxy_init/init:proxy_init",
			"image"), ofInit(words(`-p 1 -z ""`), "args")), []string{
			`it has no -z, and its image "proxy_init/init:proxy_init" does not tell what ` +
				`runs in it: before Istio 1.3 the inbound port was then that of -p, since then it is ` +
				`15006: add -z`}},
		"no lists": {meshed("", ofInit("-p 1", "args"), ofInit(podtree.Object{}, "env")), []string{
			"env: want a list", "args: want a list",
			"it has neither command nor args: what it does is known to its image only: write its " +
				"flags into args"}},
		"no texts": {meshed("", ofInit([]any{nil, podtree.Object{}}, "command"),
			ofInit([]any{"A", podtree.Object{"name": "B", "value": []any{}}}, "env"),
			ofInit(words(line), "args")), []string{
			"env[0]: want an object with a name and a value that is a text",
			"env[1]: want an object with a name and a value that is a text",
			"command[0]: want a text", "command[1]: want a text"}},
		"variables that are not known": {
			meshed(line+"-x $(A)$(C)", ofInit([]any{
				podtree.Object{"name": "A", "valueFrom": podtree.Object{}},
				podtree.Object{"name": "B", "value": "$(A)"},
				podtree.Object{"name": "C", "value": "10.0.0.0/8"},
				podtree.Object{"name": "PROXY_UID", "value": "$(B)"},
				podtree.Object{"name": "INVALID_DROP", "valueFrom": podtree.Object{}},
				podtree.Object{"name": "INVALID_DROP", "value": "false"},
				podtree.Object{"name": "ISTIO_OUTBOUND_OWNER_GROUPS", "valueFrom": podtree.Object{}},
			}, "env"), ofInit([]any{podtree.Object{}}, "envFrom")),
			[]string{
				`env "ISTIO_OUTBOUND_OWNER_GROUPS" has a value that only the node will know, by ` +
					`valueFrom: istio-init obeys it: write the value`,
				`env "PROXY_UID" has a value that only the node will know, by valueFrom: ` +
					`istio-init obeys it: write the value`,
				"envFrom may set any variable that istio-init obeys: write them into env",
				`args[10] names the variable "A", whose value only the node will know, by ` +
					`valueFrom: write the value`}},
		"among the containers": {func() podtree.Object {
			pod := meshed(line)
			all := append(podtree.List(pod, "spec", "containers"), container("istio-init", 0))
			spec(all, "containers")(pod)
			podtree.Delete(pod, "spec", "initContainers")
			return pod
		}(), []string{`it is among the containers, where it is not expected: make "istio-init" an ` +
			`init container, or rename it`}},
		"twice": {meshed(line, inits(nil, container("istio-init", 0))), []string{
			"without it the pod is not redirected, since its istio-init container programs the " +
				"rules: mend that, or leave istio-init in"}},
		"a pod that cannot be read": {meshed(line, annotation("a", "b"), spec("x", "containers")),
			[]string{"read the pod: json: cannot unmarshal string into Go " +
				"struct field Spec.spec.containers of type []kubepod.Container: correct the field"}},
		"beyond the node's reach": {meshed(line, spec(true, "hostNetwork"),
			spec("kata-qemu", "runtimeClassName")), []string{
			"spec.hostNetwork is true: nothing redirects the traffic of such a pod, and istio-init " +
				"would redirect the node's: remove istio-init and the proxy",
			`spec.runtimeClassName is "kata-qemu": its pods have a kernel or a network stack of ` +
				`their own, which no rules of the node reach: leave istio-init in, or use another class`}},
		"NONE": {meshed(line, annotation(keyMode, "NONE")), []string{
			"sidecar.istio.io/interceptionMode is NONE, and istio-init redirects all the same: " +
				"remove one of the two"}},
		"no proxy": {meshed(line, ofProxy("proxy", "name")), []string{
			"without it the pod is not redirected, since it has no container istio-proxy: mend " +
				"that, or leave istio-init in"}},
		"a gateway": {meshed(line, ofProxy([]any{"proxy", "router"}, "args")), []string{
			"without it the pod is not redirected, since its proxy is not a sidecar but a gateway: " +
				"mend that, or leave istio-init in"}},
		"injection is disabled": {meshed(line, annotation("sidecar.istio.io/inject", "false")),
			[]string{"without it the pod is not redirected, since sidecar.istio.io/inject says no: " +
				"mend that, or leave istio-init in"}},
		"other annotations are wrong": {meshed(line, annotation(keyStatusPort, "http")), []string{
			`without it the pod is refused: status.sidecar.istio.io/port: "http": want a port from ` +
				`0 to 65535`}},
		"other annotations are wrong, beside a bypass": {
			meshed(line, inits(container("migrate", 2000)), annotation(keyStatusPort, "http")), []string{
				`without it the pod is refused: status.sidecar.istio.io/port: "http": want a port ` +
					`from 0 to 65535`}},
		"a port that the proxy has for something else": {meshed(line + "-p 15008"), []string{
			`without it the pod is refused: sidecar-cni.io/outboundPort: "15008": want a port from ` +
				`1 to 65535, without 15008 for tunnels and 15053 for name service`}},
		"what only the cluster can say": {meshed(line + "-e 15009 -m TPROXY -t 7 -r 8"), []string{
			`tunnel port: "-e" of istio-init says 15009, without it the pod gets 15008: ` + byCluster,
			`mark of TPROXY: "-t" of istio-init says 7, without it the pod gets 1337: ` + byCluster,
			`routing table of TPROXY: "-r" of istio-init says 8, without it the pod gets 133: ` +
				byCluster}},
		"what the proxy's user says": {meshed(line, ofProxy(int64(1338), "securityContext",
			"runAsUser")), []string{
			"users of the proxy: istio-init takes [1337], without it the pod gets [1338]: " + byUser,
			"groups of the proxy: istio-init takes [1337], without it the pod gets [1338]: " + byGroup}},
		"a group of its own": {meshed(line + "-u 1337 -g 5"), []string{
			`groups of the proxy: "-g" of istio-init says [5], without it the pod gets [1337]: ` + byGroup}},
		"what the proxy's variables say": {meshed(line+"--drop-invalid", ofInit(variables(
			"ISTIO_META_DNS_CAPTURE", "true", "ISTIO_OUTBOUND_OWNER_GROUPS", "7",
			"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.0/8"), "env")), []string{
			`included groups: "ISTIO_OUTBOUND_OWNER_GROUPS" of istio-init says [7], without it the ` +
				`pod gets *: ` + byVariable,
			`capture of name service (ISTIO_META_DNS_CAPTURE): "ISTIO_META_DNS_CAPTURE" of ` +
				`istio-init says true, without it the pod gets false: ` + byVariable,
			`loopback: "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR" of istio-init says 127.0.0.0/8, ` +
				`without it the pod gets 127.0.0.1/32: ` + byVariable,
			`dropping of invalid packets (INVALID_DROP): "--drop-invalid" of istio-init says true, ` +
				`without it the pod gets false: ` + byVariable}},
	} {
		refuses(t, name, row.pod, row.want)
	}
}

// refuses wants exactly these reasons, and the pod left as it was.
func refuses(t *testing.T, name string, pod podtree.Object, want []string) {
	t.Helper()
	before := podtree.Clone(pod)
	got, found, err := Strip(pod, redirect.Defaults())
	var refusal *Refusal
	if !found || !errors.As(err, &refusal) {
		t.Errorf("%s: found %t, error %v", name, found, err)
		return
	}
	if diff := cmp.Diff(want, refusal.Reasons); diff != "" {
		t.Errorf("%s: reasons (-want +got):\n%s", name, diff)
	}
	if err.Error() != "remove istio-init: "+strings.Join(want, "; ") {
		t.Errorf("%s: error %v", name, err)
	}
	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("%s: pod (-before +after):\n%s", name, diff)
	}
}
