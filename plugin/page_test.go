package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const head = `# The plugin's configuration

<!-- Written by ` + "`make generate`" + ` from the tables in contract/netconf/netconf.go and plugin/errors.go. -->

The installer writes this entry into the node's CNI configuration; every key may be left out:

` + "```json" + `
{
  "type": "sidecar-cni",
  "capabilities": {"io.kubernetes.cri.pod-annotations": true, "dns": true},
  "backend": "nftables",
  "excludeNamespaces": ["kube-system", "mesh-system"],
  "redirect": {"ports": {"outbound": 15001}, "proxy": {"uids": [1337], "gids": [1337]}}
}
` + "```" + `

With the two capabilities the container runtime tells a pod's annotations and nameservers together with the call. Without
the first, the plugin asks about every pod; without the second, DNS capture is of everything to port 53.

A wrong value fails ADD of a pod that is ours, and of no other; all wrong values are named at once. A key that is not
below is ignored, with a warning in the log: an older plugin may meet a newer configuration.

## Keys

A dot stands for an object within an object.

| key | default | form | what for |
|---|---|---|---|
`

const errorsHead = `
## Errors

What the plugin refuses, it refuses with a code, a cause and a remedy. The runtime passes them on: see
` + "`kubectl describe pod`" + `. Codes below 100 and 999 are those of the CNI specification.

| code | reason in log and metrics | when | what to do |
|---|---|---|---|
`

// page is the reference page.
func page() string {
	var b strings.Builder
	b.WriteString(head)
	for _, s := range netconf.Settings {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", s.Key, s.Initial, s.Form, s.About)
	}
	b.WriteString(errorsHead)
	for _, f := range faults {
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s |\n", f.code, f.word, f.about, f.remedy)
	}
	return b.String()
}

const configurationPage = "../docs/configuration.md"

func TestConfigurationPage(t *testing.T) {
	t.Parallel()
	want := page()
	if *update {
		if err := os.WriteFile(configurationPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(configurationPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/configuration.md is not what the table says (-table +page); `make "+
			"generate` writes it anew:\n%s", diff)
	}
}
