package render

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"text/template/parse"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
)

// documented are the mistakes that text/template does not make.
var documented = regexp.MustCompile(`: .* is not set: set it, or give a default$` +
	`|: a structure cannot be printed: ` +
	`|: runs too long \(over |: (takes or yields|yields) (over|what nests over) ` +
	`|: has \d+ arguments: want at most |: nests deeper than |: templates call each other more than `)

var noField = regexp.MustCompile(`there is no field "(.*)"; docs`)

// isDocumented also knows methods that are not allowed, by their names.
func (l *library) isDocumented(err error) bool {
	if match := noField.FindStringSubmatch(err.Error()); match != nil {
		return l.methods[match[1]]
	}
	return documented.MatchString(err.Error())
}

// library is text/template and ours with the same functions.
type library struct {
	all       functionSet
	names     map[string]any
	functions template.FuncMap
	methods   map[string]bool // of all types that the data can reach, but for those allowed
}

// compare executes a text by both, over data of their own, and reports how it ended. What passes a
// bound is not given to text/template, which has none.
func (l *library) compare(t *testing.T, text string) (ending string) {
	t.Helper()
	got, err := l.byOurs(text)
	if err != nil && l.isDocumented(err) {
		if strings.Contains(err.Error(), " is not set: set it, or") {
			want, wantErr := l.byLibrary(text)
			if wantErr == nil && !strings.Contains(want, "<no value>") &&
				!strings.Contains(want, "<nil>") {
				t.Errorf("%s\n got %v\nwant %q", text, err, want)
			}
		}
		return "documented"
	}
	want, wantErr := l.byLibrary(text)
	switch {
	case err != nil && wantErr != nil:
		// Of an expression that goes over several lines, text/template names the line where it
		// stood last, and ours where it begins.
		diff := cmp.Diff(lineIn(wantErr), lineIn(err))
		if diff != "" && !overLines.MatchString(text) {
			t.Errorf("%s\n got %v\nwant %v", text, err, wantErr)
		}
		return "mistake"
	case err != nil || wantErr != nil || got != want:
		t.Errorf("%s\n got %q, %v\nwant %q, %v", text, got, err, want, wantErr)
	}
	return "text"
}

func (l *library) byOurs(text string) (string, error) {
	trees, err := parse.Parse(sourceName, text, "", "", l.names)
	if err != nil {
		return "", parseMistake(sourceName, err)
	}
	ours, err := newTemplate(sourceName, trees, l.all)
	if err != nil {
		return "", err
	}
	got, err := ours.execute(newWorld())
	return string(got), err
}

func (l *library) byLibrary(text string) (string, error) {
	parsed, err := template.New(sourceName).Funcs(l.functions).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = parsed.Execute(&b, newWorld())
	return b.String(), err
}

var overLines = regexp.MustCompile(`\{\{[^}]*\n`)

var line = regexp.MustCompile(`(?:inject:|line )(\d+)`)

func lineIn(err error) string {
	match := line.FindStringSubmatch(err.Error())
	if match == nil {
		return ""
	}
	return match[1]
}

// newLibrary keeps of our functions only their own differences: comparisons across types, arguments
// that are refused, and what is made plain before it becomes text.
func newLibrary(t testing.TB) *library {
	t.Helper()
	all, err := functionsFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &library{all: all, names: all.names(), functions: template.FuncMap{},
		methods: map[string]bool{}}
	seen := map[reflect.Type]bool{}
	collect(reflect.TypeFor[*world](), seen)
	collect(reflect.TypeFor[*mesh.SeedsProxyConfig](), seen)
	for _, name := range unsupported {
		_, method, _ := strings.Cut(name, ".")
		l.methods[method] = true
	}
	for typ := range seen {
		for _, with := range []reflect.Type{typ, reflect.PointerTo(typ)} {
			for method := range with.Methods() {
				_, allowed := methods[method.Name]
				if !allowed && !strings.HasPrefix(method.Name, "Get") {
					l.methods[method.Name] = true
				}
			}
		}
	}
	for name, f := range all {
		l.functions[name] = unbounded(f).Interface()
	}
	for _, name := range []string{"eq", "ne", "lt", "le", "gt", "ge"} {
		l.functions[name] = func(args ...reflect.Value) (result reflect.Value, err error) {
			known := builtins[name]
			if len(args) < known.least || known.most > 0 && len(args) > known.most {
				return result, errors.New("wrong number of arguments")
			}
			return known.do(&run{}, args)
		}
	}
	return l
}

func unbounded(f function) reflect.Value {
	value := reflect.ValueOf(f.value)
	out := []reflect.Type{value.Type().Out(0), reflect.TypeFor[error]()}
	typ := reflect.FuncOf(slices.Collect(value.Type().Ins()), out, value.Type().IsVariadic())
	return reflect.MakeFunc(typ, func(args []reflect.Value) []reflect.Value {
		if typ.IsVariadic() {
			rest := args[len(args)-1]
			args = args[:len(args)-1]
			for i := range rest.Len() {
				args = append(args, rest.Index(i))
			}
		}
		sizes, err := (&run{}).weigh(args)
		given := arguments{args, sizes}
		if err == nil && f.printsText {
			err = (&run{}).makePlain(given)
		}
		if err == nil && f.cost != nil {
			_, err = f.cost(given)
		}
		result := reflect.Zero(out[0])
		if err == nil {
			results := value.Call(args)
			result = results[0]
			if len(results) == 2 {
				err, _ = reflect.TypeAssert[error](results[1])
			}
		}
		return []reflect.Value{result, reflect.ValueOf(&err).Elem()}
	})
}

// Every expression of the grammar is executed in the places where it can stand.
func TestExpressionsAreThoseOfTextTemplate(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	endings := map[string]int{}
	for of := range anOddity + 1 {
		for _, operand := range operands[of] {
			operand = strings.NewReplacer("%%", "%", "%t", "`lit`", "%n", "1", "%b", "true",
				"%l", "$.List", "%m", "$.Texts", "%i", "$.Inner", "%o", "$.Map").Replace(operand)
			for _, around := range []string{
				"{{ % }}", "{{ % | toJson }}", "{{ toJson % }}", "{{ kindOf % }}", "{{ upper % }}",
				"{{ add % }}", "{{ if % }}yes{{ else }}no{{ end }}", "{{ index % `s` }}",
				"{{ with % }}{{ kindOf . }}{{ else }}no{{ end }}", "{{ $x := % }}{{ kindOf $x }}",
				"{{ range % }}{{ kindOf . }}{{ else }}none{{ end }}", "{{ len % }}", "{{ not % }}",
				"{{ range $i := % }}{{ toJson $i }}{{ end }}", "{{ (%).Name }}", "{{ % 1 }}",
				"{{ range $i, $v := % }}{{ $i }}={{ toJson $v }},{{ end }}", "{{ eq % 1 }}",
				"{{ $x := 1 }}{{ range $x = % }}{{ kindOf $x }}{{ end }}{{ kindOf $x }}",
			} {
				endings[l.compare(t, strings.Replace(around, "%", operand, 1))]++
			}
		}
	}
	if endings["documented"] > endings["text"]/3 {
		t.Errorf("too many end early: %v", endings)
	}
}

// Texts whose meaning is easy to get wrong.
var differentialSeeds = []string{
	"{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}",
	"{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}",
	"{{ $x := 1 }}{{ if true }}{{ $y := 5 }}{{ $x = 2 }}{{ $z := 6 }}{{ end }}{{ $y := 3 }}{{ $x }}{{ $y }}",
	"{{ if $x := 1 }}{{ $x }}{{ end }}{{ with $x := 0 }}{{ else }}{{ $x }}{{ end }}",
	"{{ if false }}a{{ else if $x := 2 }}{{ $x }}{{ else }}b{{ end }}",
	"{{ with false }}a{{ else with $.Text }}{{ . }}{{ else }}b{{ end }}",
	"{{ with $.Inner }}{{ .Name }}{{ $.Text }}{{ end }}{{ .Text }}",
	"{{ range $.List }}{{ . }}{{ with $.Number }}{{ . }}{{ end }}{{ . }}{{ end }}",
	"{{ range $i, $v := $.List }}{{ $i }}{{ $v }}{{ $i = 9 }}{{ $i }}{{ end }}",
	"{{ range $i, $v := $.Nothing }}{{ else }}{{ $i }}{{ $v }}{{ end }}",
	"{{ $i := 0 }}{{ range $i = $.List }}{{ end }}{{ $i }}",
	"{{ $i := 0 }}{{ $v := 0 }}{{ range $i, $v = $.List }}{{ end }}{{ $i }}{{ $v }}",
	"{{ $i := 0 }}{{ $v := 0 }}{{ range $i, $v = $.Map.map }}{{ $i }}{{ $v }}{{ end }}{{ $i }}{{ $v }}",
	"{{ range $i, $v := 3 }}{{ end }}", "{{ range $.Small }}x{{ else }}none{{ end }}",
	"{{ range $i := $.Unsigned }}{{ kindOf $i }}{{ $i }}{{ end }}",
	"{{ range $.List }}{{ if eq . `a` }}{{ break }}{{ end }}{{ . }}{{ end }}end",
	"{{ range $.List }}{{ if eq . `a` }}{{ continue }}{{ end }}{{ . }}{{ end }}end",
	"{{ range $.List }}{{ with . }}{{ $y := 1 }}{{ continue }}{{ end }}{{ end }}{{ .Text }}",
	"{{ range $.List }}{{ range $.Nothing }}{{ else }}{{ break }}{{ end }}{{ . }}{{ end }}",
	"{{ range $.List }}{{ range $.Nothing }}{{ else }}{{ continue }}{{ end }}{{ . }}{{ end }}",
	"{{ range $.List }}{{ range $.Ints }}{{ break }}{{ end }}{{ . }}{{ end }}",
	"{{ define `a` }}{{ $ }}{{ . }}{{ $x := 1 }}{{ end }}{{ $x := 5 }}{{ template `a` 2 }}{{ $x }}",
	"{{ template `leaf` $x := 3 }}{{ $x }}{{ define `leaf` }}{{ . }}{{ end }}",
	"{{ block `a` .Inner }}{{ .Name }}{{ end }}{{ template `a` .InnerP }}",
	"{{ define `inject` }}x{{ end }}", "{{ define `a` }}{{ end }}{{ template `a` }}",
	"{{/* a comment */}}{{- 1 -}} {{- `` -}} ", "{{ 1 | add 2 | print `a` | quote }}",
	"{{ or 0 (fail `no`) }}", "{{ or 1 (fail `no`) }}", "{{ and 0 (fail `no`) }}",
	"{{ and 1 (fail `no`) }}", "{{ fail `no` | or 1 }}", "{{ (index .Inners 0).Name }}",
	"{{ ($.Map.none).deeper }}|", "{{ if and .Map.none .Map.none.x }}{{ end }}",
	"{{ true.x }}", "{{ \"a\\n\" }}{{ `b` }}{{ 'c' }}{{ '\\n' }}", "{{ printf \"%d %v\" 1 1.0 }}",
	"{{ -0x1e | kindOf }}{{ 0x1e | kindOf }}{{ 1e0 | kindOf }}{{ 'e' | kindOf }}{{ 0x1p1 | kindOf }}",
	"{{ now.x }}", "{{ list.x }}", "{{ (list 1).x }}", "{{ print.x }}", "{{ break }}", "{{ else }}",
	"{{ $x }}", "{{ $x = 1 }}", "\n\n{{ .Nope }}", "\n{{ range .List }}\n{{ .x }}{{ end }}",
	"\n{{ template `a` . }}{{ define `a` }}\n\n{{ .Nope }}{{ end }}", "{{ nil }}", "{{ print nil }}",
	"{{ if -0.0 }}yes{{ end }}{{ if -0i }}yes{{ end }}{{ if 0.0 }}yes{{ end }}",
	"{{ $m := dict `a` 1 `b` 2 }}{{ range $k, $v := $m }}{{ $_ := set $m `b` 3 }}{{ $v }}{{ end }}",
	"{{ $m := dict `a` 1 `b` 2 }}{{ range $k, $v := $m }}{{ $_ := unset $m `b` }}{{ $v }}{{ end }}",
}

func TestTemplatesAreThoseOfTextTemplate(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	for _, text := range differentialSeeds {
		l.compare(t, text)
	}
	endings := map[string]int{}
	const runs = 3000
	random := rand.New(rand.NewPCG(1, 2))
	for range runs {
		choices := make([]byte, 20+random.IntN(150))
		for i := range choices {
			choices[i] = byte(random.Uint32())
		}
		g := generator{choices: choices}
		endings[l.compare(t, g.template())]++
		if t.Failed() {
			return
		}
	}
	if endings["documented"] > runs/3 || endings["text"] < runs/3 {
		t.Errorf("too many end early: %v", endings)
	}
	t.Log(endings)
}

// FuzzAgainstTextTemplate takes templates of the grammar, and texts as they are.
func FuzzAgainstTextTemplate(f *testing.F) {
	l := newLibrary(f)
	for _, text := range differentialSeeds {
		f.Add([]byte(text), false)
	}
	for of := range anOddity + 1 {
		f.Add([]byte{1, 2, 3, byte(of), 2, 8, 13, 4, byte(of), 1, 11, 17, 18, 19, 2, 6, 7}, true)
	}
	f.Fuzz(func(t *testing.T, choices []byte, grammar bool) {
		text := string(choices)
		if grammar {
			g := generator{choices: choices}
			text = g.template()
		}
		l.compare(t, text)
	})
}
