package netconf

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
)

// An empty map is what a runtime passes that knows no annotations. It is not that the pod has none,
// which would let every meshed pod pass.
func TestWhatTheRuntimeAdds(t *testing.T) {
	t.Parallel()
	address := netip.MustParseAddr
	attachments := []record.Attachment{{Container: "a", Interface: "eth0"}}
	for name, row := range map[string]struct {
		text     string
		want     Given
		warnings int
	}{
		"nothing": {`{}`, Given{}, 0},
		"the call's own": {
			`{"name":"pods","cniVersion":"1.1.0","prevResult":{"a":1}}`,
			Given{Network: "pods", Version: "1.1.0", PrevResult: []byte(`{"a":1}`)}, 0},
		"a previous result that is null": {`{"prevResult":null}`, Given{}, 0},
		"annotations": {
			`{"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b"}}}`,
			Given{Annotations: map[string]string{"a": "b"}}, 0},
		"no annotations": {
			`{"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{}}}`, Given{}, 0},
		"annotations null": {
			`{"runtimeConfig":{"io.kubernetes.cri.pod-annotations":null}}`, Given{}, 0},
		"some annotations that are no text": {
			`{"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b","c":1}}}`, Given{}, 1},
		"nameservers, one no address": {
			`{"runtimeConfig":{"dns":{"Servers":["10.96.0.10","dns","fd00::a"]}}}`,
			Given{Nameservers: []netip.Addr{address("10.96.0.10"), address("fd00::a")}}, 1},
		"attachments": {
			`{"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}]}`,
			Given{Attachments: attachments, Listed: true}, 0},
		"attachments by their former key": {
			`{"cni.dev/attachments":[{"containerID":"a","ifname":"eth0"}]}`,
			Given{Attachments: attachments, Listed: true}, 0},
		"attachments by both keys": {
			`{"cni.dev/valid-attachments":[],"cni.dev/attachments":[{"containerID":"a"}]}`,
			Given{Listed: true}, 0},
		"attachments that are no list": {`{"cni.dev/valid-attachments":1}`, Given{}, 1},
	} {
		c := Parse([]byte(row.text))
		if diff := cmp.Diff(row.want, c.Given, byText); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if len(c.Warnings) != row.warnings || len(c.Mistakes) != 0 {
			t.Errorf("%s: warnings %q, mistakes %q", name, c.Warnings, c.Mistakes)
		}
	}
}

func TestWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                     `configuration: : want a JSON object`,
		`[]`:                   `configuration: []: want a JSON object`,
		`{"redirect":null}`:    `redirect: null: want an object`,
		`{"redirect":"ports"}`: `redirect: "ports": want an object`,
	} {
		if got := Parse([]byte(text)).Mistakes; !cmp.Equal(got, []string{want}) {
			t.Errorf("%s: mistakes %q, want %q", text, got, want)
		}
	}
}

// CNI's own keys are CNI's at the top only.
func TestAKeyOfCNIWithinAnObjectIsUnknown(t *testing.T) {
	t.Parallel()
	c := Parse([]byte(`{"redirect":{"name":"a","cni.dev/b":1}}`))
	want := []string{"redirect.cni.dev/b", "redirect.name"}
	if diff := cmp.Diff(want, c.Unknown); diff != "" {
		t.Errorf("unknown keys (-want +got):\n%s", diff)
	}
}

func TestNamesOfNamespaces(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"a": true, "az-09": true, "0": true, "z": true, "9": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "-a": false, "a-": false, "-": false,
		"A": false, "é": false,
		// The neighbours of 0, 9, a and z in ASCII.
		"a.b": false, "a/b": false, "a:b": false, "a`b": false, "a{b": false,
	} {
		c := Parse([]byte(`{"excludeNamespaces":["` + name + `"]}`))
		if (len(c.Mistakes) == 0) != ok {
			t.Errorf("%q: mistakes %q", name, c.Mistakes)
		}
	}
}

func TestAMistakeQuotesAtMostSoMuch(t *testing.T) {
	t.Parallel()
	quoted := func(bytes int) string { return `"` + strings.Repeat("a", bytes-2) + `"` }
	for bytes, want := range map[int]string{
		64: quoted(64) + ": want",
		65: `"` + strings.Repeat("a", 63) + "... and 1 bytes more: want",
		99: `"` + strings.Repeat("a", 63) + "... and 35 bytes more: want",
	} {
		c := Parse([]byte(`{"backend":` + quoted(bytes) + `}`))
		if len(c.Mistakes) != 1 || !strings.HasPrefix(c.Mistakes[0], "backend: "+want) {
			t.Errorf("%d bytes: %q, want %s", bytes, c.Mistakes, want)
		}
	}
}
