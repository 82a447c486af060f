package main

import (
	"encoding/json"
	"io"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect/kernelrules"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// redirectedPod is a pod that has the rules of testdata/web.yaml, written by nft.
func redirectedPod(t *testing.T) *netns.Pod {
	t.Helper()
	netns.RequireRoot(t)
	pod := netns.NewPod(t, netns.Options{})
	rules, stderr, code := run(t.Context(), "", "rules", "-f", "testdata/web.yaml")
	if code != 0 {
		t.Fatal(stderr)
	}
	pod.Run(t, rules, "nft", "-f", "-")
	return pod
}

// inPod are the arguments of a command about a pod.
func inPod(pod *netns.Pod, args ...string) []string {
	return append(args, "-f", "testdata/web.yaml", "--netns", pod.Path(),
		"--pod-ip", netns.PodIPv4.String())
}

func TestTraceLive(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		nft  string // is done to the pod's rules first
		args []string
		code int
		says []string
	}{
		"the same": {
			args: []string{"--to", "10.10.0.43:5432"},
			says: []string{"past the proxy\nThe kernel took it through the same 2 rules.\n"},
		},
		"captured": {
			args: []string{"--to", "10.10.0.43:80"},
			says: []string{"──▶ proxy, port 15001\nThe kernel took it through the same 3 rules.\n" +
				"proxy (uid 1337) ──▶ 10.10.0.43:80"},
		},
		"by uid": {
			args: []string{"--from", "uid:1337", "--to", "10.10.0.43:80"},
			says: []string{"The kernel took it through the same 2 rules.\n"},
		},
		"UDP": {
			args: []string{"--udp", "--to", "10.10.0.43:53"},
			says: []string{"UDP, leaves through eth0", "The kernel took it through the same 2 rules."},
		},
		"a rule that somebody has put in between": {
			nft:  "insert rule inet sidecar-cni ISTIO_OUTPUT tcp dport 80 return",
			args: []string{"--to", "10.10.0.43:80"}, code: exitAmiss,
			says: []string{"parts from the simulation at rule 2", "tcp dport 80 return",
				"simulated is nat ISTIO_OUTPUT 8",
				"it leaves through eth0 to 10.10.0.43:80"},
		},
		"another port": {
			nft: "flush chain inet sidecar-cni ISTIO_REDIRECT\n" +
				"add rule inet sidecar-cni ISTIO_REDIRECT meta l4proto tcp redirect to :15099 " +
				"comment \"to the outbound listener of the proxy\"",
			args: []string{"--to", "10.10.0.43:80"}, code: exitAmiss,
			says: []string{"the same 3 rules and then parts from the simulation: it stays in the " +
				"pod, at 127.0.0.1:15099, simulated is: redirected to port 15001."},
		},
		"a firewall": {
			nft: "add table ip fw\nadd chain ip fw out { type filter hook output priority 0; }\n" +
				"add rule ip fw out counter drop comment \"nobody talks\"",
			args: []string{"--to", "10.10.0.43:5432"}, code: exitAmiss,
			says: []string{"nobody talks", "the last rule dropped it"},
		},
		"a rule of others that lets it pass": {
			nft: "add table ip fw\nadd chain ip fw out { type filter hook output priority 0; }\n" +
				"add rule ip fw out counter accept",
			args: []string{"--to", "10.10.0.43:5432"},
			says: []string{"The kernel took it through the same 2 rules.", "ip fw out 1"},
		},
		"a family that it has no way for": {
			args: []string{"--to", "[2001:db8::7]:80"}, code: exitUsage,
			says: []string{"no address of the family"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := redirectedPod(t)
			if row.nft != "" {
				pod.Run(t, row.nft, "nft", "-f", "-")
			}
			out, stderr, code := run(t.Context(), "",
				inPod(pod, append([]string{"trace", "--live"}, row.args...)...)...)
			if code != row.code {
				t.Errorf("code %d, want %d", code, row.code)
			}
			for _, want := range row.says {
				if !strings.Contains(strings.Join(strings.Fields(out+stderr), " "),
					strings.Join(strings.Fields(want), " ")) {
					t.Errorf("want %q in:\n%s%s", want, out, stderr)
				}
			}
		})
	}
}

// The usual packets are sent, but for those of a peer whose end cannot be seen from here.
func TestTraceAllLive(t *testing.T) {
	t.Parallel()
	out, stderr, code := run(t.Context(), "", inPod(redirectedPod(t), "trace", "--live", "--all")...)
	if code != 0 || !strings.Contains(out, "The kernel took 5 of the 5 that were sent through the same rules;") ||
		strings.Count(out, "The kernel could not be asked: the interface has no end") != 3 {
		t.Errorf("%d: %s%s", code, out, stderr)
	}
}

// What --live prints for programs has all that the text says.
func TestTraceLiveForPrograms(t *testing.T) {
	t.Parallel()
	out, stderr, code := run(t.Context(), "",
		inPod(redirectedPod(t), "trace", "--live", "--to", "10.10.0.43:80", "-o", "json")...)
	var got ways
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("%d, %v: %s%s", code, err, out, stderr)
	}
	kernel := got[0].Talks[0].Kernel
	want := netip.MustParseAddrPort("127.0.0.1:15001")
	if kernel == nil || !kernel.Comparison.Same || len(kernel.Way.Rules) != 3 ||
		kernel.Way.End.To != want || kernel.Way.Rules[0].Place != "nat OUTPUT 1" {
		t.Errorf("got %+v", kernel)
	}
}

func TestTraceWait(t *testing.T) {
	t.Parallel()
	pod := redirectedPod(t)
	read, write := io.Pipe()
	done := make(chan int)
	go func() {
		e := env{args: inPod(pod, "trace", "--wait", "--count", "2", "--to", "10.10.0.43:80", "-o",
			"json"), stdout: write, stderr: io.Discard}
		code := e.run(t.Context())
		_ = write.Close()
		done <- code
	}()
	for traced := false; !traced; { // until it listens
		pod.Do(t, func() {
			tables, err := kernelrules.Read()
			if err != nil {
				t.Fatal(err)
			}
			traced = len(tables) == 2
		})
	}
	call := netns.Call{As: netns.Identity{UID: 1000}, Network: "tcp",
		To: netip.MustParseAddrPort("10.10.0.43:80")}
	go func() {
		for range 2 {
			pod.Dial(t, call)
		}
	}()
	lines := json.NewDecoder(read)
	for range 2 {
		var got talk
		if err := lines.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if got.Kernel == nil || !got.Kernel.Comparison.Same || got.Legs[0].To != "10.10.0.43:80" {
			t.Errorf("got %+v", got)
		}
	}
	if code := <-done; code != 0 {
		t.Errorf("ended with %d", code)
	}
}

func TestRulesOfTheKernel(t *testing.T) {
	t.Parallel()
	pod := redirectedPod(t)
	pod.Run(t, "add table ip fw\nadd chain ip fw out { type filter hook output priority 0; }\n"+
		"add rule ip fw out counter accept comment \"a rule\"", "nft", "-f", "-")
	pod.Dial(t, netns.Call{As: netns.Identity{UID: 1000}, Network: "tcp",
		To: netip.MustParseAddrPort("10.10.0.43:80")})
	out, stderr, code := run(t.Context(), "", inPod(pod, "rules", "--kernel")...)
	if code != 0 {
		t.Fatalf("%d: %s", code, stderr)
	}
	handles := regexp.MustCompile(` (\{) # handle \d+|priority \S+;`)
	want := handles.ReplaceAllString(pod.Run(t, "", "nft", "-a", "list", "ruleset"), " $1")
	_, listed, _ := strings.Cut(handles.ReplaceAllString(out, " $1"), "table")
	if got := "table" + listed; got != want {
		t.Errorf("got\n%s\nwant what nft lists:\n%s", got, want)
	}
	if !strings.Contains(out, "counter packets 1 bytes 60 redirect to :15001") {
		t.Errorf("want the counters in:\n%s", out)
	}
}

func TestRulesOfTheKernelAsIptables(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	rules, _, _ := run(t.Context(), "", "rules", "-f", "testdata/web.yaml", "--format", "iptables")
	ipv4, ipv6, _ := strings.Cut(rules, "# ip6tables-restore\n")
	for _, variant := range []string{"nft", "legacy"} {
		pod := netns.NewPod(t, netns.Options{})
		pod.Run(t, ipv4, "iptables-"+variant+"-restore")
		pod.Run(t, ipv6, "ip6tables-"+variant+"-restore")
		out, stderr, code := run(t.Context(), "",
			inPod(pod, "rules", "--kernel", "--format", "iptables")...)
		for _, want := range []string{"# iptables-" + variant + "-save -c\n",
			"# ip6tables-" + variant + "-save -c\n",
			`[0:0] -A ISTIO_OUTPUT -p tcp -m tcp --dport 5432 -m comment --comment "sidecar-cni: ` +
				`excluded outbound port" -j RETURN`} {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("%s: %d, want %q in:\n%s%s", variant, code, want, out, stderr)
			}
		}
		out, _, _ = run(t.Context(), "", inPod(pod, "rules", "--kernel")...)
		want := `tcp dport 5432 counter packets 0 bytes 0 return comment "excluded outbound port"`
		if !strings.Contains(out, want) || strings.Contains(out, "flags legacy") !=
			(variant == "legacy") {
			t.Errorf("%s: want %q in:\n%s", variant, want, out)
		}
		// Each variant is called at the same places, nat before and behind the routing decision.
		if !strings.Contains(out, "type nat hook output priority -100;") {
			t.Errorf("%s: nat has no place in:\n%s", variant, out)
		}
	}
	pod := redirectedPod(t)
	out, _, _ := run(t.Context(), "", inPod(pod, "rules", "--kernel", "--format", "iptables")...)
	if !strings.Contains(flat(out), "sidecar-cni; --format nft shows them # there are no rules "+
		"of iptables") {
		t.Errorf("of nftables alone:\n%s", out)
	}
}

// What makes no sense is refused in one line.
func TestRefusedLiveTraces(t *testing.T) {
	t.Parallel()
	web := []string{"trace", "-f", "testdata/web.yaml"}
	to := []string{"--to", "10.10.0.43:80"}
	for name, row := range map[string]struct {
		args []string
		code int
		says string
	}{
		"both":               {[]string{"--live", "--wait", "--to", "1.2.3.4:80"}, 2, "want one of them"},
		"wait for all":       {[]string{"--wait", "--all"}, 2, "want --to, not --all"},
		"count without wait": {append(to, "--count", "3"), 2, "want --wait"},
		"no namespace":       {append(to, "--live"), 1, "is no running pod"},
		"no such namespace":  {append(to, "--live", "--netns", "/nowhere"), 1, "no such file"},
		"not a namespace":    {append(to, "--wait", "--netns", "/etc/passwd"), 1, "it is no namespace"},
		"the host's": {append(to, "--live", "--netns", "/proc/thread-self/ns/net"), 1,
			"it is the host's"},
		"no format": {append(to, "--wait", "--netns", "/nowhere", "-o", "xml"), 2, "--output"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, stderr, code := run(t.Context(), "", append(append([]string{}, web...),
				row.args...)...)
			if code != row.code || out != "" || !strings.Contains(stderr, row.says) ||
				strings.Count(stderr, "\n") != 1 {
				t.Errorf("%d, want %d and %q: %s%s", code, row.code, row.says, out, stderr)
			}
		})
	}
}

// What others have named does not reach a terminal as it is.
func TestNamesOfOthersAreCleaned(t *testing.T) {
	t.Parallel()
	l := &kernelListing{Tables: []kernelrules.Table{{Family: "ip", Name: "a\x1b[31m",
		Chains: []kernelrules.Chain{{Name: "c", Rules: []kernelrules.Rule{
			{Handle: 1, Text: "accept", Comment: "b\x1b]0;x\ny"}}}}}}}
	shown := listings{{Pod: "a", Kernel: l, Rules: "b\x1b[31m\n"}}
	var text strings.Builder
	if err := view.Show(&text, view.Text, false, shown); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(text.String(), '\x1b') || !strings.Contains(text.String(), "\tchain c") {
		t.Errorf("got %q", text.String())
	}
}
