package render

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestForms(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		form       Form
		want       string
	}{
		{"the seeds' brackets", "[[ .ProxyConfig.Concurrency ]]{{ x }}", Seeds, "2{{ x }}"},
		{"a number under the seeds' brackets",
			"[[ if gt .ProxyConfig.Concurrency 1 ]]many[[ end ]]", Seeds, "many"},
		{"the seeds' form without brackets", "{{ .ProxyConfig.Concurrency.GetValue }}", Seeds, "2"},
		{"today's form", "{{ .ProxyConfig.Concurrency.GetValue }}", Today, "2"},
		{"brackets in today's form are text", "[[ x ]]{{ .Revision }}", Today, "[[ x ]]"},
		{"a configuration as JSON under the seeds' brackets", "[[ protoToJSON .ProxyConfig ]]",
			Seeds, `{"concurrency":2,"proxyMetadata":{"A":"b"}}`},
		{"no text", "", Today, ""},
		{"templates alone", `{{ define "a" }}{{ end }}`, Today, ""},
		{"a template that is called", `{{ define "a" }}<{{ . }}>{{ end }}{{ template "a" 1 }}`,
			Today, "<1>"},
		{"calls one after the other are not one in the other",
			`{{ define "a" }}{{ end }}{{ range until 1000 }}{{ template "a" }}{{ end }}`,
			Today, ""},
		{"break and continue",
			`{{ range until 9 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ if eq . 3 }}{{ break }}` +
				`{{ end }}{{ . }}{{ end }}`, Today, "02"},
		{"a wrong number of arguments where no pod comes",
			`{{ if .Revision }}{{ toLower "x" "y" }}{{ end }}`, Today, ""},
		{"times are left out", "{{ .ObjectMeta.CreationTimestamp.IsZero }}", Today, "true"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			data := sample(t)
			data.ObjectMeta.CreationTimestamp = metav1.Unix(1, 0)
			if got := mustExecute(t, test.text, test.form, data); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestNoConfigurationOfTheMesh(t *testing.T) {
	t.Parallel()
	text := "{{ .ProxyConfig.ConfigPath }}{{ .MeshConfig.ProxyListenPort }}{{ " + otelCall + " }}"
	if got := mustExecute(t, text, Today, Data{}); got != "0" {
		t.Errorf("got %q", got)
	}
}

// Each of these would take memory or time without end, or more of it than a pod is worth.
func TestBounds(t *testing.T) {
	t.Parallel()
	const large = "{{ $s := repeat 1000000 `x` }}"
	const steps = "runs too long (over 1048576 steps): shorten what it ranges over"
	const items = "takes or yields over 100000 items: shorten the list"
	const bytes = "would yield over 1048576 bytes: "
	tests := []struct {
		name, text, want string
	}{
		{"a long range", "{{ range $i := 1000000000 }}{{ end }}", "line 1: " + steps},
		{"a large body is more work",
			"{{ range $i := 30000 }}" + strings.Repeat("{{ $x := $i }}", 50) + "{{ end }}",
			"line 1: " + steps},
		{"a recursion", "{{ define `a` }}{{ template `a` . }}{{ end }}{{ template `a` . }}",
			"line 1: templates call each other more than 100 deep: end the recursion"},
		{"a recursion that branches",
			"{{ define `a` }}{{ if lt . 90 }}{{ template `a` (add1 .) }}{{ template `a` (add1 .) }}" +
				"{{ end }}{{ end }}{{ template `a` 1 }}", "line 1: " + steps},
		{"much text", "{{ range $i := 20000 }}" + strings.Repeat("x", 100) + "{{ end }}",
			"yields over 1048576 bytes: shorten what it prints, or the data"},
		{"a list of itself",
			"{{ $l := list 1 }}" + strings.Repeat("{{ $l = list $l $l }}", 40),
			"line 1: function list: " + items},
		{"a list that grows", "{{ $l := list }}{{ range $i := 90000 }}{{ $l = append $l 1 }}{{ end }}",
			"line 1: " + steps},
		{"a list in a list", "{{ $l := list }}{{ range $i := 90000 }}{{ $l = list $l }}{{ end }}",
			"line 1: function list: takes or yields what nests over 100 deep: flatten it"},
		{"a map of itself", "{{ $d := dict }}{{ $_ := set $d `a` $d }}{{ print $d }}",
			"line 1: function set: takes or yields what nests over 100 deep: flatten it"},
		{"a map of itself by a list",
			"{{ $d := dict }}{{ $_ := set $d `a` (list $d) }}{{ print $d }}",
			"line 1: function set: takes or yields what nests over 100 deep: flatten it"},
		{"text of itself", "{{ $s := `x` }}{{ range $i := 99 }}{{ $s = print $s $s }}{{ end }}",
			"line 1: function print: takes or yields over 1048576 bytes: shorten the text"},
		{"large texts in a list", large + "{{ list $s $s }}",
			"line 1: function list: takes or yields over 1048576 bytes: shorten the text"},
		{"repeat", "{{ repeat 1000000000 `x` }}",
			"line 1: function repeat: " + bytes + "shorten the text or lower the number"},
		{"repeat nothing", "{{ repeat 9223372036854775807 `` }}",
			"line 1: function repeat: " + bytes + "shorten the text or lower the number"},
		{"repeat less than nothing", "{{ repeat -1 `x` }}",
			"line 1: function repeat: want a number that is not negative, got -1"},
		{"until", "{{ until 1000000000 }}",
			"line 1: function until: want numbers up to 100000, got 1000000000"},
		{"untilStep past the numbers", "{{ untilStep 0 9223372036854775807 10 }}",
			"line 1: function untilStep: want numbers up to 100000, got 9223372036854775807"},
		{"seq", "{{ seq 0 -1000000000 }}",
			"line 1: function seq: want numbers up to 100000, got -1000000000"},
		{"indent", "{{ indent 1000000000 `x` }}",
			"line 1: function indent: " + bytes + "shorten the text or lower the number"},
		{"nindent", "{{ nindent 100000 (repeat 20 `\n`) }}",
			"line 1: function nindent: " + bytes + "shorten the text or lower the number"},
		{"replace", large + "{{ replace `x` $s $s }}",
			"line 1: function replace: " + "takes or yields over 1048576 bytes: shorten the text"},
		{"replace in shorter text", "{{ $s := repeat 2000 `x` }}{{ replace `x` $s $s }}",
			"line 1: function replace: " + bytes + "shorten the text or lower the number"},
		{"join", "{{ join (repeat 1000 `x`) (until 2000) }}",
			"line 1: function join: " + bytes + "shorten the text or lower the number"},
		{"wrapWith", "{{ $s := repeat 2000 `x` }}{{ wrapWith 1 $s $s }}",
			"line 1: function wrapWith: " + bytes + "shorten the text or lower the number"},
		{"split", large + "{{ $x := splitList `` $s }}",
			"line 1: function splitList: would yield over 100000 items: shorten the text"},
		{"printf of wide fields", "{{ printf `" + strings.Repeat("%1000000d", 9) + "` 1 }}",
			"line 1: function printf: " + bytes + "shorten the format"},
		{"printf of fields as wide as an argument",
			"{{ printf `" + strings.Repeat("%[1]*[1]d", 9) + "` 1000000 }}",
			"line 1: function printf: " + bytes + "shorten the format"},
		{"printf of one text again and again",
			"{{ printf `" + strings.Repeat("%[1]s", 1000) + "` (repeat 10000 `x`) }}",
			"line 1: function printf: " + bytes + "shorten the format"},
		{"uniq", "{{ uniq (until 90000) }}", "line 1: " + steps},
		{"without", "{{ without (until 90000) 1 2 3 4 5 6 7 8 9 0 1 2 3 }}", "line 1: " + steps},
		{"regular expressions on large text",
			large + "{{ regexMatch `x{1,1000}y` $s }}", "line 1: " + steps},
		{"a long regular expression", "{{ regexMatch (repeat 2000 `x`) `` }}",
			"line 1: function regexMatch: the expression has 2000 bytes: want at most 1000"},
		{"a long replacement", "{{ $s := repeat 2000 `x` }}{{ regexReplaceAll `x` $s $s }}",
			"line 1: function regexReplaceAll: " + bytes + "shorten the text or lower the number"},
		{"a long version", "{{ semver (repeat 2000 `1`) }}",
			"line 1: function semver: want a version of at most 1000 bytes"},
		{"sums of large text", large + "{{ range $i := 90000 }}{{ $x := sha256sum $s }}{{ end }}",
			"line 1: " + steps},
		{"comparing large text",
			large + "{{ range $i := 90000 }}{{ $x := eq $s $s }}{{ end }}", "line 1: " + steps},
		{"long sums", "{{ range $i := 90000 }}{{ $x := mulf 1e300 1e300 }}{{ end }}",
			"line 1: " + steps},
		{"methods", "{{ range $i := 90000 }}{{ $x := $.Spec.Size }}{{ end }}",
			`line 1: $.Spec.Size: there is no field "Size"; docs/inject.md lists the fields`},
		{"texts of structures", "{{ range $i := 90000 }}{{ $x := $.Spec.String }}{{ end }}",
			"line 1: " + steps},
		{"many arguments", "{{ list" + strings.Repeat(" 1", 1000) + " }}",
			"line 1: has 1001 arguments: want at most 1000"},
		{"deep nesting", strings.Repeat("{{ if 1 }}", 300) + strings.Repeat("{{ end }}", 300),
			"line 1: nests deeper than 200: flatten it"},
		{"deep parentheses", "{{ " + strings.Repeat("(", 20000), "line 1: max expression depth exceeded"},
		{"a long template", strings.Repeat("x", 300000), "has 300000 bytes: want at most 262144"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, err := execute(t, test.text, Today, sample(t))
			if err == nil || !strings.HasSuffix(err.Error(), " "+test.want) ||
				!strings.HasPrefix(err.Error(), `template "sidecar"`) {
				t.Errorf("%.200s\n got %d bytes, %v\nwant %s", test.text, len(out), err, test.want)
			}
		})
	}
}

// A pod of the size that an API server still takes stays within the bounds.
func TestLargePods(t *testing.T) {
	t.Parallel()
	data := sample(t)
	for range 10_000 {
		data.Spec.Containers[0].Env = append(data.Spec.Containers[0].Env,
			corev1.EnvVar{Name: "A", Value: "b"})
	}
	data.ObjectMeta.Annotations["large"] = strings.Repeat("x", 200<<10)
	text := "{{ range .Spec.Containers }}{{ range .Env }}{{ if eq .Name `A` }}" +
		"- {{ .Value | quote }}\n{{ end }}{{ end }}{{ end }}{{ toJSON .ObjectMeta.Annotations }}"
	if got := mustExecute(t, text, Today, data); len(got) < 200<<10 {
		t.Errorf("got %d bytes", len(got))
	}
	old, _ := configured(t, "istio-1.1.yaml")
	mustExecute(t, old, Seeds, data)
	_, today := configured(t, "today.yaml")
	mustExecute(t, today["sidecar"], Today, data)
}

// What goes through all of a large pod without making anything is work, too.
func TestLargePodsAgainAndAgain(t *testing.T) {
	t.Parallel()
	data := sample(t)
	for port := range int32(20_000) {
		data.Spec.Containers[0].Ports = append(data.Spec.Containers[0].Ports,
			corev1.ContainerPort{ContainerPort: port + 1, Protocol: corev1.ProtocolUDP})
	}
	for _, text := range []string{
		"{{ range $i := 500 }}{{ $x := $.Spec.String }}{{ end }}",
		"{{ range $i := 500 }}{{ with $.Spec }}{{ $x := .String }}{{ end }}{{ end }}",
		"{{ range $i := 500 }}{{ $x := includeInboundPorts $.Spec.Containers }}{{ end }}",
		"{{ range $i := 500 }}{{ $x := applicationPorts $.Spec.Containers }}{{ end }}",
	} {
		if _, err := execute(t, text, Today, data); err == nil ||
			!strings.Contains(err.Error(), "runs too long") {
			t.Errorf("%s\n got %v, want it to run too long", text, err)
		}
	}
	enum := "{{ range $i := 500 }}{{ $x := $.ProxyConfig.InterceptionMode.String }}{{ end }}"
	mustExecute(t, enum, Today, data)
}

func TestTemplatesChangeNothing(t *testing.T) {
	t.Parallel()
	data := sample(t)
	before := snapshot(t, data)
	text := "{{ $_ := set .Values `a` 1 }}{{ $_ = unset .Values.global `hub` }}" +
		"{{ $_ = mergeOverwrite .Values.global.proxy (dict `image` `x`) }}" +
		"{{ $_ = sortAlpha .MeshConfig.DefaultServiceExportTo }}" +
		"{{ .Values.a }}{{ .Values.global.proxy.image }}{{ .Values.global.hub | default `no` }}"
	data.MeshConfig.DefaultServiceExportTo = []string{"b", "a"}
	for range 2 {
		if got := mustExecute(t, text, Today, data); got != "1xno" {
			t.Errorf("got %q", got)
		}
	}
	if diff := cmp.Diff([]string{"b", "a"}, data.MeshConfig.DefaultServiceExportTo); diff != "" {
		t.Error(diff)
	}
	data.MeshConfig.DefaultServiceExportTo = []string{"*"}
	if diff := cmp.Diff(before, snapshot(t, data)); diff != "" {
		t.Error(diff)
	}
}

func snapshot(t *testing.T, data Data) string {
	t.Helper()
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestManyExecuteOneTemplate(t *testing.T) {
	t.Parallel()
	_, today := configured(t, "today.yaml")
	// Most of the bound each, so that a count that is shared would be over it.
	text := today["sidecar"] + "{{ range $i := 12 }}{{ $x := sha256sum (repeat 500000 `x`) }}" +
		"{{ end }}{{ $_ := set .Values `a` 1 }}"
	template, err := Parse("sidecar", text, Today, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := sample(t)
	want := mustExecute(t, text, Today, data)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			got, err := template.Execute(data)
			if err != nil || string(got) != want {
				t.Errorf("got %v, %s", err, cmp.Diff(want, string(got)))
			}
		})
	}
	all.Wait()
}

func FuzzTemplate(f *testing.F) {
	old, _ := configured(f, "istio-1.1.yaml")
	_, today := configured(f, "today.yaml")
	f.Add(old, true)
	f.Add(today["sidecar"], false)
	for _, test := range functionTests {
		f.Add("{{ "+test.text+" }}", false)
	}
	data := sample(f)
	f.Fuzz(func(t *testing.T, text string, seeds bool) {
		form := Today
		if seeds {
			form = Seeds
		}
		template, err := Parse("sidecar", text, form, nil)
		if err != nil {
			return
		}
		first, err := template.Execute(data)
		if len(first) > maxText || err != nil && first != nil {
			t.Fatalf("got %d bytes, %v", len(first), err)
		}
		second, again := template.Execute(data)
		if string(first) != string(second) || (err == nil) != (again == nil) ||
			err != nil && err.Error() != again.Error() {
			t.Fatalf("got %q, %v, and then %q, %v", first, err, second, again)
		}
	})
}
