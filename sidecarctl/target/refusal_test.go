package target_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

// bomb is a document that comes to 10^n strings.
func bomb(n int) string {
	text := "a0: &a0 x\n"
	for i := range n {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return text
}

func pod(spec string) string { return "kind: Pod\nmetadata: {name: a}\nspec: " + spec }

func TestRefusals(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	rows := []struct{ name, text, want string }{
		{"empty", " \n", "it is empty; want a Pod"},
		{"comments alone", "# a\n---\n", "there is no object in it; want a Pod"},
		{"no pod", "kind: Service\n---\nkind: ConfigMap\n---\nkind: Service\n---\n{}",
			"there is no pod in it, only Service, ConfigMap, an object without a kind; want"},
		{"empty list", "kind: PodList\nitems: []", "only an empty PodList; want"},
		{"values of a chart", "image: a", "only an object without a kind; want"},
		{"prose", "no manifest", "it is a string; want an object with apiVersion and kind"},
		{"number in a later document", "kind: A\n---\n7", "document 2: it is a number"},
		{"not YAML", "a: b: c", "not valid YAML: "},
		{"not text", "\x7fELF\x00\x01", "not valid YAML: "},
		{"not JSON", "{\n}\n{\"kind\": \"Pod\",\n\"a\"}", "not valid JSON: in the object that begins at line 2"},
		{"half of JSON", `{"kind": "Pod"`, "not valid JSON: it ends in the middle of an object"},
		{"template of a chart", "{{- if .Values.a }}\nkind: Pod\n{{- end }}", "by helm template"},
		{"key twice in JSON", `{"kind": "Pod", "kind": "Service"}`, `duplicate field "kind"; keep one of them`},
		{"key twice in YAML", "kind: Pod\nkind: Service\n", `line 2: key "kind" already set in map; keep one of them`},
		{"keys that are one in JSON", "{1: a, '1': b}", `key "1" is there twice`},
		{"null for a key", "~: a", "a key in it is null"},
		{"deep YAML", "a: " + deep, "not valid YAML: "},
		{"deep JSON", `{"a": ` + deep + "}", "not valid "},
		{"less deep YAML", "a: " + deep[18000:22000], "nested deeper than 1000 levels"},
		{"aliases in vast numbers", bomb(9), "excessive aliasing"},
		{"aliases of a large size", "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 40) + "]", "with its aliases expanded it is larger than 32 MiB"},
		{"aliases in many documents", strings.Repeat("---\na: &a "+strings.Repeat("x", 1<<17)+"\nb: ["+strings.Repeat("*a,", 20)+"]\n", 20),
			"with its aliases expanded it is larger than 32 MiB"},
		{"alias of itself", "a: &a [*a]", "contains itself"},
		{"wrong annotations", "kind: Pod\nmetadata: {name: a, annotations: [1, 2]}\nspec: " + containers,
			"Pod a: in metadata.annotations: found a list, want a mapping"},
		{"annotation without quotes", "kind: Pod\nmetadata: {name: a, annotations: {b: yes}}\nspec: " + containers,
			"Pod a: in metadata.annotations: found true or false, want a string: put it into quotes"},
		{"wrong containers", pod("{containers: {}}"), "in spec.containers: found a mapping, want a list"},
		{"wrong containers of a template", "kind: Job\nmetadata: {name: a}\nspec: {template: {spec: {containers: 1}}}",
			"Job a: in spec.template.spec.containers: found a number, want a list"},
		{"no containers", pod("{}"), "Pod a: spec.containers is missing or empty"},
		{"container without a name", pod("{containers: [{name: b}, {image: c}]}"), "spec.containers[1] has no name"},
		{"init container that is null", pod("{initContainers: [~], containers: [{name: b}]}"), "spec.initContainers[0] has no name"},
		{"no name", "kind: Pod\nspec: " + containers, "Pod: metadata.name is missing; add one"},
		{"name of another type", "kind: Job\nmetadata: {name: 7}\nspec: {template: {spec: " + containers + "}}",
			"Job: in metadata.name: found a number, want a string"},
		{"user that is too large", pod("{securityContext: {runAsUser: 99999999999999999999}, containers: [{name: b}]}"),
			"in spec.securityContext.runAsUser: found the number 100000000000000000000, want an integer"},
		{"number that is too large in YAML", pod("{hostNetwork: .inf}"), "a number in it is infinite, too large"},
		{"number that is too large in JSON", `{"a": 1e999}`, "not valid JSON: "},
		{"port that is too large", pod("{containers: [{name: b, ports: [{containerPort: 70000}]}]}"),
			"in spec.containers.ports.containerPort: found the number 70000, want a port from 1 to 65535"},
		{"port without a number", pod("{containers: [{name: b, ports: [{name: c}]}]}"),
			"spec: container b: containerPort is missing or 0"},
		{"string for a boolean", pod("{hostNetwork: 'true', containers: [{name: b}]}"),
			"in spec.hostNetwork: found a string, want true or false, without quotes"},
		{"nameserver that is a name", pod("{dnsConfig: {nameservers: [dns]}, containers: [{name: b}]}"),
			`spec.dnsConfig.nameservers: "dns" is not an IP address`},
		{"address that is none", pod(containers) + "\nstatus: {podIP: x}", `status.podIPs: "x" is not an IP address`},
		{"items that are none", "kind: List\nitems: {}", "items is a mapping; want a list of objects"},
		{"item that is none", "kind: List\nitems: [{kind: A}, 7]", "items[1] is a number; want an object"},
		{"mistake in an item", "kind: PodList\nitems: [{metadata: {name: a}}]",
			"items[0]: Pod a: spec.containers is missing"},
		{"control characters in a kind", `{"kind": "a\u001b\n", "metadata": {"name": "b"}}`, `only "a\x1b\n"; want`},
		{"control characters in a key", `{"` + "\x1b" + `": 1}`, "not valid "},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pods, err := target.FromFile(strings.NewReader(row.text), "f", target.Options{})
			if err == nil {
				t.Fatalf("accepted: %+v", pods)
			}
			text := err.Error()
			if !strings.HasPrefix(text, `read "f": `) || !strings.Contains(text, row.want) ||
				len(text) > 800 || strings.ContainsAny(text, "\n\x1b") {
				t.Errorf("got  %q\nwant %q", text, row.want)
			}
		})
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '#'
	}
	return len(b), nil
}

func TestFilesThatAreNotRead(t *testing.T) {
	t.Parallel()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	rows := []struct {
		name string
		r    io.Reader
		want string
	}{
		{"directory", dir, "it is a directory; name one of its files"},
		{"endless", endless{}, "it is larger than 32 MiB"},
		{"unreadable", broken{}, "the disk is gone"},
		{"closed", closed(t), os.ErrClosed.Error()},
	}
	for _, row := range rows {
		_, err := target.FromFile(row.r, "a\x1bb", target.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), `read "a\x1bb": `+row.want) {
			t.Errorf("%s: got %v, want %s", row.name, err, row.want)
		}
	}
}

func closed(t *testing.T) io.Reader {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return f
}
