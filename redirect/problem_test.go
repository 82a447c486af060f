package redirect

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// spelled has a line for each letter: "a" is the key of what is shown as "A".
func spelled(letters string) []Line {
	var list []Line
	for letter := range strings.SplitSeq(letters, "") {
		list = append(list, Line{Key: letter, Text: strings.ToUpper(letter)})
	}
	return list
}

func TestHowChainsDiffer(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, want, got string
		problems        []string
	}{
		{"nothing wanted, nothing there", "", "", nil},
		{"the same", "abc", "abc", nil},
		{"the same twice", "aa", "aa", nil},
		{"all are missing", "ab", "", []string{"1: missing: A", "2: missing: B"}},
		{"none is wanted", "", "ab", []string{"1: unexpected: A", "2: unexpected: B"}},
		{"the first is missing", "abc", "bc", []string{"1: missing: A"}},
		{"one between is missing", "abc", "ac", []string{"2: missing: B"}},
		{"the last is missing", "abc", "ab", []string{"3: missing: C"}},
		{"one more in front", "bc", "abc", []string{"1: unexpected: A"}},
		{"one more between", "ac", "abc", []string{"2: unexpected: B"}},
		{"one more behind", "ab", "abc", []string{"3: unexpected: C"}},
		{"once instead of twice", "aab", "ab", []string{"2: missing: A"}},
		{"twice instead of once", "ab", "aab", []string{"2: unexpected: A"}},
		{"alone, twice instead of once", "a", "aa", []string{"2: unexpected: A"}},
		{"alone, once instead of twice", "aa", "a", []string{"2: missing: A"}},
		{"one is another", "abc", "axc", []string{"2: changed: want B, found X"}},
		{"two are others", "abcd", "axyd",
			[]string{"2: changed: want B, found X", "3: changed: want C, found Y"}},
		{"all are others", "ab", "xy",
			[]string{"1: changed: want A, found X", "2: changed: want B, found Y"}},
		{"one for two", "abc", "xc",
			[]string{"1: missing: A", "2: missing: B", "1: unexpected: X"}},
		{"two for one", "ac", "xyc",
			[]string{"1: missing: A", "1: unexpected: X", "2: unexpected: Y"}},
		{"one is missing in front, one more behind", "abc", "bcx",
			[]string{"1: missing: A", "3: unexpected: X"}},
		{"one more in front, one is missing behind", "abc", "xab",
			[]string{"3: missing: C", "1: unexpected: X"}},
		{"two changed places", "ab", "ba",
			[]string{"1: out of order: want A, found B", "2: out of order: want B, found A"}},
		{"two changed places around a third", "abc", "cba", []string{
			"1: out of order: want A, found C", "3: out of order: want C, found A",
		}},
		{"two changed places among others", "xaby", "xbay", []string{
			"2: out of order: want A, found B", "3: out of order: want B, found A",
		}},
	} {
		var got []string
		for _, p := range Compare("nat A", spelled(row.want), spelled(row.got)) {
			got = append(got, strings.TrimPrefix(p.String(), "nat A: rule "))
		}
		if diff := cmp.Diff(row.problems, got); diff != "" {
			t.Errorf("%s: %q, found %q (-want +got):\n%s", row.name, row.want, row.got, diff)
		}
	}
}

func TestProblemsRead(t *testing.T) {
	t.Parallel()
	cause := errors.New("no such file")
	for got, want := range map[string]string{
		Problem{Where: "lo", What: "no address ::6"}.String(): "lo: no address ::6",
		Problem{Where: "nat A", Rule: 1,
			What: "missing: A"}.String(): "nat A: rule 1: missing: A",
		Lack{Feature: "lists of ports",
			Cause: cause}.String(): "no lists of ports: no such file",
		Lack{Feature: "marks", Module: "xt_mark", Cause: cause,
			Minor: true}.String(): "no marks (kernel module xt_mark): no such file",
	} {
		if got != want {
			t.Errorf("said as %q, want %q", got, want)
		}
	}
}
