package main

import (
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kernelrules"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// recordedAlone is a pod of which there is no more than a record, in the directories of its node.
func recordedAlone(t *testing.T) (*netns.Pod, env) {
	t.Helper()
	pod := netns.NewPod(t, netns.Options{})
	pod.Do(t, func() {
		if _, err := nftables.Apply(t.Context(), redirect.Compile(started(t).Policy)); err != nil {
			t.Fatal(err)
		}
	})
	return pod, env{root: true, dirs: nodeDirs(t, "", recordedIn(t, pod))}
}

// A packet is sent to the addresses that the open namespace has, where nobody says any.
func TestTraceAsksTheNamespaceForItsAddresses(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	recorded, ofNode := recordedAlone(t)
	web := redirectedPod(t)
	for name, row := range map[string]struct {
		in   env
		args []string
		want []string
	}{
		"by record": {ofNode, []string{"--netns", recorded.Path(), "--to", "self:8080"},
			[]string{"app (uid 1000, assumed) ──▶ 10.244.0.2:8080, TCP, leaves through lo",
				"The kernel took it through the same"}},
		"by a template": {env{}, []string{"--netns", web.Path(), "-f", "testdata/web.yaml", "--to",
			"self:8080"}, []string{"──▶ 10.244.0.2:8080, TCP, leaves through lo",
			"The kernel took it through the same 2 rules."}},
		"all": {ofNode, []string{"--netns", recorded.Path(), "--all"},
			[]string{"10.244.0.2:8080, in the pod", "[fd00:244::2]:8080, in the pod",
				"The kernel took 10 of the 10 that were sent"}},
	} {
		var out, stderr strings.Builder
		e := row.in
		e.args, e.stdout, e.stderr = append([]string{"trace", "--live"}, row.args...), &out, &stderr
		code := e.run(t.Context())
		for _, want := range row.want {
			if code != 0 || !strings.Contains(flat(out.String()), want) {
				t.Errorf("%s: %d, want %q in:\n%s%s", name, code, want, &out, &stderr)
			}
		}
		// What the cluster sets does not matter to a record, nor to what a kernel has.
		if strings.Contains(out.String(), "not all was learned") {
			t.Errorf("%s: %s", name, &out)
		}
	}
}

// The rules of a namespace are read without a word about what the cluster sets.
func TestRulesOfARecordedNamespace(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	pod, e := recordedAlone(t)
	var out, stderr strings.Builder
	e.args, e.stdout, e.stderr = []string{"rules", "--kernel", "--netns", pod.Path()}, &out, &stderr
	if code := e.run(t.Context()); code != 0 || strings.Contains(out.String(), "not all was") ||
		!strings.Contains(out.String(), "redirect to :15001") {
		t.Errorf("%d: %s%s", code, &out, &stderr)
	}
}

// A namespace without an address has none to play for.
func TestTraceWithoutAddresses(t *testing.T) {
	t.Parallel()
	pod := redirectedPod(t)
	pod.Run(t, "", "ip", "address", "flush", "dev", "eth0")
	pod.Run(t, "", "ip", "address", "flush", "dev", "extra0")
	for _, how := range []string{"--live", "--wait"} {
		_, stderr, code := run(t.Context(), "", "trace", how, "-f", "testdata/web.yaml", "--netns",
			pod.Path(), "--to", "self:80")
		if code != exitError || !strings.Contains(stderr, "by --pod-ip") {
			t.Errorf("%s: %d, %s", how, code, stderr)
		}
	}
}

// Packets that could not be sent count for nothing beside others that were.
func TestTraceOfWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	pod := redirectedPod(t)
	pod.Run(t, "", "ip", "route", "delete", "default")
	all := inPod(pod, "trace", "--live", "--all")
	out, stderr, code := run(t.Context(), "", all...)
	if code != 0 || !strings.Contains(flat(out), "The kernel took 2 of the 2 that were sent "+
		"through the same rules; 6 could not be sent.") {
		t.Errorf("%d: %s%s", code, out, stderr)
	}
	out, _, _ = run(t.Context(), "", append(all, "-o", "json")...)
	var got []struct {
		Connections []struct{ Kernel map[string]any }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if k := got[0].Connections[0].Kernel; len(k) != 1 || k["unknown"] == nil {
		t.Errorf("of a packet that was not sent: %v", k)
	}
}

// Destinations that are more, or less, than one address.
func TestTraceLiveToUnusualDestinations(t *testing.T) {
	t.Parallel()
	pod := redirectedPod(t)
	for _, row := range []struct {
		args, want string
		code       int
	}{
		{"--to 0.0.0.0:80", "──▶ 127.0.0.1:80, TCP, leaves through lo|the same 2 rules", 0},
		{"--to [::]:80", "──▶ [::1]:80, TCP, leaves through lo|the same 2 rules", 0},
		{"--to [fe80::1%eth0]:80", "──▶ nobody|the same 3 rules", 0},
		{"--to [fe80::1]:80 --interface extra0", "──▶ nobody|the same 3 rules", 0},
		{"--to [fe80::1%nowhere]:80", `the pod has no interface "nowhere"`, 1},
		{"--udp --to 255.255.255.255:80", "past the proxy|the same 2 rules", 0},
		{"--udp --to 10.244.0.255:80", "past the proxy|the same 2 rules", 0},
		{"--udp --to [ff02::1%extra0]:80", "leaves through extra0|the same 2 rules", 0},
		{"--to 10.245.0.9:80 --interface extra0", "leaves through extra0|the same 3 rules", 0},
		{"--to 10.245.0.9:80 --interface eth0",
			"the pod's routes lead to 10.245.0.9 through extra0, not through eth0", 1},
	} {
		out, stderr, code := run(t.Context(), "", append([]string{"trace", "--live", "-f",
			"testdata/web.yaml", "--netns", pod.Path()}, strings.Fields(row.args)...)...)
		for want := range strings.SplitSeq(row.want, "|") {
			if code != row.code || !strings.Contains(flat(out+stderr), want) {
				t.Errorf("%s: %d, want %d and %q in:\n%s%s", row.args, code, row.code, want, out,
					stderr)
			}
		}
	}
}

// Who is followed is known by the ids that are known: the group comes from an image where no
// manifest says it, and of a record nobody knows the user either.
func TestTraceWaitForIDsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	recorded, ofNode := recordedAlone(t)
	web := redirectedPod(t)
	asRoot := filepath.Join(t.TempDir(), "root.yaml")
	manifest, err := os.ReadFile("testdata/web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, asRoot, regexp.MustCompile(`runAsUser: \d+`).ReplaceAllString(string(manifest),
		"runAsUser: 0"))
	proxy, app := netns.Identity{UID: 1337, GID: 1337}, netns.Identity{UID: 1000, GID: 1000}
	for name, row := range map[string]struct {
		in    env
		pod   *netns.Pod
		args  []string
		calls []netns.Identity // of which the last one is followed
	}{
		"a group of the image": {env{}, web, []string{"-f", "testdata/web.yaml"},
			[]netns.Identity{proxy, {UID: 1001, GID: 1000}, app}},
		"anybody but the proxy": {ofNode, recorded, nil,
			[]netns.Identity{proxy, {UID: 0, GID: 1337}, {UID: 999, GID: 999}}},
		"the proxy by its user": {env{}, web, []string{"-f", "testdata/web.yaml", "--from", "proxy"},
			[]netns.Identity{app, {UID: 1337, GID: 0}}},
		"the proxy by its group": {env{}, web, []string{"-f", asRoot, "--from", "proxy"},
			[]netns.Identity{app, {UID: 0, GID: 0}, {UID: 0, GID: 1337}}},
		"an app that is root, too": {env{}, web, []string{"-f", asRoot},
			[]netns.Identity{{UID: 0, GID: 1337}, {UID: 0, GID: 0}}},
		"a uid": {ofNode, recorded, []string{"--from", "uid:1005"},
			[]netns.Identity{app, {UID: 1005, GID: 7}}},
	} {
		t.Run(name, func(t *testing.T) {
			var out, stderr strings.Builder
			e := row.in
			e.stdout, e.stderr = &out, &stderr
			to := netip.MustParseAddrPort("10.10.0.43:5433")
			e.args = append([]string{"trace", "--wait", "--count", "1", "-o", "json", "--netns",
				row.pod.Path(), "--to", to.String()}, row.args...)
			done := make(chan int, 1)
			ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
			defer cancel()
			go func() { done <- e.run(ctx) }()
			awaitTracing(t, row.pod, 1)
			const firstPort = 20000
			for i, as := range row.calls {
				row.pod.Dial(t, netns.Call{As: as, Network: "tcp", To: to,
					FromPort: firstPort + uint16(i)})
			}
			code := <-done
			awaitTracing(t, row.pod, 0) // the kernel removes the table in its own time
			var got talk
			if err := json.Unmarshal([]byte(out.String()), &got); err != nil || code != 0 {
				t.Fatalf("%d, %v: %s%s", code, err, &out, &stderr)
			}
			last := firstPort + len(row.calls) - 1
			if from := got.Kernel.Way.Source.Port(); int(from) != last {
				t.Errorf("followed the packet from port %d, want %d", from, last)
			}
		})
	}
}

// What leaves by another interface than is asked for is not followed.
func TestTraceWaitByInterface(t *testing.T) {
	t.Parallel()
	pod := redirectedPod(t)
	var out strings.Builder
	to := netip.MustParseAddrPort("10.10.0.43:5433")
	e := env{stdout: &out, stderr: io.Discard, args: []string{"trace", "--wait", "--count", "1",
		"-f", "testdata/web.yaml", "--netns", pod.Path(), "--to", to.String(), "--interface",
		"extra0"}}
	done := make(chan int, 1)
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	go func() { done <- e.run(ctx) }()
	awaitTracing(t, pod, 1)
	call := netns.Call{As: netns.Identity{UID: 1000}, Network: "tcp", To: to}
	pod.Dial(t, call)
	pod.Run(t, "", "ip", "route", "add", "10.10.0.43", "via", netns.VMIPv4.String())
	pod.Dial(t, call)
	if code := <-done; code != 0 || !strings.Contains(out.String(), "leaves through extra0") {
		t.Errorf("%d: %s", code, &out)
	}
}

// tracing counts the tables of a pod that make its kernel report packets.
func tracing(t *testing.T, pod *netns.Pod) int {
	t.Helper()
	count := 0
	pod.Do(t, func() {
		tables, err := kernelrules.Read()
		if err != nil {
			t.Fatal(err)
		}
		count = len(slices.DeleteFunc(tables, func(table kernelrules.Table) bool {
			return !strings.HasPrefix(table.Name, "sidecar-cni-trace-")
		}))
	})
	return count
}

func awaitTracing(t *testing.T, pod *netns.Pod, want int) {
	t.Helper()
	await.Until(t, "tables that trace", func() bool { return tracing(t, pod) == want })
}
