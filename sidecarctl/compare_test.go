package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// usualInit is the command line of Istio's template.
const usualInit = "istio-init:-p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -x '' -b * -d 15090,15021,15020"

func TestCompare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	plain := file("plain.yaml", deployment("", "", "", ""))
	open := file("open.yaml", deployment(
		`traffic.sidecar.istio.io/excludeOutboundPorts: "5432"`, "", "", ""))
	own := file("own.yaml", deployment(`sidecar-cni.io/excludeOutboundUIDs: "7"`, "", "", ""))
	left := file("left.yaml", deployment("", "hostNetwork: true", "", ""))
	wrong := file("wrong.yaml", deployment("traffic.sidecar.istio.io/excludeOutboundPorts: x",
		"", "", ""))
	rules, stderr, code := run(t.Context(), "", "rules", "-f", open, "--format", "iptables")
	if code != 0 {
		t.Fatal(stderr)
	}
	first, second, _ := strings.Cut(rules, "# ip6tables-restore\n")
	listing := "iptables:" + file("v4", first) + "," + file("v6", second)
	for name, row := range map[string]struct {
		args []string
		want string
		code int
	}{
		"a pod and itself":       {[]string{plain, plain}, "No packet is treated differently", 0},
		"a pod and another":      {[]string{plain, open}, "to port 5432 out of the pod", 3},
		"a pod and its rules":    {[]string{open, listing}, "No packet is treated differently", 0},
		"a pod and other rules":  {[]string{plain, listing}, "excluded outbound port", 3},
		"a pod and istio-init":   {[]string{usualInit, plain}, "No packet is treated differently", 0},
		"on purpose":             {[]string{usualInit, own}, "All differences are on purpose", 0},
		"the other way round":    {[]string{own, usualInit}, "All differences are on purpose", 0},
		"a pod without rules":    {[]string{plain, left}, "lets it pass", 3},
		"one file":               {[]string{plain}, "want another side to compare it with", 2},
		"a pod that is refused":  {[]string{plain, wrong}, "does not start", 1},
		"no listing":             {[]string{plain, "iptables:" + plain}, "read IPv4 rules: line 1", 1},
		"no file":                {[]string{plain, "iptables:" + dir + "/none"}, "no such file", 1},
		"no command line":        {[]string{plain, "istio-init:-Q"}, `unknown flag "-Q"`, 1},
		"an asterisk of a shell": {[]string{plain, "istio-init:-i a b"}, `"b" stands alone`, 1},
		"three sides":            {[]string{plain, open, own}, "3 sides: want two", 2},
		"no side":                {nil, "0 sides: want two", 2},
	} {
		out, stderr, code := run(t.Context(), "", append([]string{"compare"}, row.args...)...)
		if code != row.code || !strings.Contains(flat(out+stderr), row.want) {
			t.Errorf("%s: got %d, %s%s; want %d, %s", name, code, out, stderr, row.code, row.want)
		}
	}
}

// Marks of TPROXY are counted where it is said where connections go, but not left out for programs.
func TestCompareTheModes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain, other := filepath.Join(dir, "plain.yaml"), filepath.Join(dir, "other.yaml")
	write(t, plain, deployment("", "", "", ""))
	write(t, other, deployment("sidecar.istio.io/interceptionMode: TPROXY", "", "", ""))
	short, _, code := run(t.Context(), "", "compare", plain, other)
	if code != exitAmiss || strings.Count(short, "\n") > 20 || strings.Contains(short, "mark 13") ||
		!strings.Contains(short, "hands it to 15006") ||
		!strings.Contains(short, " more are not about where a connection goes: --all names them.\n") {
		t.Errorf("%d\n%s", code, short)
	}
	long, _, code := run(t.Context(), "", "compare", "--all", plain, other)
	if code != exitAmiss || !strings.Contains(long, "mark 1338") || strings.Contains(long, "--all") {
		t.Errorf("%d\n%s", code, long)
	}
	for _, args := range [][]string{{"-o", "json"}, {"-o", "json", "--all"}} {
		out, _, _ := run(t.Context(), "", append([]string{"compare", plain, other}, args...)...)
		var got comparison
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Sentences) < 50 ||
			!strings.HasPrefix(flat(short), got.Sentences[0]) {
			t.Errorf("%q: %v, %d sentences", args, err, len(got.Sentences))
		}
	}
}

// What a pod has is compared with what it asks for now.
func TestCompareThenAndNow(t *testing.T) {
	t.Parallel()
	const entry = `{"type": "sidecar-cni"}`
	for name, row := range map[string]struct {
		annotations string
		unknown     bool
		want        string
		code        int
	}{
		"the same":  {"", false, "No packet is treated differently by what it has", 0},
		"changed":   {`, "traffic.sidecar.istio.io/excludeInboundPorts": "9"`, false, "to port 9", 3},
		"no record": {"", true, "its node has no record of it", 1},
	} {
		c := &apiServer{objects: map[string]string{webPath: web(row.annotations)},
			dirs: nodeDirs(t, entry)}
		if !row.unknown {
			c.dirs = nodeDirs(t, entry, started(t))
		}
		out, stderr, code := c.ask(t, "compare", "shop/web-0")
		if code != row.code || !strings.Contains(flat(out+stderr), row.want) {
			t.Errorf("%s: got %d, %s%s; want %d, %s", name, code, out, stderr, row.code, row.want)
		}
	}
}
