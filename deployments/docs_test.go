package deployments_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/platforms"
)

// page reads one of the pages that are about the chart.
func page(t *testing.T, name string) string {
	t.Helper()
	return readPage(t, filepath.Join("../docs", name))
}

func readPage(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// rows returns the cells of a table, which begins with a head.
func rows(t *testing.T, text, head string) [][]string {
	t.Helper()
	_, table, ok := strings.Cut(text, "\n"+head)
	if !ok {
		t.Fatalf("there is no table that begins with %q", head)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var all [][]string
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all = append(all, cells)
	}
	return all
}

var code = regexp.MustCompile("`([^`]+)`")

// codes lists what is in backquotes.
func codes(text string) []string {
	var all []string
	for _, match := range code.FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}

// documented are the rights that docs/security.md says an account has.
func documented(t *testing.T, account string) []string {
	t.Helper()
	var all []string
	for _, cells := range rows(t, page(t, "security.md"), "| right of "+account+" |") {
		all = append(all, codes(cells[0])...)
	}
	slices.Sort(all)
	return all
}

// TestSecurityPage holds its tables to the roles, with everything on.
func TestSecurityPage(t *testing.T) {
	t.Parallel()
	objects := scenario{"", "mesh", everything}.objects(t)
	have := map[string][]string{}
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		for _, rule := range as[rbacv1.ClusterRole](t, o).Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					right := strings.TrimSuffix(verb+" "+resource+"."+rule.APIGroups[0], ".")
					have[o.GetName()] = append(have[o.GetName()], right)
				}
			}
		}
	}
	for _, account := range []string{"sidecar-cni", "sidecar-cni-plugin", "sidecar-cni-uninstall",
		"sidecar-cni-tool", "sidecar-cni-injector", "sidecar-cni-certify",
		"sidecar-cni-injector-withdraw"} {
		slices.Sort(have[account])
		if diff := cmp.Diff(have[account], documented(t, account)); diff != "" {
			t.Errorf("%s (-the role +the page):\n%s", account, diff)
		}
	}
	text := page(t, "security.md")
	var policies, named []string
	for _, o := range objects {
		if o.GetKind() == "ValidatingAdmissionPolicy" {
			policies = append(policies, o.GetName())
		}
	}
	for _, cells := range slices.Concat(rows(t, text, "| policy |"),
		rows(t, text, "| policy about pods |")) {
		named = append(named, strings.Trim(cells[0], "`"))
		find(t, objects, "ValidatingAdmissionPolicyBinding", strings.Trim(cells[0], "`"))
	}
	if diff := cmp.Diff(policies, named); diff != "" {
		t.Errorf("policies (-the chart's +the page's):\n%s", diff)
	}
}

// TestRightsByFeature renders each feature alone: it brings its own rights and no others.
func TestRightsByFeature(t *testing.T) {
	t.Parallel()
	for _, cells := range rows(t, page(t, "security.md"), "| right of sidecar-cni |") {
		feature := strings.Trim(cells[2], "`")
		if feature == "always" {
			continue
		}
		value := feature + "=true"
		if key, mode, ok := strings.Cut(feature, ": "); ok {
			value = key + "=" + mode
		}
		right := strings.Fields(codes(cells[0])[0])
		for set, want := range map[string]bool{value: true, "logLevel=info": false} {
			role := as[rbacv1.ClusterRole](t,
				find(t, scenario{"", "mesh", []string{set}}.objects(t), "ClusterRole",
					"sidecar-cni"))
			have := slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.Verbs, right[0]) && slices.Contains(r.Resources, right[1])
			})
			if have != want {
				t.Errorf("%s: %v is %v, want %v", set, right, have, want)
			}
		}
	}
}

// TestPlatformsPage holds its table to the installer's.
func TestPlatformsPage(t *testing.T) {
	t.Parallel()
	text := page(t, "platforms.md")
	var have, want []string
	for _, cells := range rows(t, text, "| platform |") {
		have = append(have, strings.Join(cells[:4], " "))
	}
	for _, p := range platforms.All {
		want = append(want, fmt.Sprintf("%s `%s` `%s` `%s`", p.Name, p.ConfDir, p.BinDir,
			p.RuntimeSocket))
		if p.Name != "kubeadm" &&
			!regexp.MustCompile(`(?m)^## .*\b`+p.Name+`\b`).MatchString(text) {
			t.Errorf("no section is about %s", p.Name)
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("platforms.md (-want +have):\n%s", diff)
	}
}

// TestContributingNamesFolders holds the table of folders to the tree.
func TestContributingNamesFolders(t *testing.T) {
	t.Parallel()
	for _, cells := range rows(t, readPage(t, "../CONTRIBUTING.md"), "| folder |") {
		for _, folder := range codes(cells[0]) {
			if info, err := os.Stat(filepath.Join("..", folder)); err != nil || !info.IsDir() {
				t.Errorf("%s: %v", folder, err)
			}
		}
	}
}

// TestContributingAnswers holds that what its answers name is declared where they say it is.
func TestContributingAnswers(t *testing.T) {
	t.Parallel()
	answer := regexp.MustCompile("`([\\w.]+)` in `([\\w/.-]+\\.go)`")
	all := rows(t, readPage(t, "../CONTRIBUTING.md"), "| question | answer |")
	if len(all) < 10 {
		t.Errorf("%d questions, want 10", len(all))
	}
	for _, cells := range all {
		named := answer.FindAllStringSubmatch(cells[1], -1)
		if len(named) == 0 {
			t.Errorf("%s: no answer by name and file", cells[0])
		}
		for _, one := range named {
			if !slices.Contains(declared(t, filepath.Join("..", one[2])), one[1]) {
				t.Errorf("%s: there is no %s in %s", cells[0], one[1], one[2])
			}
		}
	}
}

// declared are the names of a file's declarations; a method is called Type.Method.
func declared(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				of := d.Recv.List[0].Type
				if pointer, ok := of.(*ast.StarExpr); ok {
					of = pointer.X
				}
				name = fmt.Sprintf("%v.%s", of, name)
			}
			names = append(names, name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// TestIstioPage holds that what takes the place of istio-cni's values and metrics is there.
func TestIstioPage(t *testing.T) {
	t.Parallel()
	text := page(t, "from-istio-cni.md")
	known := map[string]bool{"platform": true}
	for _, v := range values(t) {
		known[v.path] = true
	}
	for _, cells := range rows(t, text, "| istio-cni | sidecar-cni | |") {
		if cells[1] == "none" && cells[2] == "" {
			t.Errorf("%s: none, and why?", cells[0])
		}
		for _, name := range codes(cells[1]) {
			path, value, set := strings.Cut(name, "=")
			if !known[path] {
				t.Errorf("%s: the chart has no value %s", cells[0], path)
			}
			if _, err := render(t, "mesh", path+"="+value); set && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	have := metrics(t)
	_, text, _ = strings.Cut(text, "## Metrics and Events")
	for _, cells := range rows(t, text, "| istio-cni | sidecar-cni |") {
		for _, name := range codes(cells[1]) {
			if _, ok := have[name]; !ok {
				t.Errorf("there is no metric %s", name)
			}
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]+))?\)`) // without those to other sites
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	unnamed = regexp.MustCompile(`[^\w -]`)
)

// TestLinks follows those of all pages, to the section that they name.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md", "chart/README.md") {
		for _, match := range link.FindAllStringSubmatch(readPage(t, page), -1) {
			to := page
			if match[1] != "" {
				to = filepath.Join(filepath.Dir(page), match[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if match[2] != "" && !slices.Contains(sections(readPage(t, to)), match[2]) {
				t.Errorf("%s: %s has no section %s", page, to, match[2])
			}
		}
	}
}

// sections are the names by which links lead to a page's headings.
func sections(page string) (names []string) {
	for _, match := range heading.FindAllStringSubmatch(page, -1) {
		names = append(names, strings.ReplaceAll(unnamed.ReplaceAllString(strings.ToLower(match[1]),
			""), " ", "-"))
	}
	return names
}

// TestInjectorPage holds what docs/injector.md says to type and to look for.
func TestInjectorPage(t *testing.T) {
	t.Parallel()
	text := page(t, "injector.md")
	alerts := readPage(t, "chart/injector-alerts.yaml")
	for _, name := range regexp.MustCompile(`SidecarCNI\w+`).FindAllString(text, -1) {
		if !strings.Contains(alerts, "alert: "+name+"\n") {
			t.Errorf("there is no alert %s", name)
		}
	}
	// What goes before an uninstallation is a hook, which kubectl would apply with all the rest.
	for line := range strings.SplitSeq(strings.ReplaceAll(text, " \\\n", " "), "\n") {
		if strings.HasPrefix(line, "helm template ") && !strings.Contains(line, "--no-hooks") &&
			!strings.Contains(line, "--show-only") {
			t.Errorf("%s: it would uninstall", line)
		}
	}
	if !strings.Contains(text, "\nhelm template ") {
		t.Error("it does not say how the manifests come about")
	}
	deleted := deletedBy(text)
	for _, o := range (scenario{"", "kube-system", injecting("injector.strip.enabled=true")}).
		objects(t) {
		name := strings.ToLower(o.GetKind()) + " " + o.GetName()
		if o.GetAnnotations()["helm.sh/hook"] == "" && strings.Contains(name, " sidecar-cni-inject") &&
			!deleted[name] {
			t.Errorf("nobody deletes %s", name)
		}
	}
}

// deletedBy are the objects, as "kind name", that the commands of a page delete.
func deletedBy(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.SplitSeq(strings.ReplaceAll(text, " \\\n", " "), "\n") {
		words := strings.Fields(line)
		at := slices.Index(words, "delete")
		if at < 0 || at == len(words)-1 || words[0] != "kubectl" {
			continue
		}
		for kind := range strings.SplitSeq(words[at+1], ",") {
			for _, name := range words[at+2:] {
				all[kind+" "+name] = true
			}
		}
	}
	return all
}
