package target_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

// Whatever is in a file: it is refused in one line, or its pods have names fit for a terminal and
// can be decided about.
func FuzzFromFile(f *testing.F) {
	for _, seed := range []string{
		running, "---\n" + running + "---\n" + pod(containers), bomb(2),
		"kind: List\nitems:\n- kind: Pod\n  metadata: {name: a}\n  spec: " + containers,
		"kind: CronJob\nmetadata: {name: a}\nspec: {jobTemplate: {spec: {template: {spec: " +
			containers + "}}}}",
		`{"kind": "Pod", "metadata": {"name": "a", "annotations": {"sidecar.istio.io/status": "",
			"traffic.sidecar.istio.io/excludeInboundPorts": "1,\u0000"}}, "spec": {
			"containers": [{"name": "istio-proxy", "securityContext": {"runAsUser": -1},
			"args": ["proxy"], "env": [{"name": "A", "valueFrom": {}}]}]}}`,
		"a: &a {b: c}\n<<: *a\n? [x]\n: !!binary AA==\n", "%YAML 1.1\n---\n- .inf\n...\n",
		"kind: Pod\nmetadata: {name: \"\\e[2J\"}\nspec: " + containers, "{{ .Values }}", "\xff\xfea\x00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := target.FromFile(strings.NewReader(text), "f", target.Options{})
		if err != nil {
			if len(pods) > 0 || !printable(err.Error()) {
				t.Errorf("%d pods beside the error %q", len(pods), err)
			}
			return
		}
		if len(pods) == 0 {
			t.Error("neither a pod nor an error")
		}
		for _, p := range pods {
			for _, word := range []string{p.Name, p.Kind, p.Node, p.DNSPolicy, p.UID} {
				if !printable(word) {
					t.Errorf("%q is not fit for a terminal", word)
				}
			}
			if len(p.Containers) != len(p.Facts.Spec.Containers) || p.Facts.Name == "" {
				t.Errorf("%+v does not fit its facts", p)
			}
			_, _ = redirect.Decide(p.Facts, redirect.Defaults())
		}
	})
}

func printable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}
