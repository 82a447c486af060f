package repair_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/othertools"
)

func TestARedirectedPod(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		for _, configured := range backends { // an administrator may have chosen another since
			t.Run(backend+", now "+configured, func(t *testing.T) {
				t.Parallel()
				ns, n := netns.New(t), newNode(t, repair.Repair)
				n.backend = configured
				n.put(meshed("web-0", nil)) // without a process: the record is enough
				r := n.add("web-0", backend, ns)
				before := rules(t, ns)
				x := n.want(n.pass(), repair.Redirected, "")
				if diff := cmp.Diff(r.Netns, x.Netns); diff != "" {
					t.Errorf("network namespace (-want +got):\n%s", diff)
				}
				if after := rules(t, ns); after != before {
					t.Errorf("looking changed the rules from\n%s\nto\n%s", before, after)
				}
			})
		}
	}
}

// What the annotations ask for by now does not count, not even when it is impossible.
func TestTheRecordedPolicyCounts(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"other ports": "22", "nonsense": "ssh"} {
		for _, seen := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, its path is seen: %v", name, seen), func(t *testing.T) {
				t.Parallel()
				ns, n := netns.New(t), newNode(t, repair.Repair)
				n.run(meshed("web-0", map[string]string{excludePort: value}), ns)
				r := n.add("web-0", nftBackend, ns)
				if !seen {
					r.Netns.Path = "/nowhere/netns/cni-1"
					n.write(r)
				}
				n.want(n.pass(), repair.Redirected, "")
			})
		}
	}
}

func TestAnotherToolsPodWithImpossibleAnnotations(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Repair)
	n.run(meshed("web-0", map[string]string{excludePort: "ssh"}), ns)
	ns.Run(t, othertools.IstioInit, "iptables-nft-restore")
	n.want(n.pass(), repair.Foreign, "", "another tool")
}

func TestAPodWhoseRecordIsLost(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Repair)
			n.backend = backend
			n.run(meshed("web-0", map[string]string{excludePort: "22"}), ns)
			apply(t, ns, backend, policyOf(t, map[string]string{excludePort: "22"}))
			n.want(n.pass(), repair.Redirected, "")
		})
	}
}

func TestRulesThatAreNotThoseRecordedAreLeftAlone(t *testing.T) {
	t.Parallel()
	nftCommand := func(t *testing.T, ns *netns.NS, args ...string) { ns.Run(t, "", "nft", args...) }
	rows := map[string]struct {
		backend string
		change  func(*testing.T, *netns.NS, *record.Record)
		want    repair.Finding
		why     string
	}{
		"a chain was flushed": {nftBackend, func(t *testing.T, ns *netns.NS, _ *record.Record) {
			nftCommand(t, ns, "flush", "chain", "inet", "sidecar-cni", "ISTIO_INBOUND")
		}, repair.Altered, "recorded"},
		"the table is dormant": {nftBackend, func(t *testing.T, ns *netns.NS, _ *record.Record) {
			nftCommand(t, ns, "add", "table", "inet", "sidecar-cni", "{ flags dormant; }")
		}, repair.Altered, "recorded"},
		"a hook was flushed, iptables-nft": {iptNFT,
			func(t *testing.T, ns *netns.NS, _ *record.Record) {
				ns.Run(t, "", "iptables-nft", "-t", "nat", "-F", "OUTPUT")
			}, repair.Altered, "recorded"},
		"a hook was flushed, iptables-legacy": {iptLegacy,
			func(t *testing.T, ns *netns.NS, _ *record.Record) {
				ns.Run(t, "", "ip6tables-legacy", "-t", "nat", "-F", "PREROUTING")
			}, repair.Altered, "recorded"},
		"ours went and istio-init's came": {nftBackend,
			func(t *testing.T, ns *netns.NS, _ *record.Record) {
				nftCommand(t, ns, "delete", "table", "inet", "sidecar-cni")
				ns.Run(t, othertools.IstioInit, "iptables-nft-restore")
			}, repair.Altered, "another tool"},
		"ours and istio-init's": {nftBackend, func(t *testing.T, ns *netns.NS, _ *record.Record) {
			ns.Run(t, othertools.IstioInit, "iptables-legacy-restore")
		}, repair.Altered, "another tool"},
		"istio-init's, without ours of another version": {nftBackend, func(
			t *testing.T, ns *netns.NS, r *record.Record,
		) {
			nftCommand(t, ns, "delete", "table", "inet", "sidecar-cni")
			ns.Run(t, othertools.IstioInit, "iptables-nft-restore")
			r.Revision = "0123456789abcdef"
		}, repair.Altered, "another tool"},
		"another tool's in our chain": {iptLegacy,
			func(t *testing.T, ns *netns.NS, _ *record.Record) {
				ns.Run(t, "*nat\n-I ISTIO_OUTPUT -p tcp --dport 22 -j RETURN\nCOMMIT\n",
					"iptables-legacy-restore", "--noflush")
			}, repair.Altered, "another tool"},
		"another version of ours": {nftBackend, func(_ *testing.T, _ *netns.NS, r *record.Record) {
			r.Revision = "0123456789abcdef"
		}, repair.Foreign, "another version"},
		"a backend that nobody knows": {nftBackend,
			func(_ *testing.T, _ *netns.NS, r *record.Record) {
				r.Backend = "ebpf"
			}, repair.Foreign, "cannot be compared"},
	}
	for name, row := range rows {
		for _, mode := range []repair.Mode{repair.Report, repair.Repair, repair.Evict} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				ns, n := netns.New(t), newNode(t, mode)
				n.put(meshed("web-0", nil))
				r := n.add("web-0", row.backend, ns)
				row.change(t, ns, &r)
				n.write(r)
				before := rules(t, ns)
				x := n.want(n.pass(), row.want, "", row.why)
				if (len(x.Problems) > 0) != (row.want == repair.Altered) {
					t.Errorf("problems %v", x.Problems)
				}
				if after := rules(t, ns); after != before {
					t.Errorf("the rules went from\n%s\nto\n%s", before, after)
				}
				if n.api.Pod("shop", "web-0") == nil {
					t.Error("the pod was evicted")
				}
				n.awaitEvent(map[repair.Finding]string{repair.Altered: "SidecarRulesAltered",
					repair.Foreign: "SidecarRulesForeign"}[row.want])
			})
		}
	}
}

func TestPodsThatAreLeftAlone(t *testing.T) {
	t.Parallel()
	rows := map[string]func(*corev1.Pod){
		"it has succeeded":        func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"it has failed":           func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"it is being deleted":     func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		"it is in the host's net": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"it has no sidecar":       func(p *corev1.Pod) { p.Annotations = nil },
		"istio-init programs it": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "istio-init"}}
		},
		"it has no proxy": func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] },
		"its proxy is no sidecar, and it was not injected": func(p *corev1.Pod) {
			p.Annotations, p.Spec.Containers[1].Args = nil, []string{"proxy", "router"}
		},
		"istio-init programs it, a static pod": func(p *corev1.Pod) {
			p.Annotations["kubernetes.io/config.source"] = "file"
			p.Spec.InitContainers = []corev1.Container{{Name: "istio-init"}}
		},
	}
	for name, change := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Repair)
			pod := meshed("web-0", nil)
			change(pod)
			n.run(pod, ns)
			if s := n.pass(); len(s.Results) != 0 || rules(t, ns) != rules(t, netns.New(t)) {
				t.Errorf("results %+v, rules\n%s", s.Results, rules(t, ns))
			}
		})
	}
}

// A pod with a sidecar that sidecar-cni leaves alone is open, if its istio-init does not help it.
// It is counted by the reason, and left as it is: mostly it is what the pod's author has asked
// for.
func TestSkippedPodsAreCounted(t *testing.T) {
	t.Parallel()
	rows := map[redirect.Skip]func(*corev1.Pod){
		redirect.StaticPod: func(p *corev1.Pod) {
			p.Annotations["kubernetes.io/config.source"], p.Annotations[corev1.MirrorPodAnnotationKey] = "file", "hash"
		},
		redirect.ProxyDisabled: func(p *corev1.Pod) {
			p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "DISABLE_ENVOY", Value: "true"}}
		},
		redirect.NotASidecar: func(p *corev1.Pod) {
			p.Spec.Containers[1].Args = []string{"proxy", "router"}
		},
		redirect.InjectionDisabled: func(p *corev1.Pod) {
			p.Labels = map[string]string{"sidecar.istio.io/inject": "false"}
		},
		redirect.OwnKernel: func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("vm") },
		redirect.InterceptionNone: func(p *corev1.Pod) {
			p.Annotations["sidecar.istio.io/interceptionMode"] = "NONE"
		},
	}
	for skip, change := range rows {
		for _, excluded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in an excluded namespace: %v", skip, excluded),
				func(t *testing.T) {
					t.Parallel()
					ns, n := netns.New(t), newNode(t, repair.Repair)
					if excluded {
						n.config.Redirect.ExcludeNamespaces = []string{"shop"}
					}
					pod := meshed("web-0", nil)
					change(pod)
					n.run(pod, ns)
					if x := n.want(n.pass(), repair.Skipped, "", skip.String()); x.Skip != skip {
						t.Errorf("skipped for %q, want %q", x.Skip, skip)
					}
					if rules(t, ns) != rules(t, netns.New(t)) || len(n.api.Events()) > 0 {
						t.Errorf("events %v, rules\n%s", n.api.Events(), rules(t, ns))
					}
					n.wantMetrics(map[string]float64{
						"sidecar_cni_checked_pods skipped":         1,
						"sidecar_cni_skipped_pods " + string(skip): 1,
						"sidecar_cni_repair_passes_total complete": 1,
					})
					n.names = nil
					n.pass()
					n.wantMetrics(map[string]float64{"sidecar_cni_repair_passes_total complete": 2})
				})
		}
	}
}

// A runtime class is decided by its handler. Without it nobody knows whether rules would redirect
// anything.
func TestRuntimeClasses(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]repair.Finding{"usual": repair.Missing,
		"unheard-of": repair.Unreachable} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Repair)
			pod := meshed("web-0", nil)
			pod.Spec.RuntimeClassName = new(class)
			n.run(pod, ns)
			outcome := map[repair.Finding]repair.Outcome{repair.Missing: repair.Repaired}[want]
			n.want(n.pass(), want, outcome)
			if records, err := n.config.Records.List(); err != nil ||
				(len(records) > 0) != (want == repair.Missing) {
				t.Errorf("records %v, %v", records, err)
			}
		})
	}
}

// The cache keeps no containers of a pod that has too many: what was recorded tells what it asked
// for, and nothing else does.
func TestAPodThatTheCacheKeepsNoContainersOf(t *testing.T) {
	t.Parallel()
	listed := func(n *node) {
		pod := meshed("web-0", nil)
		pod.Spec.Containers = nil
		n.listed = []*corev1.Pod{pod}
	}
	rows := map[string]struct {
		program func(*node, *netns.NS)
		want    repair.Finding
		outcome repair.Outcome
		why     string
	}{
		"recorded": {func(n *node, ns *netns.NS) { n.add("web-0", nftBackend, ns) },
			repair.Redirected, "", ""},
		"recorded, and open": {func(n *node, ns *netns.NS) {
			n.write(recordOf(n.t, "web-0", nftBackend, ns))
		}, repair.Missing, repair.Repaired, "no rule"},
		"not recorded": {func(n *node, ns *netns.NS) {
			apply(n.t, ns, nftBackend, policyOf(n.t, nil))
		}, repair.Foreign, "", "rules of sidecar-cni"},
		"not recorded, and open": {func(*node, *netns.NS) {}, repair.Missing, repair.Failed,
			"more than the agent keeps"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Repair)
			n.run(meshed("web-0", nil), ns)
			listed(n)
			row.program(n, ns)
			n.want(n.pass(), row.want, row.outcome, row.why)
		})
	}
}

func TestPodsThatAreNotLookedInto(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		change func(*node, *corev1.Pod)
		want   repair.Finding
		why    string
	}{
		"it has no address yet, and runs before it has a network": {func(n *node, p *corev1.Pod) {
			n.docker = true
			withoutAddress(p)
		}, repair.Starting, "no address"},
		"its namespace is excluded": {func(n *node,
			_ *corev1.Pod) {
			n.config.Redirect.ExcludeNamespaces = []string{"shop"}
		},
			repair.Excluded, "leaves alone"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Repair)
			pod := meshed("web-0", nil)
			row.change(n, pod)
			n.run(pod, ns)
			n.want(n.pass(), row.want, "", row.why)
			if rules(t, ns) != rules(t, netns.New(t)) {
				t.Errorf("rules\n%s", rules(t, ns))
			}
		})
	}
}

func withoutAddress(p *corev1.Pod) *corev1.Pod {
	p.Status.PodIP, p.Status.PodIPs = "", nil
	return p
}

// After a reboot pods run for seconds before the kubelet reports their addresses.
func TestAPodThatRunsNeedsNoAddress(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Repair)
	pod := withoutAddress(meshed("web-0", nil))
	n.put(pod)
	n.want(n.pass(), repair.Starting, "", "no address")
	n.process(101, 1, ns.Path(), cgroupOf("web-0"))
	n.want(n.pass(), repair.Missing, repair.Repaired)
	n.want(n.pass(), repair.Redirected, "")
}

// Which addresses are the pod's own is not known yet: a DNAT to any may be a redirection.
func TestNothingIsWrittenBesideADNATWithoutAnAddress(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Repair)
	n.run(withoutAddress(meshed("web-0", nil)), ns)
	ns.Run(t, "table ip other { chain o { type nat hook output priority -100; tcp dport 80 dnat "+
		"to 10.244.0.2:15001; }; }", "nft", "-f", "-")
	n.want(n.pass(), repair.Foreign, "", "another tool")
}

func TestOffLooksAtNoPod(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Off)
	n.run(meshed("web-0", nil), ns)
	if s := n.pass(); len(s.Results) > 0 || len(n.api.Events()) > 0 {
		t.Errorf("results %+v, events %v", s.Results, n.api.Events())
	}
}

// The nameservers are what only the runtime knew: with those of the record, a pod's annotations ask
// for what was programmed.
func TestNameserversComeFromTheRecord(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Repair)
	pod := meshed("web-0", nil)
	pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "ISTIO_META_DNS_CAPTURE", Value: "true"}}
	n.run(pod, ns)
	r := recordOf(t, "web-0", nftBackend, ns)
	r.Policy.DNS = redirect.DNS{Capture: true,
		Servers: []netip.Addr{netip.MustParseAddr("10.96.0.10")}}
	r.Revision = record.Revision(redirect.Compile(r.Policy))
	r.Netns.Path, r.Netns.Inode = "/proc/7/ns/net", 1 // of the sandbox before this one
	n.write(r)
	n.want(n.pass(), repair.Missing, repair.Repaired)
	if !strings.Contains(rules(t, ns), "ip daddr 10.96.0.10") {
		t.Errorf("not what a pod with this nameserver gets:\n%s", rules(t, ns))
	}
}
