package protocol_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
)

// What the page says of the paths. Its examples are spoken in the tests of both sides.
func TestPathsAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/agent-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n## GET " + protocol.PathPod + "?uid={uid}\n",
		"\n## POST " + protocol.PathOutcomes + "\n",
		"\n## GET " + protocol.PathHealth + "\n",
		protocol.PodPath("shop", "web-0", "5d1c5f0e-7b0c-4d63-9a54-0c1d5a0f3b11") + "'\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if got, want := protocol.PodPath("a b", "c/d", "e&f"),
		"/v2/pods/a%20b/c%2Fd?uid=e%26f"; got != want {
		t.Errorf("path %s, want %s", got, want)
	}
}

// A source that is missing in the list would be counted as another one.
func TestSourcesAreAllOfThem(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "protocol.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "Source") {
			declared = append(declared, strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`))
		}
		return true
	})
	if diff := cmp.Diff(declared, protocol.Sources()); diff != "" {
		t.Errorf("sources (-declared +listed):\n%s", diff)
	}
}
