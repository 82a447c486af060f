package inject_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

var update = flag.Bool("update", false, "write what is there instead of comparing with it")

func TestIstio11(t *testing.T) { t.Parallel(); golden(t, istio11(t), "testdata/istio-1.1.txtar") }

func TestToday(t *testing.T) { t.Parallel(); golden(t, today(t), "testdata/today.txtar") }

// golden injects the pod of a file and compares the result with that of the file, line by line.
func golden(t *testing.T, cfg *config.Config, name string) {
	t.Helper()
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) != 2 {
		t.Fatalf("%s: %d files, want pod.yaml and want.yaml", name, len(archive.Files))
	}
	result := mustInject(t, cfg, fromYAML(t, string(archive.Files[0].Data)))
	if len(result.Warnings) > 0 {
		t.Errorf("warnings: %q", result.Warnings)
	}
	text, err := yaml.Marshal(result.Pod)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(string(text), cfg.Version, "SHA256")
	if *update {
		archive.Files[1].Data = []byte(got)
		if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := string(archive.Files[1].Data)
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-is +should be); if it should, run go test . -run '^%s$' -update\n%s", name,
			t.Name(), diff)
	}
}

func fromYAML(t testing.TB, text string) podtree.Object {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	object, err := podtree.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return object
}
