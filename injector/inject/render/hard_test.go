package render

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/Masterminds/sprig/v3"
)

// Each of these is small and was cheap, and took seconds, gigabytes or for ever.
func TestCheapTemplatesThatWereDear(t *testing.T) {
	t.Parallel()
	const (
		steps  = "runs too long (over 1048576 steps): shorten what it ranges over"
		items  = "takes or yields over 100000 items: shorten the list"
		bytes  = "takes or yields over 1048576 bytes: shorten the text"
		format = "function printf: would yield over 1048576 bytes: shorten the format"
	)
	twice := func(n int, line string) string { return strings.Repeat(line, n) }
	often := func(expression string) string {
		return "{{ range $i := 20000 }}{{ $x := " + expression + " }}{{ end }}"
	}
	tests := []struct {
		name, text, want string
	}{
		{"lists of the empty list", "{{ $x := list }}" + twice(90, "{{ $x = list $x $x }}"),
			"function list: " + items},
		{"lists of the empty map", "{{ $x := dict }}" + twice(90, "{{ $x = list $x $x }}"),
			"function list: " + items},
		{"a list that grows from within", "{{ $d := dict }}{{ $l := list" + twice(100, " $d") +
			" }}{{ $_ := set $d `k` (repeat 1000000 `x`) }}{{ $l }}", "$l: " + bytes},
		{"maps of maps", "{{ $a := dict }}{{ $top := $a }}" + twice(18, "{{ $b := dict }}"+
			"{{ $_ := set $a `x` $b }}{{ $_ := set $a `y` $b }}{{ $a = $b }}") + "{{ $top }}",
			"$top: " + items},
		{"a wide list", "{{ printf `%1000000d` (until 200) }}", format},
		{"a list as wide as an argument", "{{ printf `%*d` 1000000 (until 200) }}", format},
		{"a precise list", "{{ printf `%.1000000f` (list 1.5 1.5 1.5 1.5 1.5 1.5 1.5) }}", format},
		{"all matches", "{{ $x := regexFindAll `a.*b|a` (repeat 20000 `a`) -1 }}", steps},
		{"all parts", "{{ $x := regexSplit `a.*b|a` (repeat 20000 `a`) -1 }}", steps},
		{"all replaced", "{{ $x := regexReplaceAll `a.*?b|a` (repeat 20000 `a`) `` }}", steps},
		{"classes", often("regexMatch `[" + twice(50, `\pL`) + "]` `a`"), steps},
		{"decimals", often("mulf 1.5" + twice(50, " 1.5")), steps},
		{"constraints", often("semverCompare `" + twice(50, "1||") + "1` `2.0.0`"), steps},
		{"sorting a large text", "{{ $l := list (repeat 900000 `x`) }}" + often("sortAlpha $l"),
			steps},
		{"a large cutset", "{{ trimAll (repeat 100000 `é`) (repeat 100000 `a`) }}", steps},
		{"a large cutset by the old name",
			"{{ trimall (print (repeat 100000 `é`) `a`) (repeat 300000 `a`) }}", steps},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, err := execute(t, test.text, Today, sample(t))
			want := `template "sidecar", line 1: ` + test.want
			if err == nil || err.Error() != want {
				t.Errorf("got %d bytes, %v\nwant %s", len(out), err, want)
			}
		})
	}
}

// Functions of sprig that do the same work, under two names, cost the same. Some are one function
// of Go, and some are two whose names differ by case or by a must.
func TestFunctionsThatAreEqualCostTheSame(t *testing.T) {
	t.Parallel()
	all := sprig.TxtFuncMap()
	codes, names := map[uintptr]string{}, map[string]string{}
	for _, name := range sprigFunctions {
		code := reflect.ValueOf(all[name]).Pointer()
		plain := strings.ToLower(strings.TrimPrefix(name, "must"))
		for _, other := range []string{codes[code], names[plain]} {
			if other != "" && costOf(name) != costOf(other) {
				t.Errorf("%s and %s are equal and their costs are not", name, other)
			}
		}
		codes[code], names[plain] = name, name
	}
}

func costOf(name string) uintptr { return reflect.ValueOf(sprigCosts[name]).Pointer() }

// What people write stays within the bounds.
func TestUsualTextsAreFarFromTheBounds(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{{ regexReplaceAll `[^a-z0-9-]+` (repeat 100 `Some.Name/of_a `) `-` }}",
		"{{ range 20 }}{{ $x := regexFindAll `[a-z]+=[^,]*` (repeat 20 `key=value,`) -1 }}{{ end }}",
		"{{ range 100 }}{{ $x := printf `%-20s %08.3f %v` `name` 1.5 (until 20) }}{{ end }}",
		"{{ range 100 }}{{ $x := semverCompare `>=1.18 <2 || ^3.1` `1.28.0` }}{{ end }}",
	} {
		if got := workOf(t, text); got > maxWork/4 {
			t.Errorf("%s: %d steps of %d", text, got, maxWork)
		}
	}
}

func TestManyMistakesAreCounted(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("x", 1000)
	_, err := Parse("sidecar", strings.Repeat("{{ template `"+name+"` }}\n", 100), Today, nil)
	if err == nil {
		t.Fatal("there is no mistake")
	}
	lines := strings.Split(err.Error(), "\n")
	if last := fmt.Sprintf(`template "sidecar": and %d mistakes more`, 100-maxMistakes); len(lines) != maxMistakes+1 || lines[maxMistakes] != last {
		t.Errorf("got %d lines, the last one is %q, want %q", len(lines), lines[len(lines)-1], last)
	}
	for _, line := range lines {
		if len(line) > maxTold+100 {
			t.Errorf("a mistake has %d bytes", len(line))
		}
	}
}
