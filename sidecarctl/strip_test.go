package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// filled is a pod that another injector has filled; the two words are of istio-init's args.
const filled = `apiVersion: v1
kind: Pod
metadata:
  name: %n
  namespace: shop
  annotations:
    sidecar.istio.io/status: '{"initContainers":["istio-init"]}'
spec:
  initContainers:
  - name: istio-init   # programs the rules
    image: docker.io/istio/proxyv2:1.6.0
    args: [istio-iptables, -p, "15001", -z, "15006", -u, "%u", -m, REDIRECT, -i, "10.0.0.0/8", -b, "*"]
  containers:
  - name: app
    image: app
  - name: istio-proxy
    image: proxy
`

func filledPod(name, uid string) string {
	return strings.NewReplacer("%n", name, "%u", uid).Replace(filled)
}

// A pod of which istio-init can leave loses it; another one keeps it, and the exit code says so.
func TestStrip(t *testing.T) {
	t.Parallel()
	can, cannot := filledPod("can", "1337"), filledPod("cannot", "7")
	out, stderr, code := run(t.Context(), can, "strip", "-f", "-")
	if code != 0 || strings.Contains(out, "name: istio-init") ||
		!strings.Contains(out, `includeOutboundIPRanges: "10.0.0.0/8"`) {
		t.Errorf("exit code %d, %s\n%s", code, stderr, out)
	}
	back, stderr, code := run(t.Context(), out, "uninject", "-f", "-")
	if diff := cmp.Diff(can, back); diff != "" || code != 0 {
		t.Errorf("uninject: exit code %d, %s (-want +got):\n%s", code, stderr, diff)
	}
	out, stderr, code = run(t.Context(), can+"---\n"+cannot, "strip", "-f", "-")
	if code != exitAmiss || !strings.HasSuffix(out, cannot) ||
		strings.Count(out, "name: istio-init") != 1 {
		t.Errorf("exit code %d, %s\n%s", code, stderr, out)
	}
	for _, want := range []string{"shop/cannot", "istio-init stays", "-u", "7"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("standard error does not say %q:\n%s", want, stderr)
		}
	}
}

// Each command leaves alone what another one has done.
func TestInjectAfterStripAndStripAfterInject(t *testing.T) {
	t.Parallel()
	stripped, _, _ := run(t.Context(), filledPod("web", "1337"), "strip", "-f", "-")
	i := newInjection(t, stripped, "enabled")
	if out, stderr, code := i.inject(t); out != stripped || code != 0 ||
		!strings.Contains(stderr, "Pod shop/web: strip has changed it") {
		t.Errorf("inject after strip: exit code %d, %s\n%s", code, stderr, cmp.Diff(stripped, out))
	}
	i = newInjection(t, workload, "enabled")
	injected, _, _ := i.inject(t)
	out, stderr, code := run(t.Context(), injected, "strip", "-f", "-")
	if out != injected || code != 0 || !strings.Contains(stderr, "inject has changed it") {
		t.Errorf("strip after inject: exit code %d, %s\n%s", code, stderr, cmp.Diff(injected, out))
	}
}

// A pod without the annotation that the plugin goes by would run open.
func TestStripKeepsWhatThePluginWouldNotRedirect(t *testing.T) {
	t.Parallel()
	text := strings.Replace(filledPod("web", "1337"), "sidecar.istio.io/status", "example.com/x", 1)
	out, stderr, code := run(t.Context(), text, "strip", "-f", "-")
	if code != exitAmiss || out != text || !strings.Contains(stderr, "sidecar.istio.io/status") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, cmp.Diff(text, out))
	}
}

func TestUninjectRefusesWhatAnotherToolFilled(t *testing.T) {
	t.Parallel()
	out, stderr, code := run(t.Context(), filledPod("web", "1337"), "uninject", "-f", "-")
	if code != exitError || out != "" || !strings.Contains(stderr, "another tool") ||
		!strings.Contains(stderr, "shop/web") {
		t.Errorf("exit code %d, %s%s", code, out, stderr)
	}
}
