package kernel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftrace"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// victim names the variable by which this test's program is told to trace in a namespace, again and
// again, until it is killed.
const victim = "SIDECAR_CNI_TRACE_VICTIM"

// TestTraceVictim is no test: TestNothingIsLeftOfATracerThatIsKilled runs it as a process.
func TestTraceVictim(t *testing.T) {
	path := os.Getenv(victim)
	if path == "" {
		return
	}
	_, rs := compile(t, matrix.Plain())
	host, err := podns.FindHost("/proc", "the test")
	if err != nil {
		t.Fatal(err)
	}
	n, err := host.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	request := appCalls(rs)
	if peer := os.Getenv(victim + "_PEER"); peer != "" {
		request = nftrace.Request{Rules: rs, Nodes: []string{peer}, Packet: packet.Packet{
			Protocol: redirect.TCP, In: "eth0", Source: netip.MustParseAddrPort("192.0.2.1:1"),
			Destination: netip.AddrPortFrom(netns.PodIPv4, 80)}}
	}
	fmt.Println("ready")
	for {
		way, err := nftrace.Send(t.Context(), n, request)
		if err != nil {
			t.Fatal(err)
		}
		if os.Getenv(victim+"_ONCE") != "" {
			fmt.Println(drawWay(way))
			return
		}
	}
}

// appCalls is a packet that the app sends to another pod.
func appCalls(rs redirect.Ruleset) nftrace.Request {
	return nftrace.Request{Rules: rs, Packet: packet.Packet{Protocol: redirect.TCP,
		Destination: netip.MustParseAddrPort("192.0.2.7:80"),
		Owner:       &packet.Owner{UID: 1000, GID: 1000}}}
}

// A tracer that is killed at any moment leaves no table behind.
func TestNothingIsLeftOfATracerThatIsKilled(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	_, rs := compile(t, matrix.Plain())
	pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
	before := pod.Run(t, "", "nft", "list", "tables")
	seen := 0
	for i := range 30 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestTraceVictim$")
		cmd.Env = append(os.Environ(), victim+"="+pod.Path())
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		for range i * i * 20 { // a moment that differs from run to run
			_ = unix.Getppid()
		}
		if i%3 == 0 { // and for certain with a table
			for range 1000 {
				if strings.Contains(pod.Run(t, "", "nft", "list", "tables"), "trace") {
					seen++
					break
				}
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		// The kernel removes the table with the socket, of which a closing process lets go before
		// it can be waited for; the removal itself it leaves to a worker.
		await.Until(t, "the tables are "+before,
			func() bool { return pod.Run(t, "", "nft", "list", "tables") == before })
	}
	if seen == 0 {
		t.Error("no tracer was killed while its table was there")
	}
}

// While a packet is traced, nobody else can change the tracing table, and no other table changes.
func TestTracingTouchesNothingElse(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	_, rs := compile(t, matrix.Plain())
	pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
	pod.Run(t, "table ip other {\n chain c {\n counter\n }\n}", "nft", "-f", "-")
	before := withoutCounters(pod.Run(t, "", "nft", "-a", "list", "ruleset"))
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		err := nftrace.Follow(ctx, pod.opened, nftrace.Filter{Protocol: redirect.TCP,
			To: netip.MustParseAddrPort("192.0.2.7:80"), Rules: rs},
			func(nftrace.Way) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Follow: %v", err)
		}
	})
	var tracing string
	await.Until(t, "there is a tracing table", func() bool {
		for _, table := range listed(t, pod.NS) {
			if strings.HasPrefix(table.Name, "sidecar-cni-trace-") {
				tracing = table.Name
				if table.Flags != "owner" {
					t.Errorf("table %s has flags %q", table.Name, table.Flags)
				}
			}
		}
		return tracing != ""
	})
	pod.NS.Do(t, func() {
		out, err := exec.Command("nft", "delete", "table", "inet", tracing).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "not permitted") {
			t.Errorf("nft deletes the tracing table: %v, %s", err, out)
		}
	})
	cancel()
	done.Wait()
	after := ""
	await.Until(t, "the tracing table is gone", func() bool {
		after = withoutCounters(pod.Run(t, "", "nft", "-a", "list", "ruleset"))
		return !strings.Contains(after, tracing)
	})
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("rules changed (-before +after):\n%s", diff)
	}
}

func withoutCounters(text string) string { return asNFT(text) }

// What cannot be traced is refused, with the reason.
func TestRefusedTraces(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	_, rs := compile(t, matrix.Plain())
	pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
	legacy := newTracedPod(t, dialectOf(t, redirect.IptablesLegacy), rs)
	plain := netns.New(t)
	plain.RaiseLoopback(t)
	to := netip.MustParseAddrPort("10.244.0.2:80")
	enters := func(through string) packet.Packet {
		return packet.Packet{Protocol: redirect.TCP, In: through, Destination: to,
			Source: netip.MustParseAddrPort("192.0.2.1:1")}
	}
	app := appCalls(rs)
	unknown := app
	unknown.Packet.Out = "nowhere0"
	unknown.Packet.Destination = netip.MustParseAddrPort("[fe80::1]:80")
	for name, row := range map[string]struct {
		in      *podns.Namespace
		request nftrace.Request
		want    string
	}{
		"legacy iptables": {legacy.opened, app, "legacy iptables"},
		"no sender":       {pod.opened, nftrace.Request{Rules: rs}, "want a packet with an owner"},
		"no route":        {opened(t, plain), app, "look at the pod's routes"},
		"no such zone":    {pod.opened, unknown, `"nowhere0"`},
		"no such uplink":  {pod.opened, nftrace.Request{Packet: enters("eth9")}, `"eth9"`},
		"no veth":         {pod.opened, nftrace.Request{Packet: enters("lo")}, "lo is no veth"},
		"peer out of sight": {pod.opened, nftrace.Request{Packet: enters("eth0")},
			"in a namespace other than the node's"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nftrace.Send(t.Context(), row.in, row.request)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want it to say %s", err, row.want)
			}
		})
	}
}

// A packet that the kernel drops by itself is said to be gone, and by a policy, to be dropped.
func TestWhatElseDropsAPacket(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	_, rs := compile(t, matrix.Plain())
	for name, row := range map[string]struct{ rules, want string }{
		"a policy": {"table ip other {\n chain c {\n type filter hook output priority 0\n" +
			"policy drop\n }\n}", "the policy of ip other c dropped it"},
		"a rule": {"table ip other {\n chain c {\n type filter hook output priority 0\n" +
			"tcp dport 15001 drop comment \"no\"\n }\n}", "the last rule dropped it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
			pod.Run(t, row.rules, "nft", "-f", "-")
			way, err := nftrace.Send(t.Context(), pod.opened, appCalls(rs))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(way.End.String(), row.want) {
				t.Errorf("want %s, got:\n%s", row.want, drawWay(way))
			}
		})
	}
}

// What routing drops is gone: a peer that claims to be the pod.
func TestAPacketThatRoutingDrops(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	_, rs := compile(t, matrix.Plain())
	pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
	way, _, err := pod.live(t, call{from: "peer", proto: redirect.TCP, source: netns.PodIPv4,
		to: netip.AddrPortFrom(netns.PodIPv4, 80)})
	if err != nil {
		t.Fatal(err)
	}
	if way.End.Kind != nftrace.Gone {
		t.Errorf("want it to be gone, got:\n%s", drawWay(way))
	}
}

// In a pod with a user namespace of its own the packet is sent as a user of that.
func TestLiveInAUserNamespace(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	_, rs := compile(t, matrix.Plain())
	pod := netns.NewPod(t, netns.Options{UserNamespace: true})
	apply(t, dialectOf(t, redirect.NFTables), pod.NS, rs)
	traced := tracedPod{pod, opened(t, pod.NS), rs}
	runIn(t, pod.NS)
	for _, as := range []netns.Identity{{UID: 1000, GID: 1000}, {UID: 1337, GID: 1337}} {
		c := call{from: "pod", as: as, proto: redirect.TCP,
			to: netip.MustParseAddrPort("192.0.2.7:80")}
		way, fate, err := traced.live(t, c)
		if err != nil {
			t.Fatal(err)
		}
		if same := way.Compare(fate); !same.Same || len(way.Rules) == 0 {
			t.Errorf("%s: %s\n  %s\n  %s", c, same.Says, drawWay(way), fate)
		}
	}
}

// runIn keeps a process in the user namespace of a pod, as every pod has some.
func runIn(t *testing.T, ns *netns.NS) {
	t.Helper()
	owner, err := unix.IoctlRetInt(ns.Fd(), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(owner), "user namespace")
	defer file.Close()
	cmd := exec.Command("nsenter", "--user=/proc/self/fd/3", "cat")
	cmd.ExtraFiles = []*os.File{file}
	in, err := cmd.StdinPipe() // which it waits for
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	var want, have unix.Stat_t
	if err := unix.Fstat(owner, &want); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "there is a process in the user namespace", func() bool {
		path := fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid)
		return unix.Stat(path, &have) == nil && have.Ino == want.Ino
	})
}

// A rule that is gone from the kernel is where the two part.
func TestLivePartsWhereARuleIsMissing(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	_, rs := compile(t, matrix.Plain())
	pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
	for _, table := range listed(t, pod.NS) {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				if r.Comment == "everything else" {
					pod.Run(t, "", "nft", "delete", "rule", table.Family, table.Name, c.Name,
						"handle", fmt.Sprint(r.Handle))
				}
			}
		}
	}
	c := call{from: "pod", as: netns.Identity{UID: 1000, GID: 1000}, proto: redirect.TCP,
		to: netip.MustParseAddrPort("192.0.2.7:80")}
	way, fate, err := pod.live(t, c)
	if err != nil {
		t.Fatal(err)
	}
	got := way.Compare(fate)
	want := "The kernel parts from the simulation at rule 2: it met no more rule, simulated is " +
		"nat ISTIO_OUTPUT 7 (everything else)."
	if got.Same || got.Says != want {
		t.Errorf("got %q, want %q\n%s", got.Says, want, drawWay(way))
	}
}

// Where nobody listens, TPROXY drops: the comparison says so.
func TestLiveWithoutATransparentListener(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	r := matrix.Plain()
	matrix.Options[0].Set(&r)
	_, rs := compile(t, r)
	for _, d := range backendsWithReports(t) {
		pod := newTracedPod(t, d, rs)
		way, fate, err := pod.live(t, call{from: "peer", proto: redirect.TCP,
			to: netip.MustParseAddrPort("10.244.0.2:8080")})
		if err != nil {
			t.Fatal(err)
		}
		if got := way.Compare(fate); got.Same ||
			!strings.Contains(got.Says, "nobody listens on port 15006") {
			t.Errorf("%s: %q\n%s", d.name, got.Says, drawWay(way))
		}
	}
}
