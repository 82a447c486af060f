package mesh_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Keys replace what was there before; only proxyMetadata is merged.
func TestAnAnnotationIsAppliedAsInIstio(t *testing.T) {
	t.Parallel()
	m := parse(t, `
defaultConfig:
  concurrency: 2
  tracing: {zipkin: {address: "a:1"}, sampling: 10}
  proxyMetadata: {A: "1", B: "2"}
  extraStatTags: [a, b]
  connectTimeout: 3s
`)
	before := asJSON(t, m.DefaultConfig)
	got, err := m.DefaultConfig.With(`
drainDuration: 1m0s
connectTimeout: 4s
concurrency: "0"
tracing: {sampling: 100}
proxyMetadata: {B: "3", C: "4"}
extraStatTags: [z]
statusPort: null
holdApplicationUntilProxyStarts: true
nonesuch: 1
`)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"configPath":"./etc/istio/proxy","binaryPath":"/usr/local/bin/envoy",` +
		`"serviceCluster":"istio-proxy","drainDuration":"60s",` +
		`"discoveryAddress":"istiod.istio-system.svc:15012","proxyAdminPort":15000,` +
		`"controlPlaneAuthPolicy":"MUTUAL_TLS","statNameLength":189,"concurrency":0,` +
		`"tracing":{"sampling":100},"proxyMetadata":{"A":"1","B":"3","C":"4"},` +
		`"statusPort":15020,"extraStatTags":["z"],"terminationDrainDuration":"5s",` +
		`"holdApplicationUntilProxyStarts":true}`
	if diff := cmp.Diff(sorted(t, want), sorted(t, asJSON(t, got))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d := got.ConnectTimeout.AsDuration(); d != 4*time.Second {
		t.Errorf("connect timeout %v", d)
	}
	if diff := cmp.Diff([]string{
		`unknown key "proxy.istio.io/config: nonesuch", it has no effect`,
	}, got.Warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if after := asJSON(t, m.DefaultConfig); after != before ||
		m.DefaultConfig.ConnectTimeout.AsDuration() != 3*time.Second {
		t.Errorf("the mesh's own changed:\n%s\n%s", before, after)
	}
}

func TestAnnotationsThatAreRefused(t *testing.T) {
	t.Parallel()
	c := parse(t, "").DefaultConfig
	rows := []struct{ name, text, want string }{
		{"no YAML", "a: b: c", "proxy.istio.io/config: "},
		{"a text", "concurrency", "proxy.istio.io/config: want keys with values"},
		{"values", "concurrency: many\nstatusPort: x",
			"proxy.istio.io/config: concurrency: "},
		{"too long", strings.Repeat("#", 64<<10+1), "proxy.istio.io/config: it has 65537 bytes"},
		{"aliases", "proxyMetadata:\n  A: &a " + strings.Repeat("x", 32<<10) + "\n  " +
			strings.Repeat("? *a\n  : *a\n  ", 1000), "its aliases stand for more than"},
	}
	for _, row := range rows {
		if _, err := c.With(row.text); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: error %v, want one with %q", row.name, err, row.want)
		}
	}
	_, err := c.With("drainDuration: " + strings.Repeat("x", 60_000))
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("of a long value: %v", err)
	}
	many, err := c.With(unknownKeys(1000))
	if err != nil || len(many.Warnings) != 20 {
		t.Errorf("of many unknown keys: error %v", err)
	}
	if _, err := c.With(""); err != nil {
		t.Errorf("of an empty one: %v", err)
	}
}

func unknownKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	return b.String()
}
