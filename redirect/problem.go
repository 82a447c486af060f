package redirect

import "fmt"

// Problem is a difference between the rules that should be in a kernel and those that are.
type Problem struct {
	Where string // the chain, the routing policy or the interface
	Rule  int    // counted from 1; 0: not about a rule
	What  string
}

func (p Problem) String() string {
	if p.Rule == 0 {
		return fmt.Sprintf("%s: %s", p.Where, p.What)
	}
	return fmt.Sprintf("%s: rule %d: %s", p.Where, p.Rule, p.What)
}

// Line is a rule as a dialect compares it (Key) and shows it (Text).
type Line struct{ Key, Text string }

// Compare says how the rules of a chain differ from those that should be there.
func Compare(chain string, want, got []Line) []Problem {
	from := 0
	for from < len(want) && from < len(got) && want[from].Key == got[from].Key {
		from++
	}
	tail := 0
	for tail < len(want)-from && tail < len(got)-from && want[len(want)-1-tail].Key == got[len(got)-1-tail].Key {
		tail++
	}
	missing, unexpected := subtract(want, got, from, tail), subtract(got, want, from, tail)
	var problems []Problem
	add := func(i int, format string, args ...any) {
		problems = append(problems, Problem{chain, i + 1, fmt.Sprintf(format, args...)})
	}
	if len(missing) == 0 && len(unexpected) == 0 {
		for i := from; i < len(want)-tail; i++ {
			if want[i].Key != got[i].Key {
				add(i, "out of order: want %s, found %s", want[i].Text, got[i].Text)
			}
		}
		return problems
	}
	for _, i := range missing {
		if len(want) == len(got) && len(unexpected) > 0 && unexpected[0] == i {
			add(i, "changed: want %s, found %s", want[i].Text, got[i].Text)
			unexpected = unexpected[1:]
			continue
		}
		add(i, "missing: %s", want[i].Text)
	}
	for _, i := range unexpected {
		add(i, "unexpected: %s", got[i].Text)
	}
	return problems
}

// subtract returns the places of the lines that stand in a but not, or less often, in b.
func subtract(a, b []Line, from, tail int) []int {
	count := map[string]int{}
	for _, l := range b[from : len(b)-tail] {
		count[l.Key]++
	}
	var places []int
	for i, l := range a[from : len(a)-tail] {
		if count[l.Key]--; count[l.Key] < 0 {
			places = append(places, from+i)
		}
	}
	return places
}
