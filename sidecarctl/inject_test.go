package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// injectConfig is the data of the ConfigMap, with the selectors of seed 004.
const injectConfig = `policy: %s
neverInjectSelector:
- matchLabels: {sidecar/label: notinject}
- matchExpressions: [{key: sidecar/notinject, operator: Exists}]
alwaysInjectSelector:
- matchLabels: {sidecar/label: inject}
- matchExpressions: [{key: sidecar/inject, operator: Exists}]
template: |-
  initContainers:
  - name: istio-init
    image: docker.io/istio/proxyv2:1.6.0
    args: [istio-iptables, -p, "15001", -z, "15006", -u, 1337, -m, REDIRECT, -i, '*', -x, "", -b, '*', -d, "15090,15021,15020"]
  containers:
  - name: istio-proxy
    image: [[ annotation .ObjectMeta ` + "`sidecar.istio.io/proxyImage` `docker.io/istio/proxyv2:1.6.0`" + ` ]]
    args: [proxy, sidecar]
`

// workload is a manifest with comments, as people write them.
const workload = `# the shop
apiVersion: extensions/v1beta1   # of the seeds
kind: Deployment
metadata:
    name: web
spec:
    replicas: 2
    template:
        metadata:
            labels:
                app: web  # %s
        spec:
            containers:
              # what sells
              - name: app
                image: "shop:1"
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, name: web}, {port: 81, name: http-web}, {port: 53, protocol: UDP}]
`

// injection is a folder with a manifest and the configuration's files.
type injection struct {
	dir string
}

func newInjection(t *testing.T, manifest, policy string) injection {
	t.Helper()
	i := injection{t.TempDir()}
	write(t, i.path("in.yaml"), manifest)
	write(t, i.path("config.yaml"), fmt.Sprintf(injectConfig, policy))
	write(t, i.path("mesh.yaml"), "")
	return i
}

func (i injection) path(name string) string { return filepath.Join(i.dir, name) }

// inject runs the seeds' command line, with another first word.
func (i injection) inject(t *testing.T, more ...string) (stdout, stderr string, code int) {
	t.Helper()
	return run(t.Context(), "", append([]string{"kube-inject", "--injectConfigFile",
		i.path("config.yaml"), "--meshConfigFile", i.path("mesh.yaml"), "--filename",
		i.path("in.yaml")}, more...)...)
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Seed 004's table: policy, never, always and the annotation, in its order.
func TestInjectAsTheTableOfDecisionsSays(t *testing.T) {
	t.Parallel()
	row := 0
	for _, policy := range []string{"enabled", "disabled"} {
		for _, annotation := range []string{"true", "false", ""} {
			for _, never := range []bool{true, false} {
				for _, always := range []bool{true, false} {
					want := annotation == "true" || annotation == "" && !never &&
						(always || policy == "enabled")
					row++
					var lines []string
					if never {
						lines = append(lines, `sidecar/notinject: "on"`)
					}
					if always {
						lines = append(lines, `sidecar/inject: "on"`)
					}
					if annotation != "" {
						lines = append(lines, "annotations: {sidecar.istio.io/inject: \""+annotation+"\"}")
					}
					text := fmt.Sprintf(workload, "x")
					for _, line := range lines {
						indent := strings.Repeat(" ", 16)
						if strings.HasPrefix(line, "annotations") {
							indent = indent[:12]
						}
						text = strings.Replace(text, "        spec:\n", indent+line+"\n        spec:\n", 1)
					}
					i := newInjection(t, text, policy)
					out, stderr, code := i.inject(t)
					if code != 0 || strings.Contains(out, "istio-proxy") != want ||
						!want && out != text {
						t.Errorf("row %d: policy %s, never %t, always %t, annotation %q: want %t, "+
							"exit code %d, %s\n%s", row, policy, never, always, annotation, want, code,
							stderr, out)
					}
				}
			}
		}
	}
	if row != 24 {
		t.Errorf("%d rows, the table has 24", row)
	}
}

// What inject wrote is what it was given, and lines more.
func TestInjectLeavesTheRestByteForByte(t *testing.T) {
	t.Parallel()
	text := fmt.Sprintf(workload, "comment")
	i := newInjection(t, text, "enabled")
	out, stderr, code := i.inject(t)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	rest := out
	for line := range strings.Lines(text) {
		var ok bool
		if _, rest, ok = strings.Cut(rest, line); !ok {
			t.Fatalf("line %q is not where it was:\n%s", line, out)
		}
	}
	for _, not := range []string{"istio-init", "NET_ADMIN"} {
		if strings.Contains(out, "name: "+not) {
			t.Errorf("there is %s in it:\n%s", not, out)
		}
	}
	for _, want := range []string{"injected", "Deployment web", "port 80", "begins with no protocol"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("standard error does not say %q:\n%s", want, stderr)
		}
	}
	for _, not := range []string{"port 81", "port 53", "no label app"} {
		if strings.Contains(stderr, not) {
			t.Errorf("standard error says %q:\n%s", not, stderr)
		}
	}
	checkTwiceAndBack(t, i, text, out)
}

// checkTwiceAndBack injects the output again, with another configuration, and takes it all out.
func checkTwiceAndBack(t *testing.T, i injection, text, out string) {
	t.Helper()
	write(t, i.path("in.yaml"), out)
	again, stderr, code := i.inject(t)
	if diff := cmp.Diff(out, again); diff != "" || code != 0 {
		t.Errorf("twice is not once (-once +twice): %s\n%s", stderr, diff)
	}
	write(t, i.path("config.yaml"),
		strings.ReplaceAll(fmt.Sprintf(injectConfig, "enabled"), ":1.6.0", ":1.7.0"))
	other, _, _ := i.inject(t)
	write(t, i.path("in.yaml"), text)
	fresh, _, _ := i.inject(t)
	if diff := cmp.Diff(fresh, other); diff != "" || !strings.Contains(other, "proxyv2:1.7.0") {
		t.Errorf("another configuration is not as if from the original (-want +got):\n%s", diff)
	}
	back, stderr, code := run(t.Context(), other, "uninject", "-f", "-")
	if diff := cmp.Diff(text, back); diff != "" || code != 0 {
		t.Errorf("uninject: exit code %d, %s (-want +got):\n%s", code, stderr, diff)
	}
}

// The configuration of a cluster is that of its ConfigMaps.
func TestInjectByTheConfigMapsOfTheCluster(t *testing.T) {
	t.Parallel()
	const maps = "/api/v1/namespaces/mesh/configmaps/"
	configMap := func(data map[string]string) string {
		var fields []string
		for key, value := range data {
			fields = append(fields, fmt.Sprintf("%q: %q", key, value))
		}
		return `{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {` +
			strings.Join(fields, ", ") + "}}"
	}
	c := &apiServer{objects: map[string]string{
		maps + "sidecars": configMap(map[string]string{"config": fmt.Sprintf(injectConfig, "enabled"),
			"values": "{}"}),
		maps + "mesh":  configMap(map[string]string{"mesh": "{}"}),
		maps + "empty": configMap(nil),
	}}
	file := filepath.Join(t.TempDir(), "web.yaml")
	write(t, file, fmt.Sprintf(workload, "x"))
	args := []string{"inject", "-f", file, "-i", "mesh", "--injectConfigMapName", "sidecars",
		"--meshConfigMapName", "mesh"}
	if out, stderr, code := c.ask(t, args...); code != 0 || !strings.Contains(out, "istio-proxy") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, out)
	}
	for more, want := range map[string][]string{
		"--meshConfigMapName=none": {"read ConfigMap mesh/none: there is none",
			"kubectl get configmaps -n mesh", "--meshConfigFile"},
		"--injectConfigMapName=none":  {"read ConfigMap mesh/none", "--injectConfigFile"},
		"--injectConfigMapName=empty": {"ConfigMap mesh/empty", "config"},
	} {
		out, stderr, code := c.ask(t, append(args, more)...)
		if code != exitError || out != "" {
			t.Errorf("%s: exit code %d, %s", more, code, out)
		}
		for _, want := range want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: %q, want %q", more, stderr, want)
			}
		}
	}
}

// A file is replaced whole, or not at all.
func TestOutputIsReplaced(t *testing.T) {
	t.Parallel()
	i := newInjection(t, fmt.Sprintf(workload, "x"), "enabled")
	want, _, _ := i.inject(t)
	link := i.path("link.yaml")
	if err := os.Symlink("in.yaml", link); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(i.path("in.yaml"), 0o640); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := i.inject(t, "-o", link); code != 0 || out != "" {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	if diff := cmp.Diff(want, content(t, i.path("in.yaml"))); diff != "" {
		t.Errorf("-o is not what standard output was (-want +got):\n%s", diff)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is no link any more: %v, %v", info, err)
	}
	if info, err := os.Stat(link); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file's mode has changed: %v, %v", info, err)
	}
	write(t, i.path("in.yaml"), fmt.Sprintf(workload, "x")+"---\nkind: Pod\nmetadata: [")
	write(t, i.path("out.yaml"), "old")
	// Nothing is said to be injected that is not written.
	if _, stderr, code := i.inject(t, "-o", i.path("out.yaml")); code != exitError ||
		strings.Contains(stderr, "injected") || content(t, i.path("out.yaml")) != "old" {
		t.Errorf("exit code %d, %s\n%s", code, stderr, content(t, i.path("out.yaml")))
	}
	left, err := filepath.Glob(i.path("*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// /dev/stdout is standard output, also where a shell's >> has made a regular file of it.
func TestOutputToStandardOutputByName(t *testing.T) {
	t.Parallel()
	i := newInjection(t, fmt.Sprintf(workload, "x"), "enabled")
	want, _, _ := i.inject(t)
	out, stderr, code := i.inject(t, "-o", "/dev/stdout")
	if diff := cmp.Diff(want, out); diff != "" || code != 0 {
		t.Errorf("exit code %d, %s (-want +got):\n%s", code, stderr, diff)
	}
}

// A link to a file that is not there yet is followed, as a shell's > follows it.
func TestOutputThroughALinkToNoFile(t *testing.T) {
	t.Parallel()
	i := newInjection(t, fmt.Sprintf(workload, "x"), "enabled")
	want, _, _ := i.inject(t)
	for link, to := range map[string]string{"link.yaml": "second.yaml", "second.yaml": "new.yaml"} {
		if err := os.Symlink(to, i.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	if _, stderr, code := i.inject(t, "-o", i.path("link.yaml")); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if info, err := os.Lstat(i.path("new.yaml")); err != nil || !info.Mode().IsRegular() {
		t.Fatalf("new.yaml was not written: %v, %v", info, err)
	}
	if diff := cmp.Diff(want, content(t, i.path("link.yaml"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a killed run left behind does not stop the next one, though in a container both have the
// same process id.
func TestOutputBesideWhatAKilledRunLeft(t *testing.T) {
	t.Parallel()
	i := newInjection(t, fmt.Sprintf(workload, "x"), "enabled")
	write(t, i.path(fmt.Sprintf("out.yaml.%d.tmp", os.Getpid())), "half")
	if _, stderr, code := i.inject(t, "-o", i.path("out.yaml")); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestInjectMistakes(t *testing.T) {
	t.Parallel()
	i := newInjection(t, fmt.Sprintf(workload, "x"), "enabled")
	write(t, i.path("none.yaml"), "policy: on\n")
	for name, row := range map[string]struct {
		args []string
		want []string
		code int
	}{
		"no file named":   {[]string{"inject"}, []string{"--filename is not set"}, exitUsage},
		"a word too many": {[]string{"inject", "web"}, []string{`"web"`, "--filename"}, exitUsage},
		"no such file": {[]string{"strip", "-f", i.path("nowhere")}, []string{"nowhere",
			"no such file"}, exitError},
		"a directory": {[]string{"strip", "-f", i.dir}, []string{"is a directory"}, exitError},
		"a folder that is not there": {[]string{"strip", "-f", i.path("in.yaml"), "-o",
			i.path("a/b")}, []string{"a/b", "no such file"}, exitError},
		"no such configuration": {[]string{"inject", "-f", i.path("in.yaml"),
			"--injectConfigFile", i.path("nowhere")}, []string{"nowhere\": no such file or directory\n"},
			exitError},
		"two mistakes of a configuration": {[]string{"inject", "-f", i.path("in.yaml"),
			"--injectConfigFile", i.path("none.yaml"), "--meshConfigFile", i.path("mesh.yaml")},
			[]string{"none.yaml", "policy", "template"}, exitError},
	} {
		out, stderr, code := run(t.Context(), "", row.args...)
		if code != row.code || out != "" {
			t.Errorf("%s: exit code %d, want %d: %s", name, code, row.code, out)
		}
		for _, want := range row.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: %q, want %q", name, stderr, want)
			}
		}
	}
}

// What a template may know beside the pod: the namespace of the command line, and the values.
func TestInjectKnowsNamespaceAndValues(t *testing.T) {
	t.Parallel()
	text := strings.Replace(fmt.Sprintf(workload, "x"), "app: web  #", "tier: web  #", 1)
	i := newInjection(t, text, "enabled")
	write(t, i.path("config.yaml"), strings.Replace(fmt.Sprintf(injectConfig, "enabled"),
		"docker.io/istio/proxyv2:1.6.0` ]]", "` ]][[ .Values.global.hub ]]/[[ .ObjectMeta.Namespace ]]"+
			"/[[ .DeploymentMeta.Name ]]/[[ .TypeMeta.Kind ]]", 1))
	write(t, i.path("values.yaml"), "global: {hub: example.com}")
	out, stderr, code := i.inject(t, "--valuesFile", i.path("values.yaml"), "-n", "shop")
	if code != 0 || !strings.Contains(out, "example.com/shop/web/Deployment") ||
		!strings.Contains(stderr, "no label app") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, out)
	}
	out, stderr, code = i.inject(t, "--valuesFile", i.path("values.yaml"), "-n", "kube-system")
	if code != 0 || out != text || !strings.Contains(stderr, "its namespace is excluded") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, out)
	}
}

// Who ends the command while it waits for standard input ends it, and nothing is written.
func TestInjectInterrupted(t *testing.T) {
	t.Parallel()
	i := newInjection(t, fmt.Sprintf(workload, "x"), "enabled")
	stdin, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	e := env{args: []string{"inject", "-f", "-", "-o", i.path("out.yaml"), "--injectConfigFile",
		i.path("config.yaml"), "--meshConfigFile", i.path("mesh.yaml")},
		stdin:  readerFunc(func(p []byte) (int, error) { stop(); return stdin.Read(p) }),
		stdout: &out, stderr: &errs}
	if code := e.run(ctx); code != exitError || errs.String() != "sidecarctl: interrupted\n" {
		t.Errorf("exit code %d, %s", code, &errs)
	}
	if _, err := os.Stat(i.path("out.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the output is there: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
