package foreign_test

import (
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

func TestNamesAndLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	for _, row := range []struct{ what, text, name, line string }{
		{"as it is", "shop/web-0", "shop/web-0", "shop/web-0"},
		{"other letters", "größe", "größe", "größe"},
		{"a control character", "a\x1b[2J", `"a\x1b[2J"`, "a\ufffd[2J"},
		{"lines", "a\n\tb", `"a\n\tb"`, "a b"},
		{"no text", "a\xff", `"a\xff"`, "a\ufffd"},
		{"long", long, long[:400] + "...", long[:300] + "..."},
	} {
		if got := foreign.Name(row.text); got != row.name {
			t.Errorf("%s: name %q, want %q", row.what, got, row.name)
		}
		if got := foreign.Line(row.text); got != row.line {
			t.Errorf("%s: line %q, want %q", row.what, got, row.line)
		}
	}
}
