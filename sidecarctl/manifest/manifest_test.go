package manifest_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/manifest"
)

// sidecar does what an injector does: it adds a container, a volume and annotations, replaces
// probes, and removes istio-init.
func sidecar(w manifest.Workload) (podtree.Object, error) {
	pod := w.Pod
	if podtree.Get(pod, "metadata", "annotations", "sidecar.istio.io/inject") == "false" {
		return nil, nil
	}
	var inits []any
	for _, item := range podtree.List(pod, "spec", "initContainers") {
		if one, ok := item.(podtree.Object); !ok || one["name"] != "istio-init" {
			inits = append(inits, item)
		}
	}
	if podtree.Delete(pod, "spec", "initContainers"); inits != nil {
		podtree.Set(pod, inits, "spec", "initContainers")
	}
	for _, item := range podtree.List(pod, "spec", "containers") {
		if one, ok := item.(podtree.Object); ok && podtree.Map(one, "readinessProbe") != nil {
			podtree.Set(one, podtree.Object{"path": fmt.Sprint("/app-health/", one["name"]),
				"port": 15020}, "readinessProbe", "httpGet")
			podtree.Delete(one, "readinessProbe", "tcpSocket")
		}
	}
	proxy := podtree.Object{"name": "istio-proxy", "image": "proxy:1",
		"args": []any{"proxy", "--on", "yes", "1337"}, "env": []any{podtree.Object{
			"name": "POD_NAME", "valueFrom": podtree.Object{
				"fieldRef": podtree.Object{"fieldPath": "metadata.name"}}}}}
	containers := podtree.List(pod, "spec", "containers")
	if podtree.Get(pod, "metadata", "annotations", "hold") == "true" {
		containers = slices.Insert(containers, 0, any(proxy))
	} else {
		containers = append(containers, proxy)
	}
	podtree.Set(pod, containers, "spec", "containers")
	podtree.Set(pod, append(podtree.List(pod, "spec", "volumes"), podtree.Object{
		"name": "istio-envoy", "emptyDir": podtree.Object{"medium": "Memory"}}),
		"spec", "volumes")
	podtree.Set(pod, 1337, "spec", "securityContext", "fsGroup")
	podtree.Set(pod, `{"version":"1"}`, "metadata", "annotations", "sidecar.istio.io/status")
	return pod, nil
}

var recorded = regexp.MustCompile(`H4sI[A-Za-z0-9+/=]{20,}`)

// Each file of testdata has a manifest and what becomes of it, records as RECORD. In them <CR> and
// <BOM> are those characters; <EOF> ends a file without a line break.
func TestRewriteKeepsWhatDoesNotChange(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("read testdata: %v, %d files", err, len(files))
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if len(archive.Files) < 2 {
				t.Fatal("want in, out and perhaps warnings")
			}
			marks := strings.NewReplacer("<CR>", "\r", "<BOM>", "\uFEFF", "<EOF>\n", "")
			in := marks.Replace(string(archive.Files[0].Data))
			out := rewrite(t, in)
			masked := recorded.ReplaceAllString(string(out.Data), "RECORD")
			if diff := cmp.Diff(marks.Replace(string(archive.Files[1].Data)), masked); diff != "" {
				t.Errorf("not as wanted (-want +got):\n%s", diff)
			}
			warnings := ""
			if len(archive.Files) > 2 {
				warnings = string(archive.Files[2].Data)
			}
			if got := lines(out.Warnings); got != warnings {
				t.Errorf("warnings:\n%swant:\n%s", got, warnings)
			}
			undone(t, in, out.Data)
		})
	}
}

func lines(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return strings.Join(texts, "\n") + "\n"
}

func rewrite(t *testing.T, in string) manifest.Output {
	t.Helper()
	out, err := manifest.Rewrite("in.yaml", []byte(in), "inject", sidecar)
	if err != nil {
		t.Fatalf("Rewrite: %v", err)
	}
	return out
}

// undone checks that what was written is the same when it is written twice, and gives the input
// back.
func undone(t *testing.T, in string, out []byte) {
	t.Helper()
	if diff := cmp.Diff(string(out), string(rewrite(t, string(out)).Data)); diff != "" {
		t.Errorf("twice is not once (-once +twice):\n%s", diff)
	}
	back, err := manifest.Restore("out.yaml", out, hasProxy)
	if err != nil {
		t.Fatalf("Restore: %v", err)
	}
	if diff := cmp.Diff(in, string(back.Data)); diff != "" {
		t.Errorf("not the input again (-input +got):\n%s", diff)
	}
	if len(back.Warnings) > 0 {
		t.Errorf("warnings %q when nothing was changed since", back.Warnings)
	}
}

func hasProxy(w manifest.Workload) bool {
	return podtree.Named(podtree.List(w.Pod, "spec", "containers"), "istio-proxy") >= 0
}
