package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Real packages under the real `go test`, since its events are what this program lives on.
var (
	passes = `func TestA(t *testing.T) { t.Run("one", func(t *testing.T) { t.Log("a quiet line") }) }`
	skips  = `func TestA(t *testing.T) { t.Skip("wants a moon") }`
	fails  = `func TestA(t *testing.T) {
		t.Run("good", func(t *testing.T) { t.Log("a quiet line") })
		t.Run("bad", func(t *testing.T) { println("=== a line of its own"); t.Error("got 1, want 2") })
	}`
	panics = `func TestA(t *testing.T) {}
	func TestB(t *testing.T) {
		t.Run("other", func(t *testing.T) { t.Parallel(); select {} })
		t.Run("guilty", func(t *testing.T) { t.Parallel(); panic("ouch") })
	}`
	hangs    = `func TestA(t *testing.T) { select { case <-t.Context().Done(): } }`
	quits    = `func TestA(t *testing.T) { syscall.Exit(7) }`
	exits    = `func TestMain(m *testing.M) { m.Run(); println("mopping up"); syscall.Exit(3) }; func TestA(t *testing.T) {}`
	unbuilt  = `func TestA(t *testing.T) { nosuch() }`
	unvetted = `func TestA(t *testing.T) { t.Errorf("%d", "one") }`
	unparsed = `func TestA(t *testing.T) {`
)

func TestSummary(t *testing.T) {
	tests := map[string]struct {
		packages []string
		strict   bool
		ok       bool
		last     string
		says     []string
		hides    string
	}{
		"all pass": {packages: []string{passes}, ok: true,
			last: "2 passed, 0 failed, 0 skipped", says: []string{"ok  \texample.org/p0"},
			hides: "a quiet line"},
		"a subtest fails": {packages: []string{fails}, last: "1 passed, 2 failed, 0 skipped",
			says: []string{"--- FAIL: TestA/bad", "=== a line of its own", "got 1, want 2",
				"FAIL\texample.org/p0"}, hides: "a quiet line"},
		"a skip": {packages: []string{passes, skips}, ok: true,
			last: "2 passed, 0 failed, 1 skipped", hides: "wants a moon"},
		"a skip, strict": {packages: []string{passes, skips}, strict: true,
			last: "2 passed, 0 failed, 1 skipped",
			says: []string{"example.org/p1\n--- SKIP: TestA", "wants a moon"}},
		"no skip, strict": {packages: []string{passes}, strict: true, ok: true,
			last: "2 passed, 0 failed, 0 skipped"},
		"a panic": {packages: []string{panics}, last: "1 passed, 3 failed, 0 skipped",
			says: []string{"panic: ouch", "--- FAIL: TestB/other (did not end)"}},
		"a time-out": {packages: []string{hangs}, last: "0 passed, 1 failed, 0 skipped",
			says: []string{"--- FAIL: TestA (did not end)\npanic: test timed out"}},
		"an exit in a test": {packages: []string{quits}, last: "0 passed, 1 failed, 0 skipped",
			says: []string{"--- FAIL: TestA (did not end)"}},
		"an exit in TestMain": {packages: []string{exits}, last: "1 passed, 1 failed, 0 skipped",
			says: []string{"mopping up"}},
		"a build failure": {packages: []string{passes, unbuilt},
			last: "2 passed, 1 failed, 0 skipped",
			says: []string{"undefined: nosuch", "FAIL\texample.org/p1 [build failed]"}},
		"a vet failure": {packages: []string{unvetted},
			last: "0 passed, 1 failed, 0 skipped",
			says: []string{`format %d has arg "one" of wrong type`}},
		"a syntax error": {packages: []string{passes, unparsed},
			last: "2 passed, 1 failed, 0 skipped",
			says: []string{"FAIL\texample.org/p1 [setup failed]"}},
		"no tests in a package": {packages: []string{""}, ok: true,
			last: "0 passed, 0 failed, 0 skipped"},
		"no package": {last: "0 passed, 0 failed, 0 skipped"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := summary{out: &out, running: map[string]*suite{}, count: map[string]int{}}
			if err := s.read(strings.NewReader(goTest(t, tt.packages))); err != nil {
				t.Fatal(err)
			}
			if ok := s.close(tt.strict); ok != tt.ok {
				t.Errorf("ok is %v, want %v", ok, tt.ok)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if last := lines[len(lines)-1]; last != tt.last {
				t.Errorf("the last line is %q, want %q", last, tt.last)
			}
			for _, want := range tt.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("does not say %q", want)
				}
			}
			if tt.hides != "" && strings.Contains(out.String(), tt.hides) {
				t.Errorf("says %q", tt.hides)
			}
			if t.Failed() {
				t.Logf("all of it:\n%s", out.String())
			}
		})
	}
}

func TestSummaryOfEventsCutShort(t *testing.T) {
	var out strings.Builder
	s := summary{out: &out, running: map[string]*suite{}, count: map[string]int{}}
	err := s.read(strings.NewReader(`{"Action":"start","Package":"p"}
		{"Action":"run","Package":"p","Test":"TestA"}
		{"Action":"pass","Package":"p","Test":"TestA"}
		{"Action":"run","Package":"p","Test":"TestB"}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = "--- FAIL: TestB (did not end)\nFAIL\tp\t[cut short]\n\n1 passed, 1 failed, 0 " +
		"skipped\n"
	if ok := s.close(false); ok || out.String() != want {
		t.Errorf("ok is %v and says\n%swant false and\n%s", ok, out.String(), want)
	}
	if err := s.read(strings.NewReader(`{"Action":"sta`)); err == nil {
		t.Error("half an event is no error")
	}
}

// goTest writes a module with the given packages and returns the events of its tests.
func goTest(t *testing.T, packages []string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.org\n\ngo 1.26\n")
	for i, body := range packages {
		name := string(rune('0' + i))
		imports := "import \"testing\"\n"
		if strings.Contains(body, "syscall.") {
			imports += "import \"syscall\"\n"
		}
		write(t, filepath.Join(dir, "p"+name, "p.go"), "package p")
		if body != "" {
			write(t, filepath.Join(dir, "p"+name, "p_test.go"), "package p\n"+imports+body)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-timeout=3s", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	events, err := cmd.Output()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(events)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
