package deployments_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const signalsHead = `# Events and metrics

<!-- Written by ` + "`make generate`" + ` from the reasons and the metrics in installer/, injector/ and daemon/. -->

What agents and injectors tell about pods and nodes. The reasons for which a node is not ready are in [installer.md](installer.md#reasons);
[troubleshooting.md](troubleshooting.md) leads from a symptom to a command.

## Events

They are on the pod, unless the table says otherwise, and say what to do. Those of one reason:
` + "`kubectl get events -A --field-selector reason=SidecarRedirectFailed`" + `.

| reason | type | what happened |
|---|---|---|
`

const metricsHead = `
## Metrics

Agents serve them at ` + "`/metrics`" + ` of port 9466, injectors of port 9467. The chart's value ` + "`podMonitor.enabled`, or `serviceMonitor.enabled`" + `,
has Prometheus scrape them. ` + "`prometheusRule.enabled`" + ` brings the alerts, and ` + "`dashboard.enabled`" + ` a dashboard for Grafana.

| metric | type | labels | what it is | alerts |
|---|---|---|---|---|
`

// TestSignalsPage compares the page with the programs' source and the chart's alerts.
func TestSignalsPage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(signalsHead)
	all := events(t)
	for _, reason := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", reason, all[reason].kind, all[reason].about)
	}
	b.WriteString(metricsHead)
	ours := metrics(t)
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		m := ours[name]
		if !strings.HasPrefix(name, "sidecar_cni_") {
			continue
		}
		if m.help == "" {
			t.Errorf("%s has no help", name)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, strings.ToLower(m.kind),
			listed(m.labels), m.help, listed(alertsOn(t, name)))
	}
	for _, name := range slices.Sorted(maps.Keys(apiServers)) {
		if watching := alertsOn(t, name); len(watching) > 0 {
			fmt.Fprintf(&b, "\n%s asks for the API server's `%s`.\n", listed(watching), name)
		}
	}
	for _, a := range everyAlert(t) {
		if !strings.Contains(b.String(), "`"+a.Alert+"`") {
			t.Errorf("the page does not have the alert %s", a.Alert)
		}
	}
	golden(t, "../docs/signals.md", b.String())
}

// listed are words as code, with commas between.
func listed(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "`" + strings.Join(words, "`, `") + "`"
}

// alertsOn names the alerts that ask for a metric.
func alertsOn(t *testing.T, metric string) (names []string) {
	t.Helper()
	asks := regexp.MustCompile(`\b` + metric + `(_bucket|_sum|_count)?\b`)
	for _, a := range everyAlert(t) {
		if asks.MatchString(a.Expr) {
			names = append(names, a.Alert)
		}
	}
	slices.Sort(names)
	return names
}

// An event is a reason of Kubernetes Events, as the programs' source has it.
type event struct {
	constant string // that has it, if one does
	kind     string // Warning or Normal
	about    string // the comment behind it or above it
}

// isReason knows a reason of Events; SidecarCNIReady is a condition of nodes.
var isReason = regexp.MustCompile(`^Sidecar([A-BD-Z]|C[a-z])[A-Za-z]+$`)

// events finds the reasons in the programs' source, each with its comment.
func events(t *testing.T) map[string]event {
	t.Helper()
	all, noted := map[string]event{}, map[string]bool{}
	for _, path := range sources(t) {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		comments := commentsOf(set, file)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				noted[noteOf(n)] = true
			case *ast.ValueSpec, *ast.KeyValueExpr:
				name, reason := reasonOf(n)
				if reason == "" {
					break
				}
				at := set.Position(n.Pos())
				about := cmp.Or(comments[place{at.Line, 0}],
					comments[place{at.Line - 1, at.Column}])
				if about == "" {
					t.Errorf("%s: %s has no comment that says what happened", path, reason)
				}
				all[reason] = event{constant: name, about: about}
			}
			return true
		})
	}
	for reason, e := range all {
		e.kind = "Warning"
		if e.constant != "" && noted[e.constant] {
			e.kind = "Normal"
		}
		all[reason] = e
	}
	return all
}

// A place is where a comment is: its last line, and its column, which is 0 behind code.
type place struct{ line, column int }

// commentsOf are those of a file.
func commentsOf(set *token.FileSet, file *ast.File) map[place]string {
	code := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case nil, *ast.CommentGroup, *ast.Comment:
			return false
		case *ast.BasicLit:
			code[set.Position(n.Pos()).Line] = true
		}
		return true
	})
	all := map[place]string{}
	for _, group := range file.Comments {
		at := place{set.Position(group.End()).Line, set.Position(group.Pos()).Column}
		if code[at.line] {
			at.column = 0
		}
		all[at] = strings.TrimSpace(group.Text())
	}
	return all
}

// reasonOf is the reason that a constant, or a field of a map, has; and the constant's name.
func reasonOf(n ast.Node) (name, reason string) {
	var value ast.Expr
	switch n := n.(type) {
	case *ast.ValueSpec:
		if len(n.Values) != 1 {
			return "", ""
		}
		name, value = n.Names[0].Name, n.Values[0]
	case *ast.KeyValueExpr:
		value = n.Value
	}
	text := strings.Join(texts([]ast.Expr{value}), "")
	if _, plain := value.(*ast.BasicLit); !plain || !isReason.MatchString(text) {
		return "", ""
	}
	return name, text
}

// noteOf is the name of the constant that a call of Events.Note has for its reason.
func noteOf(call *ast.CallExpr) string {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || method.Sel.Name != "Note" || len(call.Args) != 3 {
		return ""
	}
	if name, ok := call.Args[1].(*ast.Ident); ok {
		return name.Name
	}
	return ""
}
