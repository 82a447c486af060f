package inject_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/render"
)

//go:generate go test . -run TestReference -update

const (
	page      = "../../docs/inject.md"
	pageBegin = "<!-- From here to the next such line written by `make generate`, from the tables in injector/inject. -->\n"
	pageEnd   = "<!-- Until here. -->\n"
)

// TestReference compares the page's part about configuration and templates with the tables that
// also read them.
func TestReference(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(data), pageBegin)
	have, tail, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		t.Fatalf("%s has no part between %q and %q", page, pageBegin, pageEnd)
	}
	want := reference()
	if *update {
		text := head + pageBegin + want + pageEnd + tail
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s is not what the tables say; run make generate (-want +have):\n%s", page, diff)
	}
}

// reference is in Markdown.
func reference() string {
	var b strings.Builder
	b.WriteString("\n## Configuration\n\nKeys of the document `config`, as in the ConfigMap " +
		"istio-sidecar-injector; those under `sidecarCNI` are ours.\n\n| key | what it does |\n|---|---|\n")
	for _, k := range config.Keys() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", k.Name, cell(k.About))
	}
	b.WriteString("\n## The language of templates\n\nThat of Go's " +
		"[text/template](https://pkg.go.dev/text/template), with this data and these functions. No " +
		"template sees\nthe process's environment, a file, the clock or chance.\n\n" +
		"| data | what it is |\n|---|---|\n")
	for _, f := range render.Fields() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", f.Name, cell(f.About))
	}
	b.WriteString("\n| function | what it does |\n|---|---|\n")
	var others []string
	for _, f := range render.Functions() {
		if f.Usage == "" {
			others = append(others, "`"+f.Name+"`")
			continue
		}
		fmt.Fprintf(&b, "| `%s %s` | %s |\n", f.Name, cell(f.Usage), cell(f.About))
	}
	b.WriteString("\nAnd of text/template and [sprig](https://masterminds.github.io/sprig/): " +
		wrap(strings.Join(others, ", ")) + ".\n\n")
	return b.String()
}

// cell escapes what would end a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// wrap breaks a line at blanks.
func wrap(text string) string {
	const width = 130
	var b strings.Builder
	length := 0
	for word := range strings.FieldsSeq(text) {
		if length > 0 && length+len(word) > width {
			b.WriteByte('\n')
			length = 0
		} else if length > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
		length += len(word) + 1
	}
	return b.String()
}
