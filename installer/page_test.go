package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
)

var update = flag.Bool("update", false, "write docs/installer.md")

const (
	settingsPage = "../docs/installer.md"

	pageHead = `# The installer's settings

<!-- Written by ` + "`make generate`" + ` from the tables in installer/settings.go and installer/reconcile/state.go. -->

` + "`sidecar-cni-installer`" + ` is the daemon of each node. Each setting is a flag and a variable of the environment; the flag wins.
The variable of ` + "`--conf-dir`" + ` is ` + "`SIDECAR_CNI_CONF_DIR`" + `. The chart's values become these settings.

| command | what it does |
|---|---|
| ` + "`run`" + ` | keeps the plugin in the node's chain, answers it, looks after pods; ends on SIGTERM and leaves the node as it is |
| ` + "`run --once`" + ` | makes one pass; ends with 1 and the reason if the chain is not effective then |
| ` + "`run --dry-run`" + ` | prints what a pass would change, as a diff; needs no API server |
| ` + "`uninstall`" + ` | takes the node out; may be repeated at any time |
| ` + "`uninstall --stay`" + ` | the same, and stays, ready once the node is out |
| ` + "`withdraw`" + ` | takes all nodes out, before the DaemonSet is deleted |
| ` + "`log-level LEVEL`" + ` | has the daemon in the same pod log from another level on, until it ends: ` + "`kubectl exec POD -- /sidecar-cni-installer log-level debug`" + ` |

SIGHUP asks a running daemon for a pass and a look at the pods. Its Events and metrics are in [signals.md](signals.md).
`

	reasonsHead = `
## Reasons

What ` + "`/readyz`" + `, the metric ` + "`sidecar_cni_chain_state`" + ` and the node's condition say. Pods start redirected only while the
reason is ` + "`effective` or `superseded`" + `.

| reason | what it means |
|---|---|
`

	findingsHead = `
## Findings

What the metric ` + "`sidecar_cni_checked_pods`" + ` counts: the running pods of the node that have a
sidecar, by what the last look at them found.

| finding | what it means |
|---|---|
`

	pageFoot = `
Of those that are redirected ` + "`sidecar_cni_unhit_pods`" + ` counts the ones of whose rules none
has met a packet, though they were programmed 10 minutes ago or earlier. Such a pod has no traffic
at all, not even probes, or its runtime gives it a kernel or a network stack of its own, as Kata and
gVisor do: then nothing redirects it, whatever stands in its namespace.
`
)

func page() string {
	var b strings.Builder
	var s settings
	b.WriteString(pageHead)
	for _, g := range append(s.common(), s.runOnly(), s.uninstallOnly(), s.withdrawOnly()) {
		fmt.Fprintf(&b, "\n## %s\n\n| flag | default | values | |\n|---|---|---|---|\n", g.Title)
		for _, one := range g.Settings {
			fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", one.Name, quoted(one.Initial),
				quoted(strings.Join(one.Words, ", ")), one.About)
		}
	}
	b.WriteString(reasonsHead)
	for _, r := range reconcile.Reasons() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", r, reconcile.Meanings[r])
	}
	b.WriteString(findingsHead)
	for _, f := range audit.Findings {
		fmt.Fprintf(&b, "| `%s` | %s |\n", f, audit.Meanings[f])
	}
	b.WriteString(pageFoot)
	return b.String()
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func TestSettingsPage(t *testing.T) {
	t.Parallel()
	want := page()
	if *update {
		if err := os.WriteFile(settingsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/installer.md is not what the tables say (-table +page); `make generate` "+
			"writes it anew:\n%s", diff)
	}
}
