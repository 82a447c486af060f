//go:build e2e

package deployments_test

import (
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// part renders some files of the chart.
func part(t *testing.T, files []string, values ...string) string {
	t.Helper()
	args := []string{"template", "sidecar-cni", "chart", "--namespace=mesh", someImage}
	for _, file := range files {
		args = append(args, "--show-only=templates/"+file)
	}
	for _, v := range values {
		args = append(args, "--set="+v)
	}
	text, err := helm(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// injectorReviews asks a real API server what the three accounts may, while all of them are there.
func injectorReviews(t *testing.T, c *cluster.Cluster) {
	text := part(t, []string{"injector-rbac.yaml", "certify.yaml", "withdraw.yaml"},
		"injector.enabled=true",
		"injector.configMaps.injector=istio-system/istio-sidecar-injector",
		"injector.configMaps.mesh=istio-system/istio")
	c.Apply(t, text)
	defer deleteAll(t, c, text)
	const serve, certify, withdraw = "sidecar-cni-injector", "sidecar-cni-certify",
		"sidecar-cni-injector-withdraw"
	const webhooks = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	const authority, ours, last = "sidecar-cni-injector-ca", "sidecar-cni-inject",
		"zzz-sidecar-cni-strip"
	for _, x := range []struct {
		account string
		ask     ask
		want    bool
	}{
		{serve, ask{"watch", "configmaps", "istio-system", "istio"}, true},
		{serve, ask{"list", "configmaps", "istio-system", "istio-sidecar-injector"}, true},
		{serve, ask{"list", "configmaps", "istio-system", ""}, false},
		{serve, ask{"get", "configmaps", "istio-system", "istio-ca-root-cert"}, false},
		{serve, ask{"get", "configmaps", "mesh", "istio"}, false},
		{serve, ask{"update", "configmaps", "istio-system", "istio"}, false},
		{serve, ask{"watch", "secrets", "mesh", authority}, true},
		{serve, ask{"get", "secrets", "mesh", "another"}, false},
		{serve, ask{"list", "secrets", "mesh", ""}, false},
		{serve, ask{"get", "secrets", "istio-system", authority}, false},
		{serve, ask{"update", "secrets", "mesh", authority}, false},
		{serve, ask{"create", "events", "mesh", ""}, true},
		{serve, ask{"create", "events", "default", ""}, false},
		{serve, ask{"get", "pods", "mesh", "web"}, false},
		{serve, ask{"get", webhooks, "", ours}, false},
		{serve, ask{"patch", webhooks, "", ours}, false},
		{certify, ask{"create", "secrets", "mesh", ""}, true},
		{certify, ask{"update", "secrets", "mesh", authority}, true},
		{certify, ask{"update", "secrets", "mesh", "another"}, false},
		{certify, ask{"create", "secrets", "default", ""}, false},
		{certify, ask{"patch", webhooks, "", ours}, true},
		{certify, ask{"patch", webhooks, "", last}, true},
		{certify, ask{"patch", webhooks, "", "another"}, false},
		{certify, ask{"delete", webhooks, "", ours}, false},
		{certify, ask{"create", webhooks, "", ""}, false},
		{withdraw, ask{"delete", webhooks, "", ours}, true},
		{withdraw, ask{"delete", webhooks, "", last}, true},
		{withdraw, ask{"delete", webhooks, "", "another"}, false},
		{withdraw, ask{"patch", webhooks, "", ours}, false},
	} {
		if have := may(t, c, x.account, x.ask); have != x.want {
			t.Errorf("%s: %s: %v, want %v", x.account, x.ask, have, x.want)
		}
	}
}

// switchedOff asks Helm what an upgrade would run first, in a cluster with a webhook configuration
// that the new values do not have, and in one without.
func switchedOff(t *testing.T, c *cluster.Cluster) {
	const job, named = "name: sidecar-cni-injector-switch-off", "--webhook-configurations="
	upgrade := func(values ...string) string {
		args := []string{"upgrade", "sidecar-cni", chart(t), "--namespace=mesh", "--reuse-values",
			"--dry-run=server"}
		for _, v := range values {
			args = append(args, "--set="+v)
		}
		out, err := helmIn(t, c, args...)
		if err != nil {
			t.Fatal(out, err)
		}
		return out
	}
	if out := upgrade(); strings.Contains(out, job) {
		t.Errorf("there is nothing to switch off:\n%s", out)
	}
	// As if the release had made them.
	text := strings.NewReplacer("  labels:\n", "  labels:\n    app.kubernetes.io/managed-by: Helm\n",
		"  annotations:\n", "  annotations:\n    meta.helm.sh/release-name: sidecar-cni\n"+
			"    meta.helm.sh/release-namespace: mesh\n").
		Replace(part(t, []string{"webhooks.yaml"}, injecting("injector.strip.enabled=true")...))
	c.Apply(t, text)
	defer deleteAll(t, c, text)
	for _, x := range []struct {
		name   string
		values []string
		want   string // none: nothing is switched off
	}{
		{"the injector", nil, named + "sidecar-cni-inject,zzz-sidecar-cni-strip\n"},
		{"inject", []string{"injector.enabled=true", "injector.inject.enabled=false",
			"injector.strip.enabled=true"}, named + "sidecar-cni-inject\n"},
		{"strip", injecting(), named + "zzz-sidecar-cni-strip\n"},
		{"neither", injecting("injector.strip.enabled=true"), ""},
	} {
		out := upgrade(x.values...)
		_, hook, there := strings.Cut(out, job)
		hook, _, _ = strings.Cut(hook, "\n---")
		if there != (x.want != "") || there && (!strings.Contains(hook, x.want) ||
			!strings.Contains(hook, "helm.sh/hook: pre-upgrade\n")) {
			t.Errorf("%s is switched off: want %q before the upgrade:\n%s", x.name, x.want, out)
		}
	}
}

func deleteAll(t *testing.T, c *cluster.Cluster, text string) {
	t.Helper()
	if out, err := c.TryKubectl(text, "delete", "--ignore-not-found", "-f", "-"); err != nil {
		t.Error(out, err)
	}
}
