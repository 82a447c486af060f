package main

import (
	"encoding"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/cluster"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/node"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verify"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/watch"
)

// answers has what each command writes with -o json: its type; nil is text only.
// The fields' comments in the code say what they mean.
var answers = map[string]any{
	"explain": explanations{},
	"trace":   ways{},
	"rules":   listings{},
	"compare": comparison{},
	"verify":  verify.Answers{},
	"watch":   watch.Event{},
	"node":    node.Report{},
	"cluster": cluster.Report{},
	"init":    nil,

	"inject":   nil,
	"strip":    nil,
	"uninject": nil,
}

const schemaPage = "../docs/sidecarctl-json.md"

const schemaHead = `# What sidecarctl writes for programs

<!-- Written by ` + "`make generate`" + ` from the answers' types in sidecarctl/. -->

` + "`-o json` and `-o yaml`" + ` have the same fields. A field that is marked optional is left out where it has nothing to say. New fields may
come in a later version; none is renamed or gets another meaning. [sidecarctl.md](sidecarctl.md) has examples.
`

// TestSchema compares the page with the types.
func TestSchema(t *testing.T) {
	t.Parallel()
	page := schemaHead
	for _, c := range (env{}).commands() {
		if c.Hidden {
			continue
		}
		answer, ok := answers[c.Name()]
		if !ok {
			t.Errorf("%s: its answer is not in the table of this test", c.Name())
			continue
		}
		if answer == nil {
			page += "\n## " + c.Name() + "\n\nIt writes text only.\n"
			continue
		}
		s := schema{comments: map[string]map[string]string{}}
		text := s.describe(t, reflect.TypeOf(answer))
		if c.Name() == "watch" {
			text = strings.Replace(text, "An object:", "An object a line, one for each event:", 1)
		}
		page += "\n## " + c.Name() + "\n\n" + text
	}
	if *update {
		if err := os.WriteFile(schemaPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(schemaPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page, string(have)); diff != "" {
		t.Errorf("%s is not what the types say; run make generate (-want +got):\n%s", schemaPage, diff)
	}
}

// schema reads types and their comments.
type schema struct {
	comments map[string]map[string]string // by package, then by TYPE.FIELD
	rows     []string
}

// describe returns the table of an answer.
func (s *schema) describe(t *testing.T, answer reflect.Type) string {
	t.Helper()
	what := "An object:"
	if answer.Kind() == reflect.Slice {
		what, answer = "A list, of which each member has:", answer.Elem()
	}
	s.fields(t, answer, "")
	return what + "\n\n| field | type | what it says |\n|---|---|---|\n" + strings.Join(s.rows, "")
}

// fields adds the rows of a struct, whose own are behind a prefix.
func (s *schema) fields(t *testing.T, of reflect.Type, prefix string) {
	t.Helper()
	for _, f := range reflect.VisibleFields(of) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			t.Errorf("%s.%s has no JSON name", of, f.Name)
		}
		kind, inner, suffix := kindOf(f.Type)
		if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			kind += ", optional"
		}
		about := s.comment(t, of, f.Name)
		if about == "" {
			t.Errorf("%s.%s has no comment that says what it means", of, f.Name)
		}
		if goWord.MatchString(about) {
			t.Errorf("%s.%s: %q is not for readers of JSON", of, f.Name, about)
		}
		s.rows = append(s.rows, "| `"+prefix+name+"` | "+kind+" | "+
			strings.ReplaceAll(about, "|", `\|`)+" |\n")
		if inner != nil {
			s.fields(t, inner, prefix+name+suffix+".")
		}
	}
}

// goWord is one that only who knows the code understands.
var goWord = regexp.MustCompile(`\bnil\b|""|\b[A-Z][a-z]+[A-Z]\w*`)

// kindOf names a type; inner is the struct that is described behind it, by its suffix.
func kindOf(of reflect.Type) (name string, inner reflect.Type, suffix string) {
	if of.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return "text", nil, ""
	}
	switch of.Kind() {
	case reflect.Pointer:
		return kindOf(of.Elem())
	case reflect.Slice, reflect.Array:
		name, inner, suffix = kindOf(of.Elem())
		return "list of " + name, inner, "[]" + suffix
	case reflect.Map:
		name, inner, suffix = kindOf(of.Elem())
		return "object of " + name, inner, ".*" + suffix
	case reflect.Struct:
		return "object", of, ""
	case reflect.String:
		return "text", nil, ""
	case reflect.Bool:
		return "true or false", nil, ""
	case reflect.Interface:
		return "any", nil, ""
	default:
		return "number", nil, ""
	}
}

const module = "github.com/sidecar-cni/sidecar-cni/"

// comment returns what the source says of a field, behind it or above it.
func (s *schema) comment(t *testing.T, of reflect.Type, field string) string {
	t.Helper()
	folder, ours := strings.CutPrefix(of.PkgPath(), module)
	if of.PkgPath() == "main" {
		folder, ours = "sidecarctl", true
	}
	if !ours {
		return ""
	}
	if s.comments[folder] == nil {
		s.comments[folder] = commentsIn(t, filepath.Join("..", folder))
	}
	return s.comments[folder][of.Name()+"."+field]
}

// commentsIn reads the comments of all fields in a folder.
func commentsIn(t *testing.T, folder string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			declared, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if of, ok := declared.Type.(*ast.StructType); ok {
				for _, f := range of.Fields.List {
					for _, field := range f.Names {
						all[declared.Name.Name+"."+field.Name] = strings.Join(
							strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
					}
				}
			}
			return true
		})
	}
	return all
}
