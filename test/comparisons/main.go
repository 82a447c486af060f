// Comparisons prints the comparisons that docs/from-istio-cni.md shows, and the differences on
// purpose that README.md lists: go run ./test/comparisons.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

//go:generate go test . -run TestPages -update

func main() {
	text, err := comparisons()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
	fmt.Fprint(os.Stdout, text, "\n", onPurpose())
}

// onPurpose is the list of README.md.
func onPurpose() string {
	var b strings.Builder
	for _, p := range compare.Purposes {
		if p.Readme != "" {
			fmt.Fprintf(&b, "- %s\n", p.Readme)
		}
	}
	return b.String()
}

// comparisons is the part of docs/from-istio-cni.md.
func comparisons() (string, error) {
	tproxy := annotated(map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"})
	var b strings.Builder
	for _, c := range []struct {
		title string
		pod   matrix.Request
	}{
		{"A pod that asks for nothing", matrix.Plain()},
		{"The client's address kept, by TPROXY", tproxy},
	} {
		text, err := withIstioInit(c.pod)
		if err != nil {
			return "", fmt.Errorf("%s: %w", c.title, err)
		}
		fmt.Fprintf(&b, "### %s\n\n%s\n", c.title, text)
	}
	meant := map[string]string{matrix.Traffic + "excludeOutboundPorts": "5432"}
	written := map[string]string{matrix.Traffic + "excludeInboundPorts": "5432"}
	text, err := withAnother(annotated(meant), annotated(written))
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "### A mistake in an annotation\n\nThe database is to be reached past the "+
		"proxy, so meant was\n\n```yaml\n%s```\n\nand written was\n\n```yaml\n%s```\n\n%s",
		yaml(meant), yaml(written), text)
	return b.String(), nil
}

func annotated(annotations map[string]string) matrix.Request {
	r := matrix.Plain()
	maps.Copy(r.Pod.Annotations, annotations)
	return r
}

func yaml(annotations map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		fmt.Fprintf(&b, "%s: %q\n", key, annotations[key])
	}
	return b.String()
}

// withIstioInit compares what istio-init does for a pod with what this project does.
func withIstioInit(r matrix.Request) (string, error) {
	args, _ := matrix.IstioInit(r)
	listing, pod, err := matrix.SecondPen(r, true)
	if err != nil {
		return "", err
	}
	tables, err := xtables.Read(listing.IPv4, listing.IPv6)
	if err != nil {
		return "", err
	}
	tables.Routed = listing.Marks
	ours := simulate.New(redirect.Compile(pod.Policy))
	differences := compare.Separate(compare.Compare(tables, ours), pod)
	words := compare.Words{A: "istio-init", B: "sidecar-cni", Proxy: pod.Policy.Proxy}
	return fmt.Sprintf("```text\nistio-iptables %s\n```\n\n```text\n%s```\n", quoted(args),
		compare.Explain(differences, words)), nil
}

// withAnother compares what two pods ask for.
func withAnother(meant, written matrix.Request) (string, error) {
	a, errA := policyOf(meant)
	b, errB := policyOf(written)
	if errA != nil || errB != nil {
		return "", fmt.Errorf("read the pods: %w, %w", errA, errB)
	}
	differences := compare.Compare(simulate.New(redirect.Compile(a)),
		simulate.New(redirect.Compile(b)))
	words := compare.Words{A: "what was meant", B: "what was written", Proxy: a.Proxy}
	return fmt.Sprintf("```text\n%s```\n", compare.Explain(differences, words)), nil
}

func policyOf(r matrix.Request) (redirect.Policy, error) {
	d, err := redirect.Decide(r.Pod, r.Config)
	if err == nil && d.Skip != "" {
		err = fmt.Errorf("skipped: %s", d.Skip)
	}
	return d.Policy, err
}

// quoted writes arguments as a shell takes them.
func quoted(args []string) string {
	words := slices.Clone(args)
	for i, w := range words {
		if w == "" || w == "*" {
			words[i] = "'" + w + "'"
		}
	}
	return strings.Join(words, " ")
}
