package mesh_test

import (
	"strings"
	"testing"
	"text/template"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
)

// ofChart is the mesh configuration of Istio 1.1's chart, its comments left out, and what 1.0's has
// beside it.
const ofChart = `
disablePolicyChecks: true
enableTracing: false
accessLogFile: "/dev/stdout"
accessLogFormat: ""
accessLogEncoding: 'TEXT'
mixerCheckServer: istio-policy.istio-system.svc.cluster.local:9091
mixerReportServer: istio-telemetry.istio-system.svc.cluster.local:9091
policyCheckFailOpen: true
ingressService: istio-ingressgateway
dnsRefreshRate: 5s
sdsUdsPath: unix:/var/run/sds/uds_path
enableSdsTokenMount: true
sdsUseK8sSaJwt: true
sdsRefreshDelay: 15s
rdsRefreshDelay: 10s
authPolicy: MUTUAL_TLS
trustDomain:
mixerAddress:
reportBatchMaxTime: null
outboundTrafficPolicy:
  mode: REGISTRY_ONLY
configSources:
- address: istio-galley.istio-system.svc:9901
  tlsSettings:
    mode: ISTIO_MUTUAL
localityLbSetting: {}
defaultConfig:
  connectTimeout: 1s
  configPath: "/etc/istio/proxy"
  binaryPath: "/usr/local/bin/envoy"
  serviceCluster: sample
  drainDuration: 45s
  parentShutdownDuration: 1m0s
  discoveryRefreshDelay: 2s
  proxyAdminPort: 15000
  concurrency: 2
  zipkinAddress: zipkin.istio-system:9411
  statsdUdpAddress: statsd:9125
  envoyMetricsServiceAddress: metrics:15000
  availabilityZone: zone-1
  controlPlaneAuthPolicy: NONE
  interceptionMode: TPROXY
  discoveryAddress: istio-pilot.istio-system:15010
`

// expand executes a template as injection does: over a struct with both configurations.
func expand(t *testing.T, m *mesh.MeshConfig, seeds bool, text string) string {
	t.Helper()
	duration := func(d *durationpb.Duration) string { return d.AsDuration().String() }
	parsed, err := template.New("").Funcs(template.FuncMap{"formatDuration": duration}).Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]any{"MeshConfig": m, "ProxyConfig": m.DefaultConfig}
	if seeds {
		data["ProxyConfig"] = m.DefaultConfig.ForSeeds()
	}
	var b strings.Builder
	if err := parsed.Execute(&b, data); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func parse(t *testing.T, text string) *mesh.MeshConfig {
	t.Helper()
	m, err := mesh.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What templates name, of the chart's document and by default.
func TestTemplatesSeeTheFieldsOfEveryVersion(t *testing.T) {
	t.Parallel()
	chart, none := parse(t, ofChart), parse(t, "")
	rows := []struct{ text, chart, none string }{
		{"{{ .MeshConfig.ProxyListenPort }}", "15001", "15001"},
		{"{{ .MeshConfig.ProxyInboundListenPort }}", "15006", "15006"},
		{"{{ formatDuration .MeshConfig.ConnectTimeout }}", "10s", "10s"},
		{"{{ .MeshConfig.EnableTracing }}", "false", "true"},
		{"{{ .MeshConfig.AccessLogFile }}", "/dev/stdout", ""},
		{"{{ .MeshConfig.IngressService }}", "istio-ingressgateway", "istio-ingressgateway"},
		{"{{ .MeshConfig.TrustDomain }}", "cluster.local", "cluster.local"},
		{"{{ .MeshConfig.RootNamespace }}", "istio-system", "istio-system"},
		{"{{ .MeshConfig.EnableAutoMtls.GetValue }}", "true", "true"},
		{"{{ .MeshConfig.OutboundTrafficPolicy.Mode }}", "REGISTRY_ONLY", "ALLOW_ANY"},
		{"{{ formatDuration .MeshConfig.DnsRefreshRate }}", "5s", "1m0s"},
		{"{{ .MeshConfig.MixerCheckServer }}",
			"istio-policy.istio-system.svc.cluster.local:9091", ""},
		{"{{ .MeshConfig.MixerReportServer }}",
			"istio-telemetry.istio-system.svc.cluster.local:9091", ""},
		{"{{ .MeshConfig.DisablePolicyChecks }}", "true", "false"},
		{"{{ .MeshConfig.PolicyCheckFailOpen }}", "true", "false"},
		{"{{ .MeshConfig.SdsUdsPath }}", "unix:/var/run/sds/uds_path", ""},
		{"{{ .MeshConfig.EnableSdsTokenMount }}", "true", "false"},
		{"{{ .MeshConfig.SdsUseK8SSaJwt }}", "true", "false"},
		{"{{ formatDuration .MeshConfig.SdsRefreshDelay }}", "15s", "15s"},
		{"{{ formatDuration .MeshConfig.RdsRefreshDelay }}", "10s", "1s"},
		{"{{ .MeshConfig.AuthPolicy }}", "MUTUAL_TLS", "NONE"},
		{"{{ .MeshConfig.DefaultConfig.ConfigPath }}", "/etc/istio/proxy", "./etc/istio/proxy"},
		{"{{ formatDuration .MeshConfig.DefaultConfig.ConnectTimeout }}", "1s", "10s"},

		{"{{ .ProxyConfig.ConfigPath }}", "/etc/istio/proxy", "./etc/istio/proxy"},
		{"{{ .ProxyConfig.BinaryPath }}", "/usr/local/bin/envoy", "/usr/local/bin/envoy"},
		{"{{ .ProxyConfig.ServiceCluster }}", "sample", "istio-proxy"},
		{"{{ .ProxyConfig.ClusterName.ServiceCluster }}", "sample", "istio-proxy"},
		{"{{ formatDuration .ProxyConfig.DrainDuration }}", "45s", "45s"},
		{"{{ formatDuration .ProxyConfig.TerminationDrainDuration }}", "5s", "5s"},
		{"{{ formatDuration .ProxyConfig.ParentShutdownDuration }}", "1m0s", "1m0s"},
		{"{{ formatDuration .ProxyConfig.ConnectTimeout }}", "1s", "10s"},
		{"{{ .ProxyConfig.DiscoveryAddress }}", "istio-pilot.istio-system:15010",
			"istiod.istio-system.svc:15012"},
		{"{{ .ProxyConfig.ZipkinAddress }}", "zipkin.istio-system:9411", ""},
		{"{{ .ProxyConfig.GetTracing.GetZipkin.GetAddress }}", "", ""},
		{"{{ .ProxyConfig.StatsdUdpAddress }}", "statsd:9125", ""},
		{"{{ .ProxyConfig.EnvoyMetricsServiceAddress }}", "metrics:15000", ""},
		{"{{ .ProxyConfig.AvailabilityZone }}", "zone-1", ""},
		{"{{ .ProxyConfig.ProxyAdminPort }}", "15000", "15000"},
		{"{{ .ProxyConfig.StatusPort }}", "15020", "15020"},
		{"{{ .ProxyConfig.StatNameLength }}", "189", "189"},
		{"{{ .ProxyConfig.ControlPlaneAuthPolicy }}", "NONE", "MUTUAL_TLS"},
		{"{{ .ProxyConfig.InterceptionMode }}", "TPROXY", "REDIRECT"},
		{"{{ .ProxyConfig.InterceptionMode.String }}", "TPROXY", "REDIRECT"},
		{`{{ eq .ProxyConfig.InterceptionMode.String "TPROXY" }}`, "true", "false"},
		{"{{ .ProxyConfig.ProxyBootstrapTemplatePath }}", "", ""},
	}
	for _, row := range rows {
		for _, seeds := range []bool{false, true} {
			if got := expand(t, chart, seeds, row.text); got != row.chart {
				t.Errorf("seeds %v: %s is %q, want %q", seeds, row.text, got, row.chart)
			}
			if got := expand(t, none, seeds, row.text); got != row.none {
				t.Errorf("seeds %v, by default: %s is %q, want %q", seeds, row.text, got, row.none)
			}
		}
	}
	if len(chart.Warnings) != 0 {
		t.Errorf("warnings %q", chart.Warnings)
	}
}

func TestConcurrencyIsANumberForSeeds(t *testing.T) {
	t.Parallel()
	const text = "{{ if gt .ProxyConfig.Concurrency 0 }}--concurrency " +
		"{{ .ProxyConfig.Concurrency }}{{ end }}"
	chart, none := parse(t, ofChart), parse(t, "")
	if got := expand(t, chart, true, text); got != "--concurrency 2" {
		t.Errorf("%q", got)
	}
	if got := expand(t, none, true, text); got != "" {
		t.Errorf("by default: %q", got)
	}
	const today = "{{ if .ProxyConfig.Concurrency }}{{ .ProxyConfig.Concurrency.GetValue }}{{ end }}"
	if got := expand(t, chart, false, today); got != "2" {
		t.Errorf("today's: %q", got)
	}
	if got := expand(t, none, false, today); got != "" {
		t.Errorf("today's by default: %q", got)
	}
	const delay = "{{ formatDuration .ProxyConfig.DiscoveryRefreshDelay }}"
	if a, b := expand(t, chart, true, delay), expand(t, none, true, delay); a != "2s" || b != "1s" {
		t.Errorf("refresh delay %q, by default %q", a, b)
	}
}
