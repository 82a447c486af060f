package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// root is where the paths in the messages start.
const root = "../.."

// A struct that other packages see says at each of its exported fields what they must know: in a
// comment above the field or behind it, or in one above the first field of its group. A group ends
// at a blank line.
func TestEachExportedFieldHasAComment(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	packages := sources(t, files, root)
	if len(packages) < 15 {
		t.Fatalf("%d folders read, want at least 15: is the tree still at %s?", len(packages), root)
	}
	for dir, parsed := range packages {
		if dir == "test" || strings.HasPrefix(dir, "test/") {
			continue
		}
		for _, file := range parsed {
			if file.Name.Name == "main" {
				continue
			}
			for name, fields := range exportedStructs(file) {
				for _, field := range uncommented(files, fields) {
					t.Errorf("%s: %s.%s has no comment", position(files, field), name, field.Name)
				}
			}
		}
	}
}

// What TestEachExportedFieldHasAComment takes for a comment.
func TestAGroupOfFieldsMayShareAComment(t *testing.T) {
	t.Parallel()
	const source = `package p

type T struct {
	// Above a field.
	Above int

	Behind int // Behind a field.

	// Above the first of a group, for all of them.
	First, Second int
	Third         int

	hidden int

	AfterHidden int

	Plain  int
	Marked int // Covers one field.
	// Covers one field, too: it is not above the first of the group.
	Documented int
	Last       int

	// Above a struct: covers the field, not those inside.
	Inner struct {
		Deep int
	}
}

type hidden struct{ Field int }
`
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	structs := exportedStructs(file)
	if len(structs) != 1 {
		t.Errorf("%d exported structs found, want T alone", len(structs))
	}
	var got []string
	for _, field := range uncommented(files, structs["T"]) {
		got = append(got, field.Name)
	}
	const want = "AfterHidden Plain Last Deep"
	if strings.Join(got, " ") != want {
		t.Errorf("without a comment: %s; want %s", strings.Join(got, " "), want)
	}
}

// In the packages that everything meets in, a word is a type, or a method, or a field, and no
// struct has the fields of another for its own: whoever reads a name knows what it is, and where it
// is from.
func TestAWordIsOneThing(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	packages := sources(t, files, filepath.Join(root, "installer"))
	for _, dir := range []string{"installer", "installer/reconcile"} {
		if len(packages[dir]) < 5 {
			t.Fatalf("%s: %d files read, want at least 5", dir, len(packages[dir]))
		}
		types, others := map[string]bool{}, map[string]*ast.Ident{}
		for _, file := range packages[dir] {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					types[strings.ToLower(n.Name.Name)] = true
				case *ast.FuncDecl:
					if n.Recv != nil {
						others[strings.ToLower(n.Name.Name)] = n.Name
					}
				case *ast.StructType:
					for _, field := range n.Fields.List {
						if len(field.Names) == 0 {
							t.Errorf("%s: a struct embeds another type", position(files, field))
						}
						for _, name := range field.Names {
							others[strings.ToLower(name.Name)] = name
						}
					}
				}
				return true
			})
		}
		for word, name := range others {
			if types[word] {
				t.Errorf("%s: %s is a type of the package, too", position(files, name), name.Name)
			}
		}
	}
}

// sources reads the Go files under dir, tests excepted, by their folder as seen from root.
func sources(t *testing.T, files *token.FileSet, dir string) map[string][]*ast.File {
	t.Helper()
	read := map[string][]*ast.File{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "testdata" || name == ".git") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		const mode = parser.ParseComments | parser.SkipObjectResolution
		file, err := parser.ParseFile(files, path, nil, mode)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		read[filepath.ToSlash(folder)] = append(read[filepath.ToSlash(folder)], file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// exportedStructs returns the fields of the exported struct types of a file by the type's name.
func exportedStructs(file *ast.File) map[string]*ast.FieldList {
	found := map[string]*ast.FieldList{}
	for _, declared := range file.Decls {
		group, ok := declared.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range group.Specs {
			named, ok := spec.(*ast.TypeSpec)
			if !ok || !named.Name.IsExported() {
				continue
			}
			if body, ok := named.Type.(*ast.StructType); ok {
				found[named.Name.Name] = body.Fields
			}
		}
	}
	return found
}

// uncommented returns the exported names among fields that no comment covers, those of structs
// declared inside them included.
func uncommented(files *token.FileSet, fields *ast.FieldList) []*ast.Ident {
	var missing []*ast.Ident
	shared, end := false, 0 // whether the group has a comment, and the line its last field ends at
	for _, field := range fields.List {
		start := field.Pos()
		if field.Doc != nil {
			start = field.Doc.Pos()
		}
		if files.Position(start).Line != end+1 {
			shared = field.Doc != nil
		}
		end = files.Position(field.End()).Line
		if field.Doc == nil && field.Comment == nil && !shared {
			missing = append(missing, exportedNames(field)...)
		}
		ast.Inspect(field.Type, func(n ast.Node) bool {
			inner, ok := n.(*ast.StructType)
			if ok {
				missing = append(missing, uncommented(files, inner.Fields)...)
			}
			return !ok
		})
	}
	return missing
}

// exportedNames returns what a field declares for other packages; an embedded type is a field with
// its own name.
func exportedNames(field *ast.Field) []*ast.Ident {
	names := field.Names
	if len(names) == 0 {
		names = []*ast.Ident{embedded(field.Type)}
	}
	var exported []*ast.Ident
	for _, name := range names {
		if name.IsExported() {
			exported = append(exported, name)
		}
	}
	return exported
}

func embedded(of ast.Expr) *ast.Ident {
	switch of := of.(type) {
	case *ast.StarExpr:
		return embedded(of.X)
	case *ast.SelectorExpr:
		return of.Sel
	case *ast.IndexExpr:
		return embedded(of.X)
	case *ast.Ident:
		return of
	}
	return ast.NewIdent("_")
}

func position(files *token.FileSet, of ast.Node) string {
	at := files.Position(of.Pos())
	if path, err := filepath.Rel(root, at.Filename); err == nil {
		at.Filename = filepath.ToSlash(path)
	}
	at.Column = 0
	return at.String()
}
