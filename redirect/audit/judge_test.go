package audit_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/test/hostproc"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/othertools"
)

func TestARecordedPodIsRedirected(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		for _, configured := range append(backends, "") { // it may have been another since
			t.Run(fmt.Sprintf("%s, now %q", backend, configured), func(t *testing.T) {
				t.Parallel()
				ns, n := netns.New(t), newNode(t)
				n.backend = configured
				r := n.add("web-0", backend, ns) // no process of it runs
				// What the annotations ask for by now does not count.
				at := n.want(n.pod("web-0", map[string]string{excludePort: "22"}), audit.Redirected)
				if diff := cmp.Diff(r.Netns, at); diff != "" {
					t.Errorf("network namespace (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Without a record a pod is compared with what it asks for.
func TestAPodWhoseRecordIsLost(t *testing.T) {
	t.Parallel()
	asked := map[string]string{excludePort: "22"}
	rows := map[string]struct {
		annotations map[string]string
		backend     string
		want        audit.Finding
		why         string
	}{
		"it asks for what is there":  {asked, nftBackend, audit.Redirected, ""},
		"it asks for something else": {nil, nftBackend, audit.Foreign, "no record says"},
		"it asks for the impossible": {map[string]string{excludePort: "ssh"}, nftBackend, audit.Foreign, "rules of sidecar-cni redirect it"},
		"another backend is set":     {asked, iptLegacy, audit.Foreign, "no record says"},
		"no backend is configured":   {asked, "", audit.Redirected, ""},
		"none, and something else":   {nil, "", audit.Foreign, "no record says"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			n.backend = row.backend
			n.run("web-0", ns)
			apply(t, ns, nftBackend, policyOf(t, asked))
			n.want(n.pod("web-0", row.annotations), row.want, row.why)
		})
	}
}

// Without a record and a configuration the rules themselves say which backend they are of.
func TestRulesOfEachBackendWithoutARecord(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			n.backend = ""
			n.run("web-0", ns)
			apply(t, ns, backend, policyOf(t, nil))
			n.want(n.pod("web-0", nil), audit.Redirected)
			j, _ := n.judge(n.pod("web-0", map[string]string{excludePort: "22"}))
			n.wantJudgement(j, audit.Foreign, "not what the pod asks for")
			if j.Differ == 0 || !strings.Contains(fmt.Sprint(j.Problems), "22") {
				t.Errorf("%d differ: %v", j.Differ, j.Problems)
			}
			other := backends[(slices.Index(backends, backend)+1)%len(backends)]
			apply(t, ns, other, policyOf(t, nil))
			n.want(n.pod("web-0", nil), audit.Foreign, "no record says which are left over")
		})
	}
}

// The ports that count are those of the record, whatever is configured by now.
func TestARecordHasItsOwnPorts(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	r := n.add("web-0", nftBackend, ns)
	r.Policy.Ports.Outbound = 17001
	n.write(r)
	ns.Run(t, "", "nft", "flush", "ruleset")
	n.want(n.pod("web-0", nil), audit.Missing)
	natTable("ip", "meta l4proto tcp redirect to :17001")(t, ns)
	n.want(n.pod("web-0", nil), audit.Altered, "another tool")
}

// An ADD may end between the reading of the records and the look: its record counts, not what the
// annotations say.
func TestARecordThatIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.run("web-0", ns)
	pod := n.pod("web-0", map[string]string{excludePort: "22"})
	n.add("web-0", nftBackend, ns)
	n.want(pod, audit.Redirected)
}

func TestRulesThatAreNotThoseRecorded(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		backend string
		change  func(*testing.T, *netns.NS, *record.Record)
		want    audit.Finding
		why     string
		problem bool
	}{
		"a chain was flushed": {nftBackend, func(t *testing.T, ns *netns.NS, _ *record.Record) {
			ns.Run(t, "", "nft", "flush", "chain", "inet", "sidecar-cni", "ISTIO_INBOUND")
		}, audit.Altered, "not those that were recorded", true},
		"all are gone": {nftBackend, func(t *testing.T, ns *netns.NS, _ *record.Record) {
			ns.Run(t, "", "nft", "flush", "ruleset")
		}, audit.Missing, "no rule", false},
		"a hook was flushed": {iptLegacy, func(t *testing.T, ns *netns.NS, _ *record.Record) {
			ns.Run(t, "", "ip6tables-legacy", "-t", "nat", "-F", "PREROUTING")
		}, audit.Altered, "not those that were recorded", true},
		"istio-init's came": {nftBackend, func(t *testing.T, ns *netns.NS, _ *record.Record) {
			ns.Run(t, othertools.IstioInit, "iptables-legacy-restore")
		}, audit.Altered, "another tool", true},
		"of another version": {nftBackend, func(_ *testing.T, _ *netns.NS, r *record.Record) {
			r.Revision = "0123456789abcdef"
		}, audit.Foreign, "another version", false},
		"of a backend that nobody knows": {nftBackend,
			func(_ *testing.T, _ *netns.NS, r *record.Record) { r.Backend = "ebpf" },
			audit.Foreign, "cannot be compared", false},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			r := n.add("web-0", row.backend, ns)
			row.change(t, ns, &r)
			n.write(r)
			j, _ := n.judge(n.pod("web-0", nil))
			n.wantJudgement(j, row.want, row.why)
			if (len(j.Problems) > 0) != row.problem || j.Differ < len(j.Problems) {
				t.Errorf("%d of %d problems: %v", len(j.Problems), j.Differ, j.Problems)
			}
		})
	}
}

func TestRulesThatNoPacketMeets(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		old     time.Duration
		traffic bool
		want    bool
	}{
		"an old record, no traffic": {11 * time.Minute, false, true},
		"an old record, traffic":    {11 * time.Minute, true, false},
		"a young record":            {9 * time.Minute, false, false},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			r := n.add("web-0", nftBackend, ns)
			ns.RaiseLoopback(t)
			if row.traffic {
				ns.Do(t, func() {
					conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:9")
					if err == nil {
						conn.Close()
					}
				})
			}
			at := time.Now().Add(-row.old)
			file := filepath.Join(string(n.records), r.Container+":eth0.json")
			if err := os.Chtimes(file, at, at); err != nil {
				t.Fatal(err)
			}
			j, _ := n.judge(n.pod("web-0", nil))
			n.wantJudgement(j, audit.Redirected)
			if j.Unhit != row.want {
				t.Errorf("unhit: %v, want %v", j.Unhit, row.want)
			}
		})
	}
}

// Of a record that leads elsewhere, the pod's processes tell which namespace is its own.
func TestARecordsPathThatLeadsElsewhere(t *testing.T) {
	t.Parallel()
	ns, other, n := netns.New(t), netns.New(t), newNode(t)
	r := n.add("web-0", nftBackend, ns)
	r.Netns.Path = identify(t, other).Path
	n.write(r)
	n.want(n.pod("web-0", nil), audit.Unreachable, "recorded was", "by cgroup")
	n.process(50, 1, ns.Path(), hostproc.CgroupOf(uidOf("web-0")))
	if at := n.want(n.pod("web-0", nil), audit.Redirected); at.Path != "/proc/50/ns/net" {
		t.Errorf("found %+v", at)
	}
	r.Netns = identify(t, n.host)
	n.write(r)
	if at := n.want(n.pod("web-0", nil), audit.Redirected); at.Path != "/proc/50/ns/net" {
		t.Errorf("found %+v, of a record that is about the host's", at)
	}
}

func TestWhatIsExpectedOfAPod(t *testing.T) {
	t.Parallel()
	type change func(*redirect.Pod, *redirect.Config)
	rows := map[string]struct {
		change change
		ours   bool
		judged audit.Finding // "" if its namespace is looked into
		skip   redirect.Skip
	}{
		"a pod with a sidecar": {func(*redirect.Pod, *redirect.Config) {}, true, "", ""},
		"no sidecar": {func(p *redirect.Pod, _ *redirect.Config) {
			p.Annotations = map[string]string{}
		}, false, "", ""},
		"istio-init programs it": {func(p *redirect.Pod, _ *redirect.Config) {
			p.Spec.Containers = append(p.Spec.Containers,
				redirect.Container{Name: "istio-init", Init: true})
		}, false, "", ""},
		"an excluded namespace": {func(_ *redirect.Pod, c *redirect.Config) {
			c.ExcludeNamespaces = []string{"shop"}
		}, true, audit.Excluded, ""},
		"a router, in an excluded namespace": {func(p *redirect.Pod, c *redirect.Config) {
			p.Spec.Containers[1].Args = []string{"proxy", "router"}
			c.ExcludeNamespaces = []string{"shop"}
		}, true, audit.Skipped, redirect.NotASidecar},
		"a kernel of its own": {func(p *redirect.Pod, _ *redirect.Config) {
			p.Spec.RuntimeClass, p.Spec.RuntimeHandler = "vm", "kata-qemu"
		}, true, audit.Skipped, redirect.OwnKernel},
		"a runtime class that nobody knows": {func(p *redirect.Pod, _ *redirect.Config) {
			p.Spec.RuntimeClass = "vm"
		}, true, audit.Unreachable, ""},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, cfg := facts("web-0", nil), redirect.Defaults()
			row.change(&pod, &cfg)
			e, ours := audit.Expect(pod, cfg)
			var judged audit.Judgement
			if e.Judged != nil {
				judged = *e.Judged
			}
			if ours != row.ours || judged.Finding != row.judged || judged.Skip != row.skip {
				t.Errorf("ours %v, judged %+v; want %v, %q %q", ours, judged, row.ours, row.judged,
					row.skip)
			}
			if asks := len(redirect.Compile(e.Policy).Chains) > 0; ours && row.judged == "" && !asks {
				t.Error("it asks for no rules")
			}
		})
	}
}

func TestAMistakeIsKept(t *testing.T) {
	t.Parallel()
	e, ours := audit.Expect(facts("web-0", map[string]string{excludePort: "ssh"}),
		redirect.Defaults())
	if !ours || e.Judged != nil || e.Mistake == nil {
		t.Errorf("ours %v, judged %v, mistake %v", ours, e.Judged, e.Mistake)
	}
	part := facts("web-0", nil)
	part.Spec = nil
	e, ours = audit.Expect(part, redirect.Defaults())
	if !ours || !errors.Is(e.Mistake, audit.ErrIncomplete) {
		t.Errorf("of a part of a pod: ours %v, mistake %v", ours, e.Mistake)
	}
}

func TestEachFindingHasAMeaning(t *testing.T) {
	t.Parallel()
	for _, f := range audit.Findings {
		if audit.Meanings[f] == "" {
			t.Errorf("%s has none", f)
		}
	}
	if len(audit.Meanings) != len(slices.Compact(slices.Sorted(slices.Values(audit.Findings)))) {
		t.Errorf("%d meanings of %d findings", len(audit.Meanings), len(audit.Findings))
	}
}
