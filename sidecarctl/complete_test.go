package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// What a shell offers is asked for by cobra's own command for that.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"expl":            {"explain"},
		"explain -o ":     {"text", "json", "yaml"},
		"rules --format ": {"nft", "iptables"},
		"trace --from ":   {"app", "proxy", "peer", "uid:"},
	} {
		out, _, code := run(t.Context(), "", append([]string{"__complete"},
			strings.Split(line, " ")...)...)
		var got []string
		for offer := range strings.Lines(out) {
			if word := strings.Fields(offer)[0]; !strings.HasPrefix(word, ":") {
				got = append(got, word)
			}
		}
		if diff := cmp.Diff(want, got); code != 0 || diff != "" {
			t.Errorf("%q: %d (-want +got):\n%s", line, code, diff)
		}
	}
}

func TestEachShellHasACompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		out, stderr, code := run(t.Context(), "", "completion", shell)
		if code != 0 || !strings.Contains(out, "sidecarctl") {
			t.Errorf("%s: %d, %s", shell, code, stderr)
		}
	}
}

// kubectl starts a plugin under the name of its file.
func TestUsageIsOfTheNameItWasCalledBy(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"/usr/bin/sidecarctl":                 "sidecarctl trace [TARGET]",
		"":                                    "sidecarctl trace [TARGET]",
		"/home/a/.krew/kubectl-sidecar_cni":   "kubectl sidecar-cni trace [TARGET]",
		"/home/a/bin/kubectl-sidecar_cni.exe": "kubectl sidecar-cni trace [TARGET]",
	} {
		var out bytes.Buffer
		e := env{name: name, args: []string{"trace", "--help"}, stdout: &out, stderr: &out}
		if code := e.run(t.Context()); code != 0 || !strings.Contains(out.String(), "  "+want) {
			t.Errorf("%q: %d\n%s", name, code, &out)
		}
	}
}

// Help fits a terminal, whatever it is about.
func TestHelpFitsATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range append((env{}).commands(), &cobra.Command{Use: "completion"}) {
		for _, args := range [][]string{{"help", c.Name()}, {c.Name(), "--help"}} {
			out, stderr, code := run(t.Context(), "", args...)
			if code != 0 || !strings.Contains(out, "sidecarctl "+c.Name()) {
				t.Errorf("%q: %d, %s%s", args, code, out, stderr)
			}
			for line := range strings.Lines(out) {
				if len(line)-1 > view.Width {
					t.Errorf("%q: more than %d columns: %s", args, view.Width, line)
				}
			}
		}
	}
	out, _, _ := run(t.Context(), "", "completion", "bash", "--help")
	if !strings.Contains(out, "\n\tsource <(sidecarctl completion bash)\n") {
		t.Errorf("what is to be typed is not as it was:\n%s", out)
	}
}

func TestHelpThatThereIsNot(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"help nosuch":       "help nosuch: there is no such command",
		"help trace nosuch": "help trace nosuch: there is no such command",
		"completion foo":    "completion foo: want one of bash, fish, powershell, zsh",
	} {
		out, stderr, code := run(t.Context(), "", strings.Split(line, " ")...)
		if code != exitUsage || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d, %s%s", line, code, out, stderr)
		}
	}
}
