package chain

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

// FuzzPrimary: whatever the primary is, a pass writes what libcni loads, as text what would also
// come out of decoding, appending and encoding; and uninstalling gives the bytes back.
func FuzzPrimary(f *testing.F) {
	for _, l := range layouts(f) {
		for _, file := range l.before {
			f.Add(file.Data, isSingle(file.Name))
		}
	}
	for _, seed := range []string{
		`{"name":"a","cniVersion":"0.4.0","plugins":[{"type":"x"}],"plugins":[{"type":"y"}]}`,
		`{"name":"a","cniVersion":"0.4.0","pl\u0075gins":[{"type":"x"}]}`,
		`{"name":"a","cniVersion":"0.4.0","plugins":[{"type":"x"}],"Plugins":[{"type":"y"}]}`,
		`{"name":"a","cniVersion":"0.4.0","plugins":[{"type":"sidecar-cni"},{"type":"x"}]}`,
		`{"name":"a","cniVersion":"0.4.0","plugins":[{"Type":"x","a":1e3,"b":[[]]} ,{"type":"y"}]}` + "\n\n",
		"{\"name\":\"a\",\"cniVersion\":\"1.1.0\",\"plugins\":[{\r\n\t\"type\":\"x\"}]}",
		"\ufeff{}", `null`, `{"name":"a","cniVersions":["0.4.0","1.0.0"],"plugins":[{"type":"x"}]}`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, single bool) {
		name := "10-x.conflist"
		if single {
			name = "10-x.conf"
		}
		wantWithAndWithout(t, File{Name: name, Data: data, Mode: 0o600})
	})
}

// TestListsOfManyShapes is the same for lists that parse, which mutated bytes rarely do.
func TestListsOfManyShapes(t *testing.T) {
	t.Parallel()
	times := 1500
	if testing.Short() { // which make mutate wants for each mutant
		times = 60
	}
	done := 0
	for seed := range uint64(times) {
		s := shapes{rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // to be repeated
		data := s.list()
		if wantWithAndWithout(t, File{Name: "10-x.conflist", Data: []byte(data), Mode: 0o600}) {
			done++
		}
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, data)
		}
	}
	if done < times*9/10 {
		t.Errorf("only %d of %d lists could be joined", done, times)
	}
}

// shapes writes JSON in unusual ways.
type shapes struct{ rand *rand.Rand }

func (s shapes) one(of ...string) string { return of[s.rand.IntN(len(of))] }

func (s shapes) blank() string {
	return s.one("", "", " ", "\n", "\n    ", "\r\n\t\t", "\t", "\n\n  ")
}

func (s shapes) list() string {
	members := []string{
		s.member(`"name"`, `"x"`), s.member(s.one(`"cniVersion"`, `"cni\u0056ersion"`), `"1.0.0"`),
		s.member(`"plugins"`, s.plugins()),
	}
	for range s.rand.IntN(3) {
		members = append(members,
			s.member(s.one(`"\u2028"`, `"Plugins"`, `"\""`, `""`, `"]"`), s.value()))
	}
	s.rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	if s.rand.IntN(4) == 0 {
		members = append([]string{s.member(`"plugins"`,
			s.one("null", "[]", "{}", `[{"type":"never"}]`))}, members...)
	}
	return s.blank() + "{" + s.blank() + strings.Join(members, s.blank()+","+s.blank()) +
		s.blank() + "}" + s.blank()
}

func (s shapes) plugins() string {
	plugins := []string{s.plugin("first")}
	for range s.rand.IntN(4) {
		plugins = append(plugins, s.plugin(s.one("other", "other", names.Plugin)))
	}
	s.rand.Shuffle(len(plugins), func(i, j int) { plugins[i], plugins[j] = plugins[j], plugins[i] })
	return "[" + s.blank() + strings.Join(plugins, s.blank()+","+s.blank()) + s.blank() + "]"
}

func (s shapes) plugin(kind string) string {
	more := ""
	for range s.rand.IntN(3) {
		more += "," + s.blank() + s.member(s.one(`"a"`, `"é"`, `"plugins"`), s.value())
	}
	return "{" + s.blank() +
		s.member(s.one(`"type"`, `"type"`, `"Type"`, `"t\u0079pe"`), `"`+kind+`"`) + more +
		s.blank() + "}"
}

func (s shapes) member(key, value string) string {
	return key + s.blank() + ":" + s.blank() + value
}

func (s shapes) value() string {
	return s.one(`-1.50e+2`, `"}],{["`, `"\\"`, `null`, `[[],{}]`,
		`{"plugins":[{"type":"sidecar-cni"}]}`, `12345678901234567890`, `"\ud800"`)
}

// wantWithAndWithout installs in each way and takes out again. It reports whether each way was
// open.
func wantWithAndWithout(t *testing.T, primary File) bool {
	t.Helper()
	before, open := Dir{primary}, true
	for _, way := range []Way{Inline, DropIn, Owned} {
		plan, err := Install(before, spec(way))
		if err != nil {
			if len(plan.Steps) != 0 {
				t.Errorf("%v, and %s", err, told(plan, nil))
			}
			open = false
			continue
		}
		after := before.After(plan.Steps...)
		wantLoaded(t, before, after)
		for _, s := range plan.Steps {
			if f := (File{Name: s.Name, Data: s.Data}); s.Op == Write && isList(primary.Name) &&
				isList(s.Name) && f.carriesUs() {
				wantAppended(t, primary.Data, s.Data)
			}
		}
		out, err := Uninstall(after, Spec{})
		if err != nil {
			t.Errorf("%s: uninstall: %v", way, err)
		}
		if primary.carriesUs() {
			continue
		}
		if diff := cmp.Diff(before, after.After(out.Steps...)); diff != "" {
			t.Errorf("%s: uninstalling changes the directory (-before +after)\n%s", way, diff)
		}
	}
	return open
}

func wantLoaded(t *testing.T, before, after Dir) {
	t.Helper()
	was, err := before.load(t)
	if err != nil {
		t.Fatalf("a pass changes a chain that is broken: %v", err)
	}
	is, err := after.load(t)
	if err != nil {
		t.Fatalf("a pass breaks a chain: %v", err)
	}
	if is.Ours != 1 {
		t.Errorf("we are in the chain %d times", is.Ours)
	}
	was.Ours, is.Ours = 0, 0
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("others have another chain (-before +after)\n%s", diff)
	}
}

// wantAppended holds that the text has been changed as the value would have been.
func wantAppended(t *testing.T, before, after []byte) {
	t.Helper()
	want, ok := decoded(t, before).(map[string]any)
	if !ok {
		t.Fatalf("no object: %s", before)
	}
	list, err := libcni.NetworkConfFromBytes(before)
	if err != nil {
		t.Fatal(err)
	}
	var plugins []any
	for i, p := range want["plugins"].([]any) {
		if list.Plugins[i].Network.Type != names.Plugin {
			plugins = append(plugins, p)
		}
	}
	want["plugins"] = slices.Concat(plugins, []any{decoded(t, []byte(ourEntry))})
	if got := decoded(t, after); !reflect.DeepEqual(want, got) {
		t.Errorf("text and value differ (-value +text)\n%s", cmp.Diff(want, got))
	}
}
