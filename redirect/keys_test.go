package redirect

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keepDecisive leaves of a pod what the lists of keys name.
func keepDecisive(p *Pod) {
	other := func(keys []string) func(string, string) bool {
		return func(key, _ string) bool { return !slices.Contains(keys, key) }
	}
	maps.DeleteFunc(p.Annotations, other(Annotations()))
	if p.Spec == nil {
		return
	}
	maps.DeleteFunc(p.Spec.Labels, other(Labels()))
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if c.Name != ProxyContainer {
			c.Env, c.Args = nil, nil
			continue
		}
		maps.DeleteFunc(c.Env, other(Variables()))
		c.Args = c.Args[:min(len(c.Args), DecisiveArgs)]
	}
}

// Whoever keeps of a pod only what the lists of keys name decides as with all of it.
func TestTheDecisiveKeysDecide(t *testing.T) {
	t.Parallel()
	pods := map[string]change{
		"asks for nothing":         together(),
		"asks for all that can be": everything,
		"asks by an older key":     annotation(traffic+"kubevirtInterfaces", "vm"),
		"asks for something unheard": together(annotation("a", "b"), label("a", "b"),
			variable("A", "b")),
		"asks for what is impossible": annotation(traffic+"includeInboundPorts", "http"),
	}
	for skip, change := range reasons {
		pods[string(skip)] = change
	}
	for _, s := range settings {
		pods[s.key] = says(s, accepted[s.key][len(accepted[s.key])-1].value)
	}
	for name, change := range pods {
		want, wantErr := Decide(meshed(change), withAgent())
		got, err := Decide(meshed(change, keepDecisive), withAgent())
		if diff := cmp.Diff(want, got, byValue); diff != "" || (err == nil) != (wantErr == nil) {
			t.Errorf("%s: error %v, want %v; decision (-whole +kept):\n%s", name, err, wantErr,
				diff)
		}
	}
}
