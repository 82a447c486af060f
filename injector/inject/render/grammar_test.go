package render

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
)

// world is data with a value of each kind that the language treats in a way of its own.
type world struct {
	Embedded
	*Broken

	Text, Empty string
	Number      int
	Small       int8
	Unsigned    uint16
	Float       float64
	Truth       bool
	Named       label
	Pointer     *int
	Double      **int
	NilPointer  *int
	Any         any
	AnyText     any
	Inner       inner
	InnerP      *inner
	NilInner    *inner
	List        []string
	Nothing     []string
	Ints        []int
	Anys        []any
	Inners      []inner
	InnerPs     []*inner
	Array       [2]int
	Map         map[string]any
	NilMap      map[string]any
	MapP        *map[string]string
	Texts       map[string]string
	ByNumber    map[int]string
	ByUnsigned  map[uint8]string
	ByFloat     map[float64]string
	ByName      map[label]int
	Structs     map[string]inner

	Proxy     *mesh.ProxyConfig
	Seeds     any
	NoProxy   *mesh.ProxyConfig
	NoMessage *meshconfig.Tracing
	Meta      metav1.ObjectMeta
	Claim     *corev1.PersistentVolumeClaimTemplate
	Resources corev1.ResourceRequirements
	Duration  time.Duration
	Quantity  resource.Quantity
	Time      metav1.Time
	Stringer  fmt.Stringer
	NoText    fmt.Stringer

	hidden string
}

type (
	label    string
	inner    struct{ Name string }
	Embedded struct{ Promoted string }
	Broken   struct{ BehindNil string }
)

func (n label) String() string { return "<" + string(n) + ">" }

func newWorld() *world {
	seven := 7
	pointer := &seven
	texts := map[string]string{"a": "x", "b": "y"}
	proxy := &mesh.ProxyConfig{ProxyConfig: &meshconfig.ProxyConfig{
		ConfigPath: "/etc", Concurrency: wrapperspb.Int32(2),
		ClusterName: &meshconfig.ProxyConfig_ServiceCluster{ServiceCluster: "cluster"},
	}}
	return &world{
		Embedded: Embedded{"promoted"}, Text: "text", Number: 5, Small: -2, Unsigned: 3, Float: 2.5,
		Truth: true, Named: "name", Pointer: pointer, Double: &pointer, AnyText: "any",
		Inner: inner{"in"}, InnerP: &inner{"inp"}, List: []string{"c", "a", "b"}, Ints: []int{4, 0, 6},
		Anys: []any{1, "s", nil, []any{2}, map[string]any{"k": "v"}}, Inners: []inner{{"i1"}, {"i2"}},
		InnerPs: []*inner{{"p1"}, nil}, Array: [2]int{8, 9},
		Map: map[string]any{"text": "mt", "nil": nil, "map": map[string]any{"b": 2, "a": 1},
			"list": []any{"l", 1}, "number": 11, "Size": "key", "0": 0.5},
		MapP: &texts, Texts: texts, ByNumber: map[int]string{10: "ten", 2: "two", -1: "less"},
		ByUnsigned: map[uint8]string{1: "one", 200: "many"},
		ByFloat:    map[float64]string{1.5: "f", -2: "g"}, ByName: map[label]int{"n": 1, "m": 2},
		Structs: map[string]inner{"s": {"ins"}},
		Proxy:   proxy, Seeds: proxy.ForSeeds(),
		Meta: metav1.ObjectMeta{Name: "meta", Labels: map[string]string{"l": "v"}},
		Claim: &corev1.PersistentVolumeClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: "claim"}},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
			"cpu": resource.MustParse("100m")}},
		Duration: 90 * time.Nanosecond, Quantity: resource.MustParse("3"), Stringer: label("s"),
		hidden: "h",
	}
}

// kind is what an expression of the grammar yields, if it is well-formed.
type kind int

const (
	aText kind = iota
	aNumber
	aTruth
	aList
	aMap
	anInner
	anOddity // what is not set, what cannot be printed, and what is a mistake
)

// operands are expressions by what they yield. In them, %t %n %b %l %m %i are expressions of the
// kinds, and %o one of any kind. Of the data only what $ has is label, so that they mean the same
// wherever $ is that.
var operands = map[kind][]string{
	aText: {"`lit`", "$.Text", "$.Empty", "$.Promoted", "$.AnyText", "$.Named", "$.Stringer",
		"$.Texts.a", "$.Texts.none", "$.Map.text", "$.Map.Size", "$.Inner.Name", "$.InnerP.Name",
		"$.MapP.b", "$.Structs.s.Name", "$.Seeds.ConfigPath", "$.Proxy.ProxyConfig.ConfigPath",
		"$.Proxy.GetServiceCluster", "$.Proxy.ServiceCluster", "$.Seeds.ServiceCluster",
		"$.Proxy.ClusterName.ServiceCluster", "$.NoMessage.GetZipkin.GetAddress",
		"$.Proxy.GetTracing.GetZipkin.GetAddress", "$.Proxy.InterceptionMode.String",
		"$.Meta.GetName", "$.Claim.GetName", "$.Meta.GetLabels.l", "$.Meta.Labels.l",
		"$.Duration.String", "$.Named.String", "$.Quantity.String", "$.Resources.Limits.Cpu.String",
		"%i.Name", "(index $.Texts `b`)", "(index $.List 1)", "(index $.ByNumber %n)",
		"(index $.ByUnsigned 1)", "(index $.ByName `n`)", "(index $.Map `map` `a`)",
		"(index $.Anys 4 `k`)", "(index $.Texts $.Text)", "(printf `%%v-%%v` %t %n)",
		"(printf `%%d` 1)", "(print %t %n)", "(println %t)", "(%t | printf `%%s`)",
		"(%t | print %n | toLower)", "(toLower %t)", "(%t | upper | trim)", "(join `,` %l)",
		"(quote %t)", "(default %t %t)", "(ternary %t %t %b)", "(html %t)", "(js %t)",
		"(urlquery %t)", "(or %t %t)", "(and %t %t)", "(%t | and %b)", "(or %b %t)", "(toJson %o)",
		"(valueOrDefault %t %t)", "(annotation $.Meta `x` %t)", "(contains `a` %t)",
		"(strdict `a` %t).a", "(dict `a` %t).a", "(first %l)", "(kindOf %o)", "(typeOf %n)",
		"(toString %n)", "((%t))"},
	aNumber: {"1", "0", "-3", "0x1F", "-0x1e", "1e3", "1.5", "1_000", "'c'", "0b11", "+2", "1i",
		"0x1p2", "$.Number", "$.Small", "$.Unsigned", "$.Float", "$.Pointer", "$.Double",
		"$.Map.number", "$.Proxy.Concurrency.Value", "$.Proxy.GetConcurrency.GetValue",
		"$.Seeds.Concurrency", "$.NoMessage.GetSampling", "$.Duration.Seconds",
		"$.Duration.Milliseconds", "$.Duration.Minutes", "$.Duration.Hours", "$.Quantity.Value",
		"$.Quantity.MilliValue", "$.Resources.Limits.Cpu.MilliValue",
		"$.Resources.Requests.Memory.Value", "(index $.Ints 2)", "(index $.Array 1)",
		"(index $.Text 1)", "(index $.Ints $.Unsigned)", "(len %t)", "(len %l)", "(len %m)",
		"(add %n %n)", "(%n | add 1)", "(add)", "(int %n)", "(float64 %n)", "(addf 1 %n)", "(or %n %n)",
		"(max 1 %n)", "(atoi `5`)"},
	aTruth: {"true", "false", "$.Truth", "$.Time.IsZero", "$.Quantity.IsZero",
		"$.Meta.CreationTimestamp.IsZero", "(not %o)", "(eq %t %t)", "(eq %n %n 1)", "(ne %t `lit`)",
		"(lt %n %n)", "(le %t %t)", "(gt %n %n)", "(ge 1 %n)", "(%n | eq 1)", "(eq %o nil)",
		"(and %b %b)", "(or %b %b)", "(isset $.Map %t)", "(has %t %l)", "(hasPrefix `l` %t)",
		"(empty %o)", "(kindIs `string` %o)", "(and true (or false %b) (not %b))"},
	aList: {"$.List", "$.Nothing", "$.Ints", "$.Array", "$.Map.list", "(list %t %n)", "(until 3)",
		"(list)", "(index $.Anys 3)", "(splitList `,` %t)", "(keys $.Map)", "(concat %l %l)",
		"(reverse (list 1 %t))", "(or %l %l)", "(sortAlpha $.List)"},
	aMap: {"$.Map.map", "$.Texts", "$.NilMap", "$.MapP", "$.ByNumber", "$.ByUnsigned", "$.ByFloat",
		"$.ByName", "(dict `x` %t `y` %n)", "(strdict `b` %t `a` `c`)", "$.Meta.Labels",
		"$.Meta.GetLabels", "(fromJSON `{\"b\":1,\"a\":[null]}`)", "(set (dict `q` 1) %t %n)",
		"(omit $.Texts `a`)", "(mergeMaps $.Texts (strdict %t `z`))"},
	anInner: {"$.Inner", "$.InnerP", "(index $.Inners 1)", "(index $.InnerPs 0)", "$.Structs.s",
		"(first $.Inners)", "(or $.NilInner $.InnerP)"},
	anOddity: {"$.Any", "$.NilPointer", "$.Map.none", "$.Map.none.deeper", "$.Map.nil", "$.NilInner",
		"$.NoMessage", "$.NoMessage.GetZipkin", "$.NoMessage.GetTracer", "$.NoText", "$.Inners",
		"$.InnerPs", "$.Anys", "$.Proxy", "$.Proxy.ProxyMetadata", "$.Resources.Limits", "$.Duration",
		"$.Quantity", "$.Time", "$.Meta", "$.Claim", "$.Proxy.GetTracing", "$.Embedded", "$.Broken",
		"$.Resources.Limits.Pods", "$.ByName", "$.Structs", "(index $.InnerPs 1)", "$.NilMap.x",
		"$.NilMap.x.y", "(dict `a` nil)", "(list nil)", "$", ".",
		// mistakes
		"$.Nope", "$.hidden", "$.Text.Foo", "$.NilInner.Name", "$.Any.x", "$.NoProxy.ServiceCluster", "$.NoProxy.GetServiceCluster", "$.Map.nil.x",
		"$.BehindNil", "$.Inner.GetName", "$.Proxy.GetNope", "$.ByNumber.x", "$.Map.list.x",
		"$.NilInner.Nope", "$.NilPointer.X", "$.Number.X", "(index $.List 9)", "(index $.List -1)",
		"(index $.List 3)", "(index $.Text 4)", "(index $.List `a`)", "(index $.Texts 1)",
		"(index $.Any 1)", "(index nil 1)", "(index $.NilInner 1)", "(index 1 1)", "(index $.List nil)",
		"(index $.Texts nil)", "(index $.Anys 2 1)", "(index)", "(index $.List 1.5)", "(len 1)",
		"(len nil)", "(len $.Any)", "(len $.NilInner)", "(toLower 1)", "(toLower %n)", "(toLower nil)",
		"(toLower $.Any)", "(toLower $.NilPointer)", "(toLower)", "(toLower `a` `b`)", "(repeat %t %t)",
		"(repeat 1.5 `a`)", "(add 1 `a`)", "(annotation $.Proxy `a` 1)", "(annotation $.Meta)",
		"(annotation $.Claim.ObjectMeta `a` 1)", "(includeInboundPorts nil)", "(protoToJSON $.NoMessage)",
		"(protoToJSON 1)", "(protoToJSON $.Proxy)", "(protoToJSON $.Text)", "(nil)", "(nil | print)",
		"(1 2)", "($.Text 1)", "(%t | $.Text)", "($.Map.none.x 1)", "($.Inner.Name | $.Any)", "(. 1)",
		"(lt nil 1)", "(eq 1 `a`)", "(eq)", "(lt 1)", "(eq $.Inners $.Inners)", "(and)", "(or)", "(not)",
		"(not 1 2)", "(fail `no`)", "(div 1 0)", "(fromJSON `{`)", "(99999999999999999999.5 | print)",
		"9223372036854775808", "(1 | and)", "(0 | or)", "(print nil)", "(ternary 1 2 nil)",
		"(18446744073709551615 | print)", "(until 2.0)", "(until 'a')", "(addf 1i)", "(hasPrefix 1 2)",
		"(mergeMaps nil $.Texts)", "(mergeMaps $.Map)", "(formatDuration nil)", "(isset nil `a`)",
		"(deepEqual $.InnerP $.Inner)", "$.Inner.Name.String", "$.Number.String"},
}

// generator puts templates together. Its choices come from bytes; without any left it takes what
// comes first and ends.
type generator struct {
	choices   []byte
	variables []variableOf
	loops     int
	blocks    int // around
	defined   []string
}

type variableOf struct {
	name string
	kind kind
}

func (g *generator) pick(n int) int {
	if len(g.choices) == 0 {
		return 0
	}
	choice := int(g.choices[0])
	g.choices = g.choices[1:]
	return choice % n
}

// template is a whole text, with the templates that it calls.
func (g *generator) template() string {
	var b strings.Builder
	b.WriteString("{{ define `leaf` }}<{{ . | toJson }}{{ $ | kindOf }}>{{ end }}\n" +
		"{{ define `down` }}{{ . }}{{ if gt . 0 }}{{ template `down` (add . -1) }}{{ end }}{{ end }}")
	for i := range g.pick(3) {
		name := fmt.Sprintf("t%d", i)
		fmt.Fprintf(&b, "{{ define %q }}%s{{ end }}\n", name, g.list())
		g.defined = append(g.defined, name)
	}
	for range 4 {
		b.WriteString(g.list())
	}
	return b.String()
}

func (g *generator) list() string {
	outside := len(g.variables)
	if g.blocks == 0 {
		outside = 0
	}
	g.blocks++
	var b strings.Builder
	for range 1 + g.pick(4) {
		b.WriteString(g.statement())
	}
	g.blocks--
	if g.blocks > 0 {
		g.variables = g.variables[:outside]
	}
	if g.blocks == 0 {
		g.variables = nil
	}
	return b.String()
}

func (g *generator) statement() string {
	left, right := "{{ ", " }}"
	switch g.pick(8) {
	case 1:
		left = "{{- "
	case 2:
		right = " -}}"
	}
	in := func(format string, args ...any) string {
		return left + fmt.Sprintf(format, args...) + right
	}
	choice := g.pick(20)
	if g.blocks > 5 && choice >= 8 {
		choice %= 8
	}
	switch choice {
	case 0:
		return []string{"text", " \n ", "\n"}[g.pick(3)]
	case 1, 2:
		return in("%s", g.expression(aText))
	case 3:
		return in("%s", g.expression(kind(g.pick(5))))
	case 4:
		return in("%s | %s", g.expression(aText), []string{"quote", "print 1", "len", "upper | lower",
			"printf `%v`", "index $.Texts", "eq `lit`", "list", "or nil", "and 1", "not"}[g.pick(11)])
	case 5, 6:
		v := variableOf{fmt.Sprintf("$v%d", g.pick(3)), kind(g.pick(6))}
		text := in("%s := %s", v.name, g.expression(v.kind))
		g.variables = append(g.variables, v)
		return text
	case 7:
		if len(g.variables) == 0 {
			return "/* none */"
		}
		v := g.variables[g.pick(len(g.variables))]
		return in("%s = %s", v.name, g.expression(v.kind))
	case 8, 9, 10:
		return g.condition("if", in)
	case 11, 12:
		return g.condition("with", in)
	case 13, 14, 15, 16:
		return g.rangeOver(in)
	case 17:
		calls := []string{"`leaf` " + g.expression(kind(g.pick(7))), "`leaf`", "`down` 3"}
		for _, name := range g.defined {
			calls = append(calls, fmt.Sprintf("%q $", name))
		}
		return in("template %s", calls[g.pick(len(calls))])
	case 18:
		if g.loops == 0 {
			return "{{/* no loop */}}"
		}
		return in("if %s", g.expression(aTruth)) + in("%s", []string{"break", "continue"}[g.pick(2)]) +
			in("end")
	default:
		name := fmt.Sprintf("b%d", len(g.choices))
		outside, loops := g.variables, g.loops
		g.variables, g.loops = nil, 0
		body := g.list()
		g.variables, g.loops = outside, loops
		return in("block %q $", name) + body + in("end")
	}
}

func (g *generator) condition(word string, in func(string, ...any) string) string {
	outside := len(g.variables)
	text := in("%s %s", word, g.declaring())
	text += g.list()
	switch g.pick(4) {
	case 1:
		text += in("else") + g.list()
	case 2:
		text += in("else %s %s", word, g.declaring()) + g.list()
	case 3:
		text += in("else %s %s", word, g.declaring()) + g.list() + in("else") + g.list()
	}
	g.variables = g.variables[:outside]
	return text + in("end")
}

// declaring is an expression, with a variable that it goes to or without.
func (g *generator) declaring() string {
	v := variableOf{"$w", kind(g.pick(7))}
	text := g.expression(v.kind)
	if g.pick(3) != 1 {
		return text
	}
	g.variables = append(g.variables, v)
	return v.name + " := " + text
}

func (g *generator) rangeOver(in func(string, ...any) string) string {
	outside := len(g.variables)
	over := g.expression([]kind{aList, aMap, aNumber, aList, aMap, anOddity}[g.pick(6)])
	if strings.Contains(over, "1e3") || strings.Contains(over, "1_000") ||
		strings.Contains(over, "0000") {
		over = "2"
	}
	names, assigns := "", ":="
	switch g.pick(5) {
	case 1:
		names = "$i"
	case 2, 3:
		names = "$i, $j"
	case 4:
		if len(g.variables) > 0 {
			names, assigns = g.variables[g.pick(len(g.variables))].name, "="
		}
	}
	text := in("range %s", over)
	if names != "" {
		text = in("range %s %s %s", names, assigns, over)
	}
	if assigns == ":=" && names != "" {
		for name := range strings.SplitSeq(names, ", ") {
			g.variables = append(g.variables, variableOf{name, anOddity})
		}
	}
	g.loops++
	text += "(" + g.list() + []string{"", in(". | kindOf"), in("toJson .")}[g.pick(3)] + ")"
	g.loops--
	if g.pick(3) == 1 {
		text += in("else") + g.list()
	}
	g.variables = g.variables[:outside]
	return text + in("end")
}

// expression is one of a kind, or now and then of another.
func (g *generator) expression(of kind) string {
	switch g.pick(40) {
	case 1:
		of = anOddity
	case 2:
		of = kind(g.pick(7))
	case 3, 4, 5, 6, 7, 8, 9, 10:
		for _, v := range slices.Backward(g.variables) {
			if v.kind == of {
				return v.name
			}
		}
	}
	list := operands[of]
	text := list[g.pick(len(list))]
	if len(g.choices) == 0 {
		text = list[0]
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		i++
		of := strings.IndexByte("tnblmio", text[i])
		switch text[i] {
		case '%':
			b.WriteByte('%')
		case 'o':
			b.WriteString(g.expression(kind(g.pick(7))))
		default:
			b.WriteString(g.expression(kind(of)))
		}
	}
	return b.String()
}
