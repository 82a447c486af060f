package validate_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// with returns the default pod with options on, by name.
func with(names ...string) matrix.Request {
	r := matrix.Plain()
	for _, name := range names {
		r = matrix.Options[slices.IndexFunc(matrix.Options,
			func(o matrix.Option) bool { return o.Name == name })].On(r)
	}
	return r
}

// ofPods returns the requests that pods make by themselves, on nodes as they usually are.
func ofPods(requests []matrix.Request) []matrix.Request {
	config := fmt.Sprint(redirect.Defaults())
	return slices.DeleteFunc(requests,
		func(r matrix.Request) bool { return fmt.Sprint(r.Config) != config })
}

// nothing is a pod that captures nothing.
func nothing(names ...string) matrix.Request {
	return with(append(names, "include no CIDR", "include no inbound port", "include no group")...)
}

// wantBoth wants calls in both families to have arrived.
func wantBoth(t *testing.T, name string, r matrix.Request, got ended) {
	t.Helper()
	p := policyOf(t, r)
	arrived := fmt.Sprintf("arrived at port %d\n", p.Ports.Inbound)
	for _, part := range []string{"redirected: a call from 1", " and a call from ", arrived} {
		if got.code != 0 || !strings.Contains(got.stdout, part) {
			t.Errorf("%s: %s: %s: want success in both families", name, r.Name, got)
			return
		}
	}
}

func random(t testing.TB, n int) []matrix.Request {
	t.Helper()
	numbers := rand.New(rand.NewPCG(7, 11))
	var all []matrix.Request
	for len(all) < n {
		r, keys := matrix.Plain(), map[string]bool{"config": true}
		for range 3 + numbers.IntN(6) {
			o := matrix.Options[numbers.IntN(len(matrix.Options))]
			if !keys[o.Key] && o.Name != "several proxy users" {
				keys[o.Key] = true
				r = o.On(r)
			}
		}
		all = append(all, r)
	}
	return all
}

// It passes whatever a pod asks for, and fails as soon as the rules are gone.
func TestEveryPolicyIsSeenToBeInEffect(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	some := []matrix.Request{matrix.Plain(), with("tproxy"), nothing(), nothing("tproxy"),
		with("tproxy", "one port both ways", "dns everywhere"), with("root proxy", "dns"),
		with("root proxy", "tproxy"), with("loopback CIDR", "include loopback"),
		with("virtual interface", "exclude interface"), with("exclude groups", "drop invalid")}
	for _, backend := range redirect.Backends {
		requests := some
		if backend == redirect.NFTables {
			requests = slices.Concat(some, ofPods(matrix.Alone()), random(t, 12))
		}
		for _, r := range requests {
			t.Run(backend+"/"+strings.ReplaceAll(r.Name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				c, pod := containerOf(t, r), netns.NewPod(t, netns.Options{})
				apply(t, pod.NS, backend, redirect.Compile(policyOf(t, r)))
				wantBoth(t, backend, r, c.run(t, pod.NS))
			})
		}
	}
}

// istio-init's own rules show it as well: of a pod that another tool has redirected, which the
// plugin leaves alone.
func TestUnderTheRulesOfIstioInit(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	for _, r := range []matrix.Request{matrix.Plain(), with("tproxy"), with("proxy user", "dns"), nothing()} {
		t.Run(strings.ReplaceAll(r.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			written, _, err := matrix.SecondPen(r, true)
			if err != nil {
				t.Fatal(err)
			}
			c, pod := containerOf(t, r), netns.NewPod(t, netns.Options{})
			wantRefusal(t, "before", c.run(t, pod.NS), noRules...)
			pod.Run(t, written.IPv4, "iptables-nft-restore")
			pod.Run(t, written.IPv6, "ip6tables-nft-restore")
			wantBoth(t, "after", r, c.run(t, pod.NS))
		})
	}
}

// noRules are what is wanted of pods that are not redirected.
var noRules = []string{"this pod is not redirected: a call from 1", "; a call from ",
	" did not arrive at port 15006: ", "The CNI plugin sidecar-cni was not in effect",
	"`sidecarctl verify`", "delete the pod"}

func wantRefusal(t *testing.T, name string, got ended, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if got.code != notRedirected || got.stdout != "" || !strings.Contains(got.stderr, part) {
			t.Errorf("%s: %s: want exit code %d and %q", name, got, notRedirected, part)
			return
		}
	}
}

// Each of the rules that lead the call is needed, and all of them together.
func TestPodsWithoutTheirRules(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	for _, r := range []matrix.Request{matrix.Plain(), nothing(), with("tproxy", "dns"),
		with("root proxy"), with("loopback CIDR"), with("include loopback", "proxy user")} {
		rs := redirect.Compile(policyOf(t, r))
		for name, change := range map[string]func(redirect.Rule) bool{
			"none":             func(redirect.Rule) bool { return false },
			"no self-calls":    func(r redirect.Rule) bool { return r.Why != "the pod calls itself through the proxy" },
			"no jump":          func(r redirect.Rule) bool { return r.Why != "all that the pod sends" },
			"no inbound port":  func(r redirect.Rule) bool { return r.Why != "to the inbound listener of the proxy" },
			"no rules of IPv4": func(r redirect.Rule) bool { return r.Then.Verb != redirect.Redirect },
		} {
			t.Run(strings.ReplaceAll(r.Name+"/"+name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				c, pod := containerOf(t, r), netns.NewPod(t, netns.Options{})
				apply(t, pod.NS, redirect.NFTables, without(rs, change))
				wantRefusal(t, name, c.run(t, pod.NS), noRules...)
			})
		}
	}
}

// without returns the rules that stay.
func without(rs redirect.Ruleset, stays func(redirect.Rule) bool) redirect.Ruleset {
	rs.Chains = slices.Clone(rs.Chains)
	for i := range rs.Chains {
		c := &rs.Chains[i]
		c.Rules = slices.DeleteFunc(slices.Clone(c.Rules),
			func(r redirect.Rule) bool { return !stays(r) })
	}
	return rs
}

// A node without the plugin, and one of which only a family is redirected.
func TestPodsThatArePartlyRedirected(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	rs := redirect.Compile(policyOf(t, matrix.Plain()))
	usual := containerOf(t, matrix.Plain())
	usual.Options.Calls = nil // the default ones are these
	for name, row := range map[string]struct {
		options netns.Options
		set     func(*testing.T, *netns.Pod)
		code    int
		parts   []string
		not     string
	}{
		"no plugin": {set: func(*testing.T, *netns.Pod) {}, code: notRedirected,
			// ::6 is not there, so the pod's own address is called
			parts: slices.Concat(noRules, []string{"connection refused", "to 127.0.0.6:15002", "to [fd00:244::2]:15002"})},
		"no IPv6 rules": {code: notRedirected, not: "127.0.0.1", set: func(t *testing.T, pod *netns.Pod) {
			apply(t, pod.NS, redirect.IptablesNFT, rs)
			pod.Run(t, "", "ip6tables-nft", "-t", "nat", "-F")
		}, parts: []string{"a call from ::1 to [::6]:15002 did not arrive at port 15006: connect: connection refused"}},
		"no IPv4 rules": {code: notRedirected, not: "::1", set: func(t *testing.T, pod *netns.Pod) {
			apply(t, pod.NS, redirect.IptablesLegacy, rs)
			pod.Run(t, "", "iptables-legacy", "-t", "nat", "-F")
		}, parts: []string{"a call from 127.0.0.1 to 127.0.0.6:15002 did not arrive at port 15006: connect: connection refused"}},
		"all rules, and no ::6": {code: 0, set: func(t *testing.T, pod *netns.Pod) {
			apply(t, pod.NS, redirect.NFTables, rs)
			pod.Run(t, "", "ip", "-6", "address", "del", "::6/128", "dev", "lo")
		}, parts: []string{"a call from fd00:244::2 to [fd00:244::2]:15002 arrived"}},
		"neither rules nor ::6 of IPv6": {code: notRedirected, not: "127.0.0.1", set: func(t *testing.T, pod *netns.Pod) {
			apply(t, pod.NS, redirect.IptablesNFT, rs)
			pod.Run(t, "", "ip6tables-nft", "-t", "nat", "-F")
			pod.Run(t, "", "ip", "-6", "address", "del", "::6/128", "dev", "lo")
		}, parts: []string{"a call from fd00:244::2 to [fd00:244::2]:15002 did not arrive"}},
		"no IPv6 at all": {options: netns.Options{IPv6Disabled: true}, code: 0, not: "::1",
			set:   func(t *testing.T, pod *netns.Pod) { apply(t, pod.NS, redirect.NFTables, rs) },
			parts: []string{"redirected: a call from 127.0.0.1 to 127.0.0.6:15002 arrived at port 15006\n"}},
		"no IPv6 at all, and no plugin": {options: netns.Options{IPv6Disabled: true}, code: notRedirected, not: "::1",
			set:   func(*testing.T, *netns.Pod) {},
			parts: []string{"this pod is not redirected: a call from 127.0.0.1 to 127.0.0.6:15002 did not arrive"}},
		"IPv6 on lo and within the link": {code: 0, not: "::1", set: func(t *testing.T, pod *netns.Pod) {
			apply(t, pod.NS, redirect.IptablesNFT, rs)
			pod.Run(t, "", "ip6tables-nft", "-t", "nat", "-F")
			pod.Run(t, "", "ip", "-6", "address", "flush", "scope", "global")
		}, parts: []string{"redirected: a call from 127.0.0.1 to 127.0.0.6:15002 arrived at port 15006\n"}},
		"IPv6 only": {code: 0, set: func(t *testing.T, pod *netns.Pod) {
			onlyIPv6(t, pod)
			apply(t, pod.NS, redirect.NFTables, rs)
		}, parts: []string{"redirected: a call from 127.0.0.1 to 127.0.0.6:15002 and a call from ::1 to [::6]:15002 arrived at port 15006\n"}},
		"IPv6 only, and no plugin": {code: notRedirected, set: onlyIPv6, parts: noRules},
		"what is sent is dropped":  {code: notRedirected, set: drop, parts: []string{"a call from 127.0.0.1 to 127.0.0.6:15002 did not arrive at port 15006: nobody answered within 5s"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			pod := netns.NewPod(t, row.options)
			row.set(t, pod)
			got := usual.run(t, pod.NS)
			for _, part := range row.parts {
				if got.code != row.code || !strings.Contains(got.stdout+got.stderr, part) {
					t.Fatalf("%s: want exit code %d and %q", got, row.code, part)
				}
			}
			if row.not != "" && strings.Contains(got.stdout+got.stderr, "from "+row.not+" ") {
				t.Errorf("%s: want no word of %s", got, row.not)
			}
		})
	}
}

func onlyIPv6(t *testing.T, pod *netns.Pod) {
	t.Helper()
	for _, name := range []string{"eth0", "extra0"} {
		pod.Run(t, "", "ip", "-4", "address", "flush", "dev", name)
	}
}

// Where loopback is all of 127.0.0.0/8 the pod's own address is called, if it has one.
// istio-init may be given back behind the container; then the plugin says so, and nobody else can.
func TestIstioInitFollows(t *testing.T) {
	t.Parallel()
	c := containerOf(t, matrix.Plain())
	for tag, code := range map[string]int{"0": notRedirected, "1": notRedirected,
		names.InitRestored: 0} {
		pod := netns.NewPod(t, netns.Options{})
		pod.Run(t, tag, "tee", names.LoopbackTag)
		e := c.run(t, pod.NS)
		if e.code != code || code == 0 && !strings.Contains(e.stdout, "istio-init") {
			t.Errorf("with the tag %s: %s, want exit code %d", tag, e, code)
		}
	}
}

func TestTheOwnAddressIsCalled(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	r := with("loopback CIDR")
	c, pod := containerOf(t, r), netns.NewPod(t, netns.Options{})
	apply(t, pod.NS, redirect.NFTables, redirect.Compile(policyOf(t, r)))
	got := c.run(t, pod.NS)
	wantBoth(t, "dual stack", r, got)
	if !strings.Contains(got.stdout, "redirected: a call from 10.24") {
		t.Errorf("%s: want a call to the pod's address", got)
	}
	onlyIPv6(t, pod)
	got = c.run(t, pod.NS)
	if got.code != 0 || !strings.Contains(got.stdout, "redirected: a call from ::1 to [::6]:15002 arrived at port 15006\n") {
		t.Errorf("IPv6 only: %s: want a call of IPv6 alone", got)
	}
	pod.Run(t, "", "ip", "-6", "address", "flush", "scope", "global")
	got = c.run(t, pod.NS)
	if got.code != otherwise || !strings.Contains(got.stderr, "find an address of the pod") {
		t.Errorf("no address: %s: want an error", got)
	}
}

// A pod of another user namespace is known by its users as they are outside.
func TestAPodOfAnotherUserNamespace(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	c, pod := containerOf(t, matrix.Plain()), netns.NewPod(t, netns.Options{UserNamespace: true})
	apply(t, pod.NS, redirect.NFTables, redirect.Compile(policyOf(t, matrix.Plain())))
	wantRefusal(t, "a user of this namespace", c.run(t, pod.NS), "did not arrive at port 15006")
	const outside = 100000 // is root's uid
	c.As = netns.Identity{UID: outside + c.As.UID, GID: outside + c.As.GID}
	wantBoth(t, "its proxy", matrix.Plain(), c.run(t, pod.NS))
}

// Whoever has the inbound port, or the one that is called, is told from the redirected call.
func TestOthersAreInTheWay(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	rs := redirect.Compile(policyOf(t, matrix.Plain()))
	lo := netip.MustParseAddr("127.0.0.1")
	for name, row := range map[string]struct {
		at         netip.Addr // not valid: all
		port       uint16
		redirected bool
		want       ended
	}{
		"on the inbound port":             {port: 15006, redirected: true, want: ended{code: otherwise, stderr: "listen on 127.0.0.1:15006 in place of the proxy; a container that starts earlier has the port"}},
		"on the inbound port of lo":       {at: lo, port: 15006, want: ended{code: otherwise, stderr: "bind: address already in use"}},
		"on the port that is called":      {port: 15002, want: ended{code: notRedirected, stderr: "127.0.0.6:15002 did not arrive at port 15006: another process has it"}},
		"there, and the rules are, too":   {port: 15002, redirected: true, want: ended{stdout: "redirected: "}},
		"on the outbound port, and rules": {port: 15001, redirected: true, want: ended{stdout: "redirected: "}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			c, pod := containerOf(t, matrix.Plain()), netns.NewPod(t, netns.Options{})
			if row.redirected {
				apply(t, pod.NS, redirect.NFTables, rs)
			}
			listen(t, pod, row.at, row.port)
			got := c.run(t, pod.NS)
			if got.code != row.want.code || !strings.Contains(got.stdout, row.want.stdout) ||
				!strings.Contains(got.stderr, row.want.stderr) {
				t.Errorf("%s: want %s", got, row.want)
			}
		})
	}
}

// Runtimes let a pod's processes listen on ports below 1024, or do not.
func TestALowInboundPort(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	r := matrix.Plain()
	r.Pod.Annotations["sidecar-cni.io/inboundPort"] = "80"
	c, pod := containerOf(t, r), netns.NewPod(t, netns.Options{})
	apply(t, pod.NS, redirect.NFTables, redirect.Compile(policyOf(t, r)))
	pod.Sysctl(t, "net/ipv4/ip_unprivileged_port_start", "1024")
	got := c.run(t, pod.NS)
	if got.code != otherwise || !strings.Contains(got.stderr, "sidecar-cni.io/inboundPort") {
		t.Errorf("%s: want exit code %d and what to do", got, otherwise)
	}
	pod.Sysctl(t, "net/ipv4/ip_unprivileged_port_start", "0")
	wantBoth(t, "allowed", r, c.run(t, pod.NS))
}

// Rules of another tool show that a pod is redirected. What a process forwards does not.
func TestTheOriginalDestinationCounts(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	const rules = "table ip x {\n chain output {\n type nat hook output priority -100;\n" +
		" ip daddr 127.0.0.6 tcp dport %d redirect to :15006\n }\n}\n"
	for name, row := range map[string]struct {
		redirected int // the port that is
		forwarded  string
		code       int
		want       string
	}{
		"rules of another tool":        {15002, "", 0, "redirected: a call from 127.0.0.1 to 127.0.0.6:15002 arrived"},
		"forwarded":                    {0, "127.0.0.1:15006", notRedirected, "as a call to an unknown address, so something other"},
		"forwarded, with rules nearby": {15009, "127.0.0.1:15006", notRedirected, "as a call to 127.0.0.1:15006, so something other"},
		"forwarded to what redirects":  {15009, "127.0.0.6:15009", notRedirected, "as a call to 127.0.0.6:15009, so something other"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			pod := netns.NewPod(t, netns.Options{IPv6Disabled: true})
			if row.redirected != 0 {
				pod.Run(t, fmt.Sprintf(rules, row.redirected), "nft", "-f", "-")
			}
			if row.forwarded != "" {
				forward(t, pod.NS, "127.0.0.6:15002", row.forwarded)
			}
			got := containerOf(t, matrix.Plain()).run(t, pod.NS)
			if got.code != row.code || !strings.Contains(got.stdout+got.stderr, row.want) {
				t.Errorf("%s: want exit code %d and %q", got, row.code, row.want)
			}
		})
	}
}

// Being told to end is another thing than not being redirected.
func TestAContainerThatIsEnded(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	pod := netns.NewPod(t, netns.Options{})
	drop(t, pod)
	cmd, stdout, stderr := containerOf(t, matrix.Plain()).command(t)
	var err error
	pod.Do(t, func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		if strings.Contains(pod.Run(t, "", "ss", "-tanH"), "SYN-SENT") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it calls nobody")
		}
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	got := ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	if got.code != otherwise || !strings.Contains(got.stderr, "call the pod itself: terminated signal received") {
		t.Errorf("%s: want exit code %d and the signal", got, otherwise)
	}
}

// drop has calls be lost.
func drop(t *testing.T, pod *netns.Pod) {
	t.Helper()
	pod.Run(t, "table inet x {\n chain output {\n type filter hook output priority 0;\n tcp dport 15002 drop\n }\n}\n", "nft", "-f", "-")
}

// The port is free as soon as the container has ended, also for a proxy that does not share it
// with connections that are on their way to their end.
func TestThePortIsFreeAfterwards(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	c, pod := containerOf(t, matrix.Plain()), netns.NewPod(t, netns.Options{})
	apply(t, pod.NS, redirect.NFTables, redirect.Compile(policyOf(t, matrix.Plain())))
	for range 3 {
		wantBoth(t, "again", matrix.Plain(), c.run(t, pod.NS))
		if left := pod.Run(t, "", "ss", "-tanH"); strings.Contains(left, ":15006") {
			t.Fatalf("sockets are left:\n%s", left)
		}
	}
}
