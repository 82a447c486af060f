package main

import (
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect/nftrace"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// What became of the packets of a table is counted: those that could not be sent for themselves.
func TestPacketsAreCounted(t *testing.T) {
	t.Parallel()
	unsent := talk{Kernel: &kernelWay{Unknown: "no route"}}
	same, differs := talk{}, talk{}
	same.Kernel = &kernelWay{Way: &nftrace.Way{}, Comparison: &nftrace.Comparison{Same: true}}
	older := talk{Kernel: &kernelWay{Unknown: "no route", Way: &nftrace.Way{}, // of an older agent
		Comparison: &nftrace.Comparison{}}}
	differs.Kernel = &kernelWay{Way: &nftrace.Way{}, Comparison: &nftrace.Comparison{}}
	for want, row := range map[string]struct {
		talks []talk
		amiss bool
	}{
		"The kernel took 2 of 2 through the same rules.": {[]talk{same, same}, false},
		"The kernel took 1 of 2 through the same rules.": {[]talk{same, differs}, true},
		"The kernel took 1 of the 1 that were sent through the same rules; 1 could not be sent.": {
			[]talk{same, unsent}, false},
		"The kernel took 0 of the 1 that were sent through the same rules; 1 could not be sent.": {
			[]talk{differs, unsent}, true},
		"None of the 2 could be sent.": {[]talk{unsent, older}, true},
		"":                             {[]talk{{}, {}}, false},
	} {
		w := way{Outcome: isRedirected, Talks: row.talks, table: true}
		var out strings.Builder
		if err := view.Show(&out, view.Text, false, ways{w}); err != nil {
			t.Fatal(err)
		}
		if w.amiss() != row.amiss || !strings.HasSuffix(flat(out.String()), want) {
			t.Errorf("amiss %t, want %t and %q in:\n%s", w.amiss(), row.amiss, want, &out)
		}
	}
}

// What an init container sends ahead of the proxy goes no further than to where nobody listens.
func TestTraceEndsWhereNobodyListens(t *testing.T) {
	t.Parallel()
	for from, legs := range map[string]int{"migrate": 1, "app": 2} {
		out, stderr, code := run(t.Context(), "", "trace", "-f", "testdata/web.yaml", "--from", from,
			"--to", "10.0.0.1:80")
		if code != 0 || strings.Count(out, ", TCP, ") != legs {
			t.Errorf("%s: %d, want %d connections:\n%s%s", from, code, legs, out, stderr)
		}
	}
}
