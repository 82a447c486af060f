package manifest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/manifest"
)

const web = `kind: Deployment
metadata:
  name: web
spec:
  template:
    metadata:
      annotations:
        mine: "1"
    spec:
      initContainers:
      - name: first
        image: a
      - name: istio-init
        image: init
        args: ["-p", "15001"]
      - name: last
        image: b
      containers:
      # the application
      - name: web
        image: web:1
        readinessProbe:
          tcpSocket:
            port: 80
          periodSeconds: 7
`

func tree(t *testing.T, text []byte) podtree.Object {
	t.Helper()
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	o, err := podtree.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func restore(t *testing.T, text []byte) manifest.Output {
	t.Helper()
	out, err := manifest.Restore("web.yaml", text, hasProxy)
	if err != nil {
		t.Fatalf("Restore: %v\n%s", err, text)
	}
	return out
}

// What others did to a manifest after it was injected stays; what was put in goes.
func TestRestoreOfWhatOthersChangedSince(t *testing.T) {
	t.Parallel()
	injected := string(rewrite(t, web).Data)
	for name, row := range map[string]struct {
		since, want *strings.Replacer
		warnings    []string
	}{
		"another image and a comment": {
			since: strings.NewReplacer("web:1", "web:2", "# the application", "# the app"),
			want:  strings.NewReplacer("web:1", "web:2", "# the application", "# the app"),
		},
		"another image of the proxy": {since: strings.NewReplacer("proxy:1", "proxy:2")},
		"another annotation": {
			since: strings.NewReplacer("mine: \"1\"\n", "mine: \"1\"\n        more: x\n"),
			want:  strings.NewReplacer("mine: \"1\"\n", "mine: \"1\"\n        more: x\n"),
		},
		"another container": {
			since: strings.NewReplacer("      - name: istio-proxy\n",
				"      - name: other\n      - name: istio-proxy\n"),
			want: strings.NewReplacer("periodSeconds: 7\n",
				"periodSeconds: 7\n      - name: other\n"),
		},
		"what is left of a mapping that was added": {
			since: strings.NewReplacer("fsGroup: 1337", "fsGroup: 1337\n        runAsUser: 5"),
			want: strings.NewReplacer("periodSeconds: 7\n",
				"periodSeconds: 7\n      securityContext:\n        runAsUser: 5\n"),
		},
		"a value that was added": {
			since: strings.NewReplacer("fsGroup: 1337", "fsGroup: 5"),
			want: strings.NewReplacer("periodSeconds: 7\n",
				"periodSeconds: 7\n      securityContext:\n        fsGroup: 5\n"),
			warnings: []string{"Deployment web, spec.template: spec.securityContext.fsGroup " +
				"was changed since by others; it stays as it is"},
		},
		"the pod's own container gone": {
			since: strings.NewReplacer("      - name: web\n        image: web:1\n",
				"      - name: new\n        image: new\n"),
			want: strings.NewReplacer("      - name: web\n        image: web:1\n",
				"      - name: new\n        image: new\n", "tcpSocket:\n            port: 80\n          periodSeconds: 7",
				"periodSeconds: 7\n          httpGet:\n            path: /app-health/web\n            port: 15020"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := row.since.Replace(injected)
			if changed == injected {
				t.Fatal("nothing was changed since")
			}
			want := web
			if row.want != nil {
				want = row.want.Replace(web)
			}
			out := restore(t, []byte(changed))
			if diff := cmp.Diff(tree(t, []byte(want)), tree(t, out.Data)); diff != "" {
				t.Errorf("not as wanted (-want +got):\n%s\n%s", diff, out.Data)
			}
			if diff := cmp.Diff(row.warnings, out.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// The API server gives objects back in another form, with its defaults.
func TestRestoreOfWhatWentThroughTheAPI(t *testing.T) {
	t.Parallel()
	object := tree(t, rewrite(t, web).Data)
	pod := podtree.Map(object, "spec", "template")
	for _, item := range podtree.List(pod, "spec", "containers") {
		one, _ := item.(podtree.Object)
		one["terminationMessagePath"] = "/dev/termination-log"
		one["imagePullPolicy"] = "IfNotPresent"
		one["resources"] = podtree.Object{}
		if probe := podtree.Map(one, "readinessProbe"); probe != nil {
			podtree.Set(probe, "HTTP", "httpGet", "scheme")
			probe["timeoutSeconds"] = int64(1)
		}
	}
	podtree.Set(pod, nil, "metadata", "creationTimestamp")
	podtree.Set(pod, "Always", "spec", "restartPolicy")
	served, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	out := restore(t, served)
	want := tree(t, []byte(web))
	app, _ := podtree.List(want, "spec", "template", "spec", "containers")[0].(podtree.Object)
	app["terminationMessagePath"] = "/dev/termination-log"
	app["imagePullPolicy"] = "IfNotPresent"
	app["resources"] = podtree.Object{}
	podtree.Set(app, int64(1), "readinessProbe", "timeoutSeconds")
	podtree.Set(want, nil, "spec", "template", "metadata", "creationTimestamp")
	podtree.Set(want, "Always", "spec", "template", "spec", "restartPolicy")
	if diff := cmp.Diff(want, tree(t, out.Data)); diff != "" {
		t.Errorf("not as wanted (-want +got):\n%s", diff)
	}
	if len(out.Warnings) > 0 {
		t.Errorf("warnings: %q", out.Warnings)
	}
}

// Written in another form, everything that Rewrite does can be undone by structure alone.
func TestRestoreByStructure(t *testing.T) {
	t.Parallel()
	changes := 0
	for seed := range uint64(400) {
		l := newLayout(rand.New(rand.NewPCG(seed, 2)))
		object := l.object()
		text, err := yaml.Marshal(object)
		if err != nil {
			continue // it does not write NEL so that it can read it
		}
		c := &changer{seed, map[string]podtree.Object{}}
		out, err := manifest.Rewrite("f", text, "inject", c.change)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if bytes.Equal(out.Data, text) {
			continue
		}
		changes++
		other, err := yaml.Marshal(tree(t, out.Data))
		if err != nil || !cmp.Equal(tree(t, other), tree(t, out.Data)) {
			continue
		}
		back, err := manifest.Restore("f", append([]byte("# by others\n"), other...),
			func(manifest.Workload) bool { return false })
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, out.Data)
		}
		if diff := cmp.Diff(tree(t, text), tree(t, back.Data)); diff != "" {
			t.Errorf("seed %d: not as it was (-was +got):\n%s\nwritten:\n%s", seed, diff, out.Data)
		}
		if len(back.Warnings) > 0 {
			t.Errorf("seed %d: warnings %q", seed, back.Warnings)
		}
	}
	if changes < 100 {
		t.Errorf("%d files were changed; want a hundred", changes)
	}
}

func TestRestoreOfAnotherOrder(t *testing.T) {
	t.Parallel()
	out, err := manifest.Rewrite("f", []byte(web), "inject", func(w manifest.Workload) (podtree.Object, error) {
		slices.Reverse(podtree.List(w.Pod, "spec", "initContainers"))
		return w.Pod, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	back := restore(t, append([]byte("# by others\n"), out.Data...))
	if diff := cmp.Diff(tree(t, []byte(web)), tree(t, back.Data)); diff != "" {
		t.Errorf("(-was +got):\n%s", diff)
	}
}

func TestRewriteAgainIsAsIfFromTheOriginal(t *testing.T) {
	t.Parallel()
	other := func(w manifest.Workload) (podtree.Object, error) {
		podtree.Set(w.Pod, "other", "metadata", "annotations", "tool")
		return w.Pod, nil
	}
	first, err := manifest.Rewrite("f", []byte(web), "inject", other)
	if err != nil {
		t.Fatal(err)
	}
	second, err := manifest.Rewrite("f", rewrite(t, web).Data, "inject", other)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first.Data), string(second.Data)); diff != "" {
		t.Errorf("(-from the original +from an injected one):\n%s", diff)
	}
	off, err := manifest.Rewrite("f", rewrite(t, web).Data, "inject",
		func(manifest.Workload) (podtree.Object, error) { return nil, nil })
	if err != nil || string(off.Data) != web {
		t.Errorf("nil does not give the original back: %v\n%s", err, off.Data)
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	if _, err := w.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ record, want string }{
		"no base64":    {"%", "it is not base64"},
		"no gzip":      {"aGVsbG8=", "it is not gzip"},
		"a bomb":       {base64.StdEncoding.EncodeToString(bomb.Bytes()), "it cannot be unpacked"},
		"too long":     {strings.Repeat("A", 40<<10), "want a string of at most 32 KiB"},
		"other JSON":   {packed(t, `{"a": [1]}`), "it is not JSON of the form that is written"},
		"a wrong type": {packed(t, `{"undo": [1]}`), "it is not JSON of the form that is written"},
		"an unknown field": {packed(t, `{"undo": {"keyz": {}}}`),
			"it is not JSON of the form that is written"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(web, "mine:", manifest.Annotation+": '"+row.record+"'\n        mine:", 1)
			want := `restore "f": Deployment web, spec.template: annotation ` + manifest.Annotation +
				" is not what inject writes: " + row.want + "; take the file that it was made of"
			if _, err := manifest.Restore("f", []byte(text), hasProxy); err == nil ||
				err.Error() != want {
				t.Errorf("error:\n%v\nwant:\n%s", err, want)
			}
		})
	}
}

// A record without the steps back would take itself out and leave the proxy, without a word.
func TestRestoreRefusesARecordThatFitsNoPod(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]string{
		"nothing":          `{"undo": {}}`,
		"a value":          `{"undo": {"was": [1]}}`,
		"a list":           `{"undo": {"list": {"added": ["name=web"]}}}`,
		"other keys":       `{"undo": {"keys": {"metadatb": {"keys": {"a": {"added": true}}}}}}`,
		"not of itself":    `{"undo": {"keys": {"spec": {"keys": {"a": {"added": true}}}}}}`,
		"keys in a scalar": `{"undo": {"keys": {"metadata": 1}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(web, "mine:",
				manifest.Annotation+": "+packed(t, record)+"\n        mine:", 1)
			out, err := manifest.Restore("f", []byte(text), hasProxy)
			if err == nil || !strings.Contains(err.Error(), "take the file that it was made of") {
				t.Errorf("%v\n%s", err, out.Data)
			}
		})
	}
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// Whatever a record says, Restore neither panics nor writes what is no manifest.
func FuzzRecord(f *testing.F) {
	f.Add(`{"original":"AA==","edits":[{"at":-1,"len":9}],"undo":{"keys":{"spec":{"was":[1]}}}}`)
	f.Add(`{"edits":[{"at":0,"len":9,"text":"x"}],"undo":{"keys":{"spec":{"list":{"order":["a"]}}}}}`)
	f.Add(`{"undo":{"keys":{"metadata":{"added":true,"keys":{"annotations":{"keys":{"mine":null}}}},
		"spec":{"keys":{"containers":{"list":{"changed":{"name=web":null,"name=web#2":{}},
		"removed":{"x":1},"order":["x","x"],"added":["name=web"]}}}}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		in := strings.Replace(web, "mine:", manifest.Annotation+": "+packed(t, text)+
			"\n        mine:", 1)
		out, err := manifest.Restore("f", []byte(in), hasProxy)
		if err == nil {
			tree(t, out.Data)
		}
	})
}
