package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/sprig/v3"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
)

// Function is what a template can call.
type Function struct {
	Name  string // as templates write it
	Usage string // the arguments; empty for sprig's, which has documentation of its own
	About string // one sentence
}

// function is a Function and what it does.
type function struct {
	doc   Function
	value any // a function of Go

	// cost is the work of a call beyond looking at the arguments and the result, or the reason why
	// there is too much of it. It is asked before the call. nil: none.
	cost func(args arguments) (int, error)

	// printsText means that arguments of any type become text as Go prints them.
	printsText bool
}

// istioFunctions are Istio's, of all its versions. The language page is made from them. Where sprig
// has a function of the same name it is hidden, as it is in Istio.
var istioFunctions = []function{
	{doc: Function{"annotation", "META NAME DEFAULT",
		"the annotation NAME of the object META; DEFAULT if it has none"},
		value: annotation, printsText: true},
	{doc: Function{"isset", "MAP KEY", "whether MAP has KEY, be it with an empty value"},
		value: isset},
	{doc: Function{"valueOrDefault", "VALUE DEFAULT",
		"VALUE; DEFAULT if VALUE is empty text or not set"},
		value: valueOrDefault},
	{doc: Function{"includeInboundPorts", "CONTAINERS",
		"the TCP ports of the containers, with commas between; without those of istio-proxy"},
		value: containerPorts, cost: costOfPorts},
	{doc: Function{"applicationPorts", "CONTAINERS", "the same as includeInboundPorts"},
		value: containerPorts, cost: costOfPorts},
	{doc: Function{"excludeInboundPort", "PORT LIST",
		"LIST with PORT at its end; LIST itself if PORT is in it, is empty or is 0"},
		value: excludeInboundPort, printsText: true},
	{doc: Function{"kubevirtInterfaces", "LIST", "LIST as it is"}, value: same},
	{doc: Function{"excludeInterfaces", "LIST", "LIST as it is"}, value: same},
	{doc: Function{"appendMultusNetwork", "NETWORKS NETWORK",
		"the annotation NETWORKS, a list or JSON, with NETWORK at its end, if it is not in it"},
		value: appendMultusNetwork},
	{doc: Function{"formatDuration", "DURATION", "the text of a duration, such as 1m0s"},
		value: formatDuration},
	{doc: Function{"env", "NAME DEFAULT",
		"what the setting environment has for NAME; DEFAULT if it has nothing. " +
			"The environment of the process cannot be read"},
		value: environmentOf(nil)},
	{doc: Function{"directory", "PATH", "PATH up to its last slash"}, value: directory},
	{doc: Function{"contains", "NEEDLE TEXT", "whether NEEDLE is in TEXT"}, value: contains},
	{doc: Function{"toLower", "TEXT", "TEXT in lower case"}, value: strings.ToLower},
	{doc: Function{"indent", "SPACES TEXT",
		"TEXT with SPACES in front of each line but the first; sprig's nindent indents all"},
		value: indent, cost: costOfIndent},
	{doc: Function{"toJSON", "MAP", "MAP as JSON; {} if it is not set"},
		value: toJSON, cost: fixed(jsonWork)},
	{doc: Function{"toJson", "VALUE", "VALUE as JSON; {} for a map that is not set"},
		value: toJSON, cost: fixed(jsonWork)},
	{doc: Function{"structToJSON", "VALUE", "VALUE as JSON; {} if it is not set"},
		value: structToJSON, cost: fixed(jsonWork)},
	{doc: Function{"protoToJSON", "MESSAGE",
		"a configuration of the mesh or the proxy as JSON, of the proxy without its defaults"},
		value: protoToJSON(nil), cost: fixed(yamlWork)},
	{doc: Function{"toJsonMap", "MAP...", "the merged maps as JSON"}, value: toJSONMap},
	{doc: Function{"fromJSON", "TEXT", "the value that TEXT is the JSON of"}, value: fromJSON},
	{doc: Function{"toYaml", "VALUE", "VALUE as YAML"}, value: toYAML, cost: fixed(yamlWork)},
	{doc: Function{"strdict", "KEY VALUE...", "a map of text to text"}, value: strdict},
	{doc: Function{"mergeMaps", "MAP...", "one map of all, of which later ones win"},
		value: mergeMaps},
	{doc: Function{"omit", "MAP KEY...", "MAP without the keys"}, value: omit},
	{doc: Function{"omitNil", "VALUE",
		"VALUE without what is null in it, and without what has nothing else in it"},
		value: omitNil},
	{doc: Function{"otelResourceAttributes", "MESHCONFIG ANNOTATIONS LABELS NAMESPACE CONTAINERS",
		"the value of OTEL_RESOURCE_ATTRIBUTES, if a provider of the mesh asks for it; else empty"},
		value: otelResourceAttributes},
}

// ownFunctions stand in for functions of text/template and sprig that a bound or the same answer
// twice would not hold for.
var ownFunctions = []function{
	{doc: Function{Name: "print"}, value: fmt.Sprint, printsText: true},
	{doc: Function{Name: "println"}, value: fmt.Sprintln, printsText: true},
	{doc: Function{Name: "printf"}, value: fmt.Sprintf, cost: costOfPrintf, printsText: true},
	{doc: Function{Name: "html"}, value: escapeHTML, printsText: true},
	{doc: Function{Name: "js"}, value: escapeJS, printsText: true},
	{doc: Function{Name: "urlquery"}, value: escapeQuery, printsText: true},
	{doc: Function{Name: "keys"}, value: keys},
	{doc: Function{Name: "values"}, value: values},
	{doc: Function{Name: "sortAlpha"}, value: sortAlpha, cost: costOfTexts},
}

// functionSet is functions by their names.
type functionSet map[string]function

// functionsFor returns all functions of a template.
func functionsFor(environment map[string]string) (functionSet, error) {
	set := functionSet{}
	all := sprig.TxtFuncMap()
	for _, name := range sprigFunctions {
		value, ok := all[name]
		if !ok {
			return nil, fmt.Errorf("sprig has no function %q", name)
		}
		set[name] = function{doc: Function{Name: name}, value: value, cost: sprigCosts[name],
			printsText: slices.Contains(sprigPrints, name)}
	}
	for _, f := range slices.Concat(ownFunctions, istioFunctions) {
		set[f.doc.Name] = f
	}
	defaults, err := mesh.Parse(nil)
	if err != nil {
		return nil, fmt.Errorf("read the mesh's defaults: %w", err)
	}
	set.replace("env", environmentOf(environment))
	set.replace("protoToJSON", protoToJSON(defaults.DefaultConfig.ProxyConfig))
	return set, nil
}

func (s functionSet) replace(name string, value any) {
	f := s[name]
	f.value = value
	s[name] = f
}

// names are what the parser has to know.
func (s functionSet) names() map[string]any {
	names := map[string]any{}
	for _, name := range languageFunctions() {
		names[name] = true
	}
	for name := range s {
		names[name] = true
	}
	return names
}

// only returns those of some names.
func (s functionSet) only(names map[string]bool) functionSet {
	rest := functionSet{}
	for name := range names {
		if f, ok := s[name]; ok {
			rest[name] = f
		}
	}
	return rest
}

// languageFunctions are those of the language itself.
func languageFunctions() []string { return append(sortedKeys(builtins), "and", "or") }

// Functions returns what templates can call, Istio's functions first; those of sprig and
// text/template have a name only.
func Functions() []Function {
	var list []Function
	known := map[string]bool{}
	for _, f := range istioFunctions {
		list = append(list, f.doc)
		known[f.doc.Name] = true
	}
	var rest []string
	for _, f := range ownFunctions {
		rest = append(rest, f.doc.Name)
	}
	rest = append(slices.Concat(rest, languageFunctions()), sprigFunctions...)
	slices.Sort(rest)
	for _, name := range slices.Compact(rest) {
		if !known[name] {
			list = append(list, Function{Name: name})
		}
	}
	return list
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
