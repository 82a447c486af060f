package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// In the packages that everything meets in, a word is a type, or a method, or a field, and no struct
// has the fields of another for its own: whoever reads a name knows what it is, and where it is
// from.
func TestAWordIsOneThing(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", "reconcile"} {
		types, others := map[string]bool{}, map[string]token.Position{}
		files := token.NewFileSet()
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(paths) < 5 {
			t.Fatalf("%s: %d files, %v", dir, len(paths), err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file, err := parser.ParseFile(files, path, data, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					types[strings.ToLower(n.Name.Name)] = true
				case *ast.FuncDecl:
					if n.Recv != nil {
						others[strings.ToLower(n.Name.Name)] = files.Position(n.Pos())
					}
				case *ast.StructType:
					for _, field := range n.Fields.List {
						if len(field.Names) == 0 {
							t.Errorf("%s: a struct embeds another type", files.Position(field.Pos()))
						}
						for _, name := range field.Names {
							others[strings.ToLower(name.Name)] = files.Position(name.Pos())
						}
					}
				}
				return true
			})
		}
		for word, at := range others {
			if types[word] {
				t.Errorf("%s: %s is a type of the package, too", at, word)
			}
		}
	}
}
