package redirect

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhereASettingComesFrom(t *testing.T) {
	t.Parallel()
	const virtual = "istio.io/reroute-virtual-interfaces"
	pod := Pod{Namespace: "shop", Name: "web", Annotations: map[string]string{
		StatusAnnotation: "{}", keyExcludeUIDs: "x",
		"traffic.sidecar.istio.io/kubevirtInterfaces": "net1",
	}, Spec: &Spec{Containers: []Container{{Name: proxyContainer,
		Env:     map[string]string{"INVALID_DROP": "maybe", "CAPTURE_ALL_DNS": "true"},
		EnvFrom: []string{"ISTIO_META_DNS_CAPTURE"}}}}}
	cfg := Defaults()
	cfg.Values = map[string]string{"traffic.sidecar.istio.io/excludeInterfaces": "net2"}
	cfg.Status, cfg.Ports.Outbound, cfg.Ports.Inbound = 15025, 25001, 25006
	want := map[string]Reading{
		keyExcludeUIDs: {Key: keyExcludeUIDs, Name: keyExcludeUIDs, Value: "x", Source: FromPod,
			Mistakes: Mistakes{{keyExcludeUIDs, "x", wantIDRange}}},
		virtual: {Key: virtual, Name: "traffic.sidecar.istio.io/kubevirtInterfaces",
			Value: "net1", Source: FromOlderName},
		"traffic.sidecar.istio.io/excludeInterfaces": {
			Key:  "traffic.sidecar.istio.io/excludeInterfaces",
			Name: "traffic.sidecar.istio.io/excludeInterfaces", Value: "net2", Source: FromCluster},
		keyStatusPort: {Key: keyStatusPort, Name: keyStatusPort, Value: "15025",
			Source: FromDefault},
		keyOutboundPort: {Key: keyOutboundPort, Name: keyOutboundPort, Value: "25001",
			Source: FromDefault},
		keyInboundPort: {Key: keyInboundPort, Name: keyInboundPort, Value: "25006",
			Source: FromDefault},
		"INVALID_DROP": {Key: "INVALID_DROP", Variable: true, Name: "INVALID_DROP", Value: "maybe",
			Source: FromPod, Ignored: Mistakes{{"INVALID_DROP", "maybe", wantBool}}},
		"CAPTURE_ALL_DNS": {Key: "CAPTURE_ALL_DNS", Variable: true, Name: "CAPTURE_ALL_DNS",
			Value: "true", Source: FromPod},
		"ISTIO_META_DNS_CAPTURE": {Key: "ISTIO_META_DNS_CAPTURE", Variable: true,
			Name: "ISTIO_META_DNS_CAPTURE", Value: "false", Source: Unreadable},
	}
	all := Readings(pod, cfg)
	for _, one := range all {
		if expected, ok := want[one.Key]; ok {
			if diff := cmp.Diff(expected, one); diff != "" {
				t.Errorf("%s (-want +got):\n%s", one.Key, diff)
			}
			delete(want, one.Key)
		}
	}
	if len(want) > 0 || len(all) != len(settings) ||
		!slices.IsSortedFunc(all, func(a, b Reading) int {
			index := func(r Reading) int {
				return slices.IndexFunc(settings, func(s setting) bool { return s.key == r.Key })
			}
			return index(a) - index(b)
		}) {
		t.Errorf("%d settings, without %v", len(all), want)
	}
}
