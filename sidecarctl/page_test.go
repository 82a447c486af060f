package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/cluster"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/node"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verify"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/watch"
)

var update = flag.Bool("update", false, "write docs/sidecarctl.md")

const (
	page = "../docs/sidecarctl.md"

	pageHead = `# sidecarctl

<!-- Written by ` + "`make generate`" + ` from the commands in sidecarctl/. -->

Answers questions about the redirection of pods. It reads manifests, or the API server as kubectl does, and decides by the same code
as the plugin. It changes nothing but the pod that [init](init.md) runs in, and manifests: [inject.md](inject.md).

` + "```" + `
make build && bin/sidecarctl explain -f web.yaml
` + "```" + `

` + "`make release`" + ` packs it for Linux, macOS and Windows. Under the name ` + "`kubectl-sidecar_cni`" + ` on the PATH, as a link or as krew installs it,
it is ` + "`kubectl sidecar-cni`" + `. ` + "`sidecarctl completion bash`, `zsh`, `fish` or `powershell`" + ` prints what a shell completes its words by; kubectl
does so with ` + "`kubectl_complete-sidecar_cni`" + ` of the archive on the PATH. From a symptom to the command leads
[troubleshooting.md](troubleshooting.md).

A target is ` + "`NAMESPACE/POD`, `POD` or `TYPE/NAME`, such as `deployment/web`" + `, whose template is then meant; or a file with pods and whatever
has a pod template. A template is what its manifest says: what a webhook adds is in the pods only.

It ends with 0 if all is well, 1 after an error, 2 if the command line is wrong, 3 if something is wrong, such as a pod that does
not start, and 126 if the validation of init failed. Text has 80 columns, and colour on a terminal, unless ` + "`NO_COLOR`" + ` is set. The fields of ` + "`-o json`" + ` and ` + "`-o yaml`" + ` are in [sidecarctl-json.md](sidecarctl-json.md).

What only the node knows is read on the node: what its chain sets for all pods, what was recorded when the pod started, and what its
kernel has. The commands do so as root on the pod's node, where ` + "`--pid` and `--netns`" + ` name a network namespace, and from
elsewhere by running sidecarctl in the node's agent, through the API's exec; [security.md](security.md) says which rights that takes.
What could not be learned is said.

For a manifest, pass the nameservers by ` + "`--nameserver`" + `, the addresses by ` + "`--pod-ip`" + `, and what the cluster sets for all pods by
` + "`--entry`" + `, a file with the plugin's entry as it is in a node's chain. Without these, such pods have the addresses of documentation
(192.0.2.10 and 2001:db8::10), and the cluster sets nothing.

` + "`node`" + ` looks at the machine that it runs on, or by its agent at another, ` + "`cluster`" + ` at what the API server knows; the examples show
nodes whose kernel has no table nat.

The other examples are about this Deployment:

`
)

// examples are shown for each command.
var examples = map[string][][]string{
	"explain": {{"explain", "-f", "web.yaml"}},
	"trace": {
		{"trace", "-f", "web.yaml", "--from", "app", "--to", "10.10.0.43:5432"},
		{"trace", "-f", "web.yaml", "--from", "peer", "--to", "self:8080"},
		{"trace", "-f", "web.yaml", "--to", "10.10.0.43:443", "-o", "yaml"},
		{"trace", "-f", "web.yaml", "--all", "--pod-ip", "10.244.0.7"},
	},
	"rules": {{"rules", "-f", "web.yaml"}},
	"init":  {{"init", "--dry-run", "-i", "10.0.0.0/8", "-b", "80"}},
	"compare": {
		{"compare", "istio-init:-p 15001 -z 15006 -u 1337 -i * -b * -d 15090,15021,15020", "web.yaml"},
	},
}

// reports are of commands that show what is on a machine or in a cluster: the page has one that
// was kept, in testdata, in the form of -o json.
var reports = map[string]func() view.Texter{
	"node":    func() view.Texter { return &node.Report{} },
	"verify":  func() view.Texter { return &verify.Answers{} },
	"cluster": func() view.Texter { return &cluster.Report{} },
}

// reportOn is what their answers are about, if the command has to be told.
var reportOn = map[string]string{"verify": "shop/web-0"}

// plainWord is one that a shell leaves as it is.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellLine returns arguments as one types them in a shell.
func shellLine(args []string) string {
	var words []string
	for _, a := range args {
		if !plainWord.MatchString(a) {
			a = "'" + a + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

func shown(t *testing.T, name string, report view.Texter) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(report); err != nil {
		t.Fatal(err)
	}
	var asText, asJSON bytes.Buffer
	if err := view.Show(&asJSON, view.JSON, false, report); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(data), asJSON.String()); diff != "" {
		t.Errorf("%s.json is not what -o json writes (-want +got):\n%s", name, diff)
	}
	if err := view.Show(&asText, view.Text, false, report); err != nil {
		t.Fatal(err)
	}
	return asText.String()
}

func TestPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(pageHead)
	manifest, err := os.ReadFile("testdata/web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	block(&b, "yaml", string(manifest))
	for _, c := range (env{}).commands() {
		if c.Hidden {
			continue
		}
		b.WriteString("\n## " + c.Name() + "\n\n" + c.Long + "\n\n")
		for _, args := range examples[c.Name()] {
			out, stderr, code := run(t.Context(), "", in("testdata", args)...)
			if code != 0 && code != exitAmiss {
				t.Fatalf("%v: %d, %s", args, code, stderr)
			}
			block(&b, "", "$ sidecarctl "+shellLine(args)+"\n"+out)
			b.WriteString("\n")
		}
		if c.Name() == "watch" {
			block(&b, "", "$ sidecarctl watch shop/web-0\n"+watched(t))
			b.WriteString("\n")
		}
		if report := reports[c.Name()]; report != nil {
			line := strings.TrimSpace(c.Name() + " " + reportOn[c.Name()])
			block(&b, "", "$ sidecarctl "+line+"\n"+shown(t, c.Name(), report()))
			b.WriteString("\n")
		}
		block(&b, "", flagsOf(c))
	}
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(have)); diff != "" {
		t.Errorf("%s is not what the commands say; run make generate (-want +got):\n%s", page, diff)
	}
}

// watched is what watch shows of events that a pod once had.
func watched(t *testing.T) string {
	t.Helper()
	events, err := os.Open("testdata/watch.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	var text bytes.Buffer
	if err := watch.Decode(events, watch.NewWriter(&text, view.Text).Write); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// in has arguments read files in a folder.
func in(folder string, args []string) []string {
	var all []string
	for _, a := range args {
		if strings.HasSuffix(a, ".yaml") {
			a = folder + "/" + a
		}
		all = append(all, a)
	}
	return all
}

func flagsOf(c *cobra.Command) string { return c.Flags().FlagUsagesWrapped(100) }

func block(b *strings.Builder, language, text string) {
	b.WriteString("```" + language + "\n" + strings.TrimRight(text, "\n") + "\n```\n")
}

func TestOutputsForPrograms(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"explain", "rules", "trace"} {
		args := []string{command, "-f", "testdata/web.yaml", "-o"}
		if command == "trace" {
			args = append([]string{command, "--all"}, args[1:]...)
		}
		asJSON, _, code := run(t.Context(), "", append(args, "json")...)
		if code != 0 || !bytes.HasPrefix([]byte(asJSON), []byte("[\n")) {
			t.Errorf("%s: %d, %s", command, code, asJSON)
		}
		asYAML, _, _ := run(t.Context(), "", append(args, "yaml")...)
		if !strings.Contains(asYAML, "pod: shop/web (Deployment)") {
			t.Errorf("%s: %s", command, asYAML)
		}
	}
}

// What the page of troubleshooting has people type exists.
func TestTroubleshootingCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]*cobra.Command{}
	for _, c := range (env{}).commands() {
		commands[c.Name()] = c
	}
	typed := regexp.MustCompile(`sidecarctl ([a-z]+)((?: [^\s`+"`"+`]+)*)`).FindAllStringSubmatch(string(text), -1)
	asked := map[string]bool{}
	for _, one := range typed {
		c, ok := commands[one[1]]
		asked[one[1]] = true
		for word := range strings.FieldsSeq(one[2]) {
			name, long := strings.CutPrefix(word, "--")
			if ok && long && c.Flags().Lookup(name) == nil {
				t.Errorf("%s: there is no --%s", one[0], name)
			}
		}
	}
	for name := range commands {
		if !asked[name] && !commands[name].Hidden {
			t.Errorf("nobody is told to type sidecarctl %s", name)
		}
	}
}
