package chain

import (
	"fmt"
	"slices"
	"strings"
)

// Diff shows the steps as a unified diff of each file that they touch.
func (p Plan) Diff(d Dir) string {
	var b strings.Builder
	t := d.tree()
	for _, s := range p.Steps {
		switch s.Op {
		case Write:
			b.WriteString(unified(t[s.Name], File{Name: s.Name, Data: s.Data}))
		case Remove:
			b.WriteString(unified(t[s.Name], File{}))
		case Rename:
			fmt.Fprintf(&b, "rename from %s\nrename to %s\n", s.Name, s.To)
		case MakeDir, RemoveDir:
			fmt.Fprintf(&b, "%s %s\n", s.Op, s.Name)
		}
		t = t.dir().After(s).tree()
	}
	return b.String()
}

// unified shows all between the first and the last line that differ as one change: ours is in one
// place.
func unified(from, to File) string {
	const context = 3
	a, b := lines(from.Data), lines(to.Data)
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	start := max(head-context, 0)
	after := min(tail, context)
	endA, endB := len(a)-tail+after, len(b)-tail+after
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n@@ -%s +%s @@\n", label(from), label(to), hunk(start, endA),
		hunk(start, endB))
	write(&out, " ", a[start:head])
	write(&out, "-", a[head:len(a)-tail])
	write(&out, "+", b[head:len(b)-tail])
	write(&out, " ", a[len(a)-tail:endA])
	return out.String()
}

func lines(data []byte) []string { return slices.Collect(strings.Lines(string(data))) }

func label(f File) string {
	if f.Name == "" {
		return "/dev/null"
	}
	return f.Name
}

// hunk counts from 1, but from 0 where there is no line.
func hunk(start, end int) string {
	count := end - start
	if count > 0 {
		start++
	}
	return fmt.Sprintf("%d,%d", start, count)
}

func write(b *strings.Builder, sign string, lines []string) {
	for _, line := range lines {
		b.WriteString(sign + line)
		if !strings.HasSuffix(line, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
