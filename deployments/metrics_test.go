package deployments_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A metric is one that the agent has, as its source says.
type metric struct {
	kind   string // Counter, Gauge or Histogram
	labels []string
	help   string
}

// programs are the folders of those that have metrics and write Events.
var programs = []string{"../installer", "../injector", "../daemon"}

// metrics finds what is registered: prometheus.GaugeOpts{Name: ...}, and the names of the labels
// behind it.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for _, file := range sources(t) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 {
				if name, kind, help := options(call.Args[0]); name != "" {
					all[name] = metric{kind, texts(call.Args[1:]), help}
				}
			}
			return true
		})
	}
	if len(all) < 15 {
		t.Fatalf("found %d metrics only: %v", len(all), all)
	}
	all["process_resident_memory_bytes"] = metric{kind: "Gauge"}
	return all
}

// sources lists the files of the programs.
func sources(t *testing.T) (files []string) {
	t.Helper()
	for _, folder := range programs {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// apiServers are metrics of the API server, as k8s.io/apiserver/pkg/admission/metrics has them.
var apiServers = map[string]metric{
	"apiserver_admission_webhook_rejection_count": {kind: "Counter",
		labels: []string{"name", "type", "operation", "error_type", "rejection_code"}},
	"apiserver_admission_webhook_fail_open_count": {kind: "Counter",
		labels: []string{"name", "type"}},
	"apiserver_admission_webhook_admission_duration_seconds": {kind: "Histogram",
		labels: []string{"name", "type", "operation", "rejected"}},
}

// options reads prometheus.CounterOpts and the like.
func options(e ast.Expr) (name, kind, help string) {
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return "", "", ""
	}
	what, ok := literal.Type.(*ast.SelectorExpr)
	if !ok || !strings.HasSuffix(what.Sel.Name, "Opts") {
		return "", "", ""
	}
	for _, field := range literal.Elts {
		if pair, ok := field.(*ast.KeyValueExpr); ok {
			switch text := strings.Join(texts([]ast.Expr{pair.Value}), ""); pair.Key.(*ast.Ident).Name {
			case "Name":
				name = text
			case "Help":
				help = text
			}
		}
	}
	return name, strings.TrimSuffix(what.Sel.Name, "Opts"), help
}

// texts lists the strings that stand in expressions.
func texts(expressions []ast.Expr) []string {
	var all []string
	for _, e := range expressions {
		switch e := e.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(e.Value); err == nil {
				all = append(all, text)
			}
		case *ast.CompositeLit:
			all = append(all, texts(e.Elts)...)
		case *ast.BinaryExpr: // a sum of strings
			all = append(all, texts([]ast.Expr{e.X, e.Y})...)
		}
	}
	return all
}

// alerts are those of a file.
type alerts struct {
	Groups []struct {
		Rules []alert `json:"rules"`
	} `json:"groups"`
}

// An alert is one of them.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ruleFiles are the files of alerts, by the PrometheusRule that has each.
var ruleFiles = map[string]string{"sidecar-cni": "chart/alerts.yaml",
	"sidecar-cni-injector": "chart/injector-alerts.yaml"}

// everyAlert are those of the chart.
func everyAlert(t *testing.T) (all []alert) {
	t.Helper()
	for _, file := range ruleFiles {
		var rules alerts
		read(t, file, &rules)
		for _, g := range rules.Groups {
			all = append(all, g.Rules...)
		}
	}
	return all
}

// panels are those of the dashboard.
type panels struct {
	Panels []struct {
		ID      int    `json:"id"`
		Title   string `json:"title"`
		GridPos struct {
			X int `json:"x"`
			Y int `json:"y"`
			W int `json:"w"`
			H int `json:"h"`
		} `json:"gridPos"`
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

// given are the labels that a scrape adds.
var given = []string{"node", "namespace", "pod", "job", "instance", "le"}

// TestExpressions has Prometheus' own parser read what alerts and dashboard ask for, and holds it
// to what the agent has.
func TestExpressions(t *testing.T) {
	t.Parallel()
	ours, used := metrics(t), map[string]bool{}
	known := maps.Clone(ours)
	maps.Copy(known, apiServers)
	for _, u := range uses(t, expressions(t)) {
		name := u.Metric
		m, ok := known[name]
		if base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""); !ok &&
			known[base].kind == "Histogram" {
			name, m, ok = base, known[base], true
		}
		if !ok {
			t.Errorf("%s: there is no metric %s", u.Expression, u.Metric)
			continue
		}
		used[name] = true
		for _, label := range u.Labels {
			if !slices.Contains(given, label) && !slices.Contains(m.labels, label) {
				t.Errorf("%s: %s has no label %s, but %v", u.Expression, u.Metric, label, m.labels)
			}
		}
		counts := m.kind == "Counter" && !strings.Contains(u.Expression, "rate(") &&
			!strings.Contains(u.Expression, "increase(")
		if counts {
			t.Errorf("%s: %s is a counter, which says something by its rate only", u.Expression,
				u.Metric)
		}
	}
	unseen := []string{"sidecar_cni_dropped_records_total",
		"sidecar_cni_repair_last_pass_timestamp_seconds"}
	for name := range ours {
		if !used[name] && !slices.Contains(unseen, name) {
			t.Errorf("neither an alert nor the dashboard shows %s", name)
		}
	}
}

func expressions(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, r := range everyAlert(t) {
		all = append(all, r.Expr)
	}
	var board panels
	read(t, "chart/dashboards/sidecar-cni.json", &board)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$__rate_interval", "5m", "$node", ".*").
				Replace(target.Expr))
		}
	}
	return all
}

// A use is what tools/promql says of an expression.
type use struct {
	Expression, Metric string
	Labels             []string
}

func uses(t *testing.T, expressions []string) []use {
	t.Helper()
	asked, err := json.Marshal(expressions)
	if err != nil {
		t.Fatal(err)
	}
	cmd := command("go", "run", "-C", "../tools/promql", ".")
	cmd.Stdin = strings.NewReader(string(asked))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(told(err))
	}
	var all []use
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

var variable = regexp.MustCompile(`\$labels\.(\w+)|\{\{(\w+)\}\}`)

// TestAlertsSayWhatToDo, and name only labels that their expressions leave.
func TestAlertsSayWhatToDo(t *testing.T) {
	t.Parallel()
	events := events(t)
	for _, r := range everyAlert(t) {
		text := r.Annotations["summary"] + r.Annotations["description"]
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) ||
			r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: want a severity, a summary and a description", r.Alert)
		}
		for _, match := range variable.FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`by \([^)]*\b` + match[1] + `\b`).MatchString(r.Expr) {
				t.Errorf("%s: %s is no label of %s", r.Alert, match[1], r.Expr)
			}
		}
		for _, reason := range regexp.MustCompile(`\bSidecar[A-Z][a-zA-Z]+`).FindAllString(text,
			-1) {
			if _, ok := events[reason]; !ok {
				t.Errorf("%s: no Event has the reason %s", r.Alert, reason)
			}
		}
	}
}

// TestNodesThatAreNotAmiss holds the alert about nodes to the states that need nobody: pods start
// redirected, as far as this agent is to say, or the agent is about to begin, or it was told to
// end.
func TestNodesThatAreNotAmiss(t *testing.T) {
	t.Parallel()
	for _, r := range everyAlert(t) {
		if r.Alert != "SidecarCNINodeNotReady" {
			continue
		}
		excluded := regexp.MustCompile(`reason!~"([^"]*)"`).FindStringSubmatch(r.Expr)
		if excluded == nil || excluded[1] != "effective|superseded|starting|uninstalled" {
			t.Errorf("%s: it leaves out %q", r.Expr, excluded)
		}
		return
	}
	t.Error("there is no alert about nodes")
}

// TestDashboardFits holds panels apart.
func TestDashboardFits(t *testing.T) {
	t.Parallel()
	var board panels
	read(t, "chart/dashboards/sidecar-cni.json", &board)
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q: want an id of its own, a title and something to show", p.ID,
				p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" && other != p.Title || x >= 24 {
					t.Fatalf("panel %q covers %q, or is beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestRenderedAlerts are the file's, and the dashboard's ConfigMap has the file.
func TestRenderedAlerts(t *testing.T) {
	t.Parallel()
	objects := scenario{"", "mesh", everything}.objects(t)
	for name, file := range ruleFiles {
		var want any
		read(t, file, &want)
		have := find(t, objects, "PrometheusRule", name).Object["spec"]
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("PrometheusRule %s (-%s +rendered):\n%s", name, file, diff)
		}
	}
	board, err := os.ReadFile("chart/dashboards/sidecar-cni.json")
	if err != nil {
		t.Fatal(err)
	}
	data, _ := find(t, objects, "ConfigMap", "sidecar-cni-dashboard").
		Object["data"].(map[string]any)
	if data["sidecar-cni.json"] != string(board) {
		t.Error("the ConfigMap has another dashboard than dashboards/sidecar-cni.json")
	}
}
