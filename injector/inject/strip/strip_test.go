package strip

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables/istioinit"
)

// row is a pod with istio-init, what istio-init is told, and the annotations that say so then.
type row struct {
	name string
	pod  podtree.Object
	args string            // with -z, where the image takes it to be something else than 15006
	env  map[string]string // of istio-init
	want map[string]string // beside those of the pod
}

const (
	outCIDRs   = traffic + "includeOutboundIPRanges"
	noOutCIDRs = traffic + "excludeOutboundIPRanges"
	inPorts    = traffic + "includeInboundPorts"
	noInPorts  = traffic + "excludeInboundPorts"
	outPorts   = traffic + "includeOutboundPorts"
	noOutPorts = traffic + "excludeOutboundPorts"
	noLinks    = traffic + "excludeInterfaces"
	virtual    = "istio.io/reroute-virtual-interfaces"
)

// usual are the annotations of a command line that asks for nothing, and others.
func usual(more ...string) map[string]string {
	all := map[string]string{keyMode: "REDIRECT", outCIDRs: "*", noOutCIDRs: "", inPorts: "*",
		noInPorts: "15090,15021,15020"}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

func rows() []row {
	const plain = `-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x "" -b * -d 15090,15021,15020 `
	const old = `-p 15001 -u 1337 -m REDIRECT -i * -x "" -b 80 -d ""`
	proxyInit := ofInit("docker.io/istio/proxy_init:1.0.2", "image")
	tproxy := strings.Replace(plain, "REDIRECT", "TPROXY", 1)
	root := ofProxy(podtree.Object{"runAsUser": int64(0), "runAsGroup": int64(1337)},
		"securityContext")
	dns := []any{"ISTIO_META_DNS_CAPTURE", "true"}
	oldWant := usual(inPorts, "80", noInPorts, "", keyInboundPort, "15001")
	return []row{
		{"published, Istio 1.6", meshed(seed003), plain, nil, usual()},
		{"published, Istio 1.0: one port both ways", meshed(old, proxyInit), old + " -z 15001", nil,
			oldWant},
		{"the script by its name", meshed(old, ofInit([]any{"/usr/local/bin/istio-iptables.sh"},
			"command"), ofInit("mirror.example/init@sha256:0", "image")), old + " -z 15001", nil,
			oldWant},
		{"numbers without quotes", meshed("", proxyInit, ofInit([]any{"-p", int64(15001), "-u",
			float64(1337), "-i", "*", "-b", int64(80)}, "args")),
			"-p 15001 -z 15001 -i * -b 80", nil,
			map[string]string{outCIDRs: "*", inPorts: "80", keyInboundPort: "15001"}},
		{"a native sidecar", meshed(seed003, native), plain, nil, usual()},
		{"no name, no annotations, no other init container", func() podtree.Object {
			pod := meshed(seed003)
			podtree.Delete(pod, "metadata")
			return pod
		}(), plain, nil, usual()},
		{"TPROXY", meshed("istio-iptables "+tproxy, root), tproxy, nil, usual(keyMode, "TPROXY")},
		{"TPROXY of one port", meshed(tproxy+"-b 80,443", root), tproxy + "-b 80,443", nil,
			usual(keyMode, "TPROXY", inPorts, "80,443")},
		{"ports of the proxy", meshed(plain + "-p 25001 -z 25006"), plain + "-p 25001 -z 25006", nil,
			usual(keyOutboundPort, "25001", keyInboundPort, "25006")},
		{"the usual ports need no word", meshed("istio-iptables -i * -b *"), "-i * -b *", nil,
			map[string]string{outCIDRs: "*", inPorts: "*"}},
		{"what is not captured is said", meshed("istio-iptables -m REDIRECT"), "", nil,
			map[string]string{keyMode: "REDIRECT", outCIDRs: "", inPorts: ""}},
		{"a user of the proxy's own", meshed(plain+"-u 2500", ofProxy(int64(2500),
			"securityContext", "runAsUser")), plain + "-u 2500", nil, usual()},
		{"name service", meshed(plain, both(dns...)), plain,
			map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}, usual()},
		{"name service by a flag", meshed(plain+"--redirect-dns", ofProxy(variables(dns...), "env")),
			plain + "--redirect-dns", nil, usual()},
		{"all name service", meshed(plain, both(append(dns, "CAPTURE_ALL_DNS", "true")...),
			ofInit(variables("REDIRECT_DNS", true, "CAPTURE_ALL_DNS", true), "env")), plain,
			map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "CAPTURE_ALL_DNS": "true"}, usual()},
		{"included groups", meshed(plain, both("ISTIO_OUTBOUND_OWNER_GROUPS", "1000,4000")), plain,
			map[string]string{"ISTIO_OUTBOUND_OWNER_GROUPS": "1000,4000"}, usual()},
		{"excluded groups", meshed(plain, both("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4000")), plain,
			map[string]string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "4000"}, usual()},
		{"loopback and invalid packets",
			meshed(plain, both("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.0/8", "INVALID_DROP", "1")),
			plain, map[string]string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.0/8",
				"INVALID_DROP": "true"}, usual()},
		{"lists", meshed(plain + "-i 127.0.0.0/8,10.0.0.0/8 -x 10.1.0.0/16, -q 9000,,9001 -o 53 " +
			"-c eth1 -k vm0"),
			plain + "-i 127.0.0.0/8,10.0.0.0/8 -x 10.1.0.0/16 -q 9000,9001 -o 53 -c eth1 -k vm0", nil,
			usual(outCIDRs, "127.0.0.0/8,10.0.0.0/8", noOutCIDRs, "10.1.0.0/16", outPorts, "9000,9001",
				noOutPorts, "53", noLinks, "eth1", virtual, "vm0")},
		{"inbound ports that are not captured", meshed(plain + "-d 15020,15021,15090,22"),
			plain + "-d 15020,15021,15090,22", nil, usual(noInPorts, "15020,15021,15090,22")},
		{"variables for flags",
			meshed("", ofInit([]any{"pilot-agent", "istio-iptables"}, "command"),
				ofInit(variables("ISTIO_SERVICE_CIDR", "10.0.0.0/8", "PROXY_UID", int64(1337)), "env")),
			"", map[string]string{"ISTIO_SERVICE_CIDR": "10.0.0.0/8"},
			map[string]string{outCIDRs: "10.0.0.0/8", inPorts: ""}},
		{"variables in arguments", meshed("istio-iptables -i $(NET),$$ -i $(B)/8 -b $(NONE)$ -b * ",
			ofInit(variables("A", "9", "A", "10", "B", "$(A).0.0.0"), "env")),
			"-i 10.0.0.0/8 -b *", nil, map[string]string{outCIDRs: "10.0.0.0/8", inPorts: "*"}},
		{"how the rules are written and tried out", meshed(plain +
			"--run-validation --iptables-probe-port 15002 --probe-timeout=3s --force-apply " +
			"--force-iptables-binary legacy --log_output_level=default:info"), plain, nil, usual()},
		{"an annotation that says the same stays", meshed(plain+"-o 22,80 -k vm0 -z 15001",
			annotation(noOutPorts, " 80, 22"), annotation(traffic+"kubevirtInterfaces", "vm0 "),
			annotation(noInPorts, ""), annotation(keyInboundPort, "015001")),
			plain + "-o 22,80 -k vm0 -z 15001", nil, func() map[string]string {
				want := usual(noOutPorts, " 80, 22", traffic+"kubevirtInterfaces", "vm0 ", noInPorts, "",
					keyInboundPort, "015001")
				return want
			}()},
		{"an annotation that says something else gives way", meshed(plain+"-k vm0",
			annotation(noOutPorts, "80"), annotation(traffic+"kubevirtInterfaces", "vm1"),
			annotation(inPorts, "http"), annotation(keyInboundPort, "15001")), plain + "-k vm0", nil,
			usual(noOutPorts, "", virtual, "vm0", traffic+"kubevirtInterfaces", "vm1",
				keyInboundPort, "15006")},
		{"a status port of its own that is not excluded", meshed(plain,
			annotation(keyStatusPort, "15030")), plain + "-d 15090,15021,15020,15030", nil,
			usual(keyStatusPort, "15030")},
		{"a runtime like any other", meshed(seed003, spec("nvidia", "runtimeClassName")), plain, nil,
			usual()},
		{"an annotation with a mistake gives way", meshed(plain+"-o 22", annotation(noOutPorts, "22,")),
			plain + "-o 22", nil, usual(noOutPorts, "22")},
		{"a status port of its own", meshed(plain+"-d 15090,15021,15030",
			annotation(keyStatusPort, "15030")), plain + "-d 15090,15021,15020,15030", nil,
			usual(keyStatusPort, "15030", noInPorts, "15090,15021,15030")},
	}
}

func TestWhatTheFlagsSayBecomesAnnotations(t *testing.T) {
	t.Parallel()
	for _, row := range rows() {
		before := podtree.Clone(row.pod)
		left := podtree.List(row.pod, "spec", "initContainers")
		want := podtree.Clone(drop(row.pod, podtree.Named(left, "istio-init")))
		for key, value := range row.want {
			podtree.Set(want, value, "metadata", "annotations", key)
		}
		got := stripped(t, row.pod, redirect.Defaults())
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: pod (-want +got):\n%s", row.name, diff)
		}
		if diff := cmp.Diff(before, row.pod); diff != "" {
			t.Errorf("%s: the pod that was given (-before +after):\n%s", row.name, diff)
		}
		if _, found, err := Strip(got, redirect.Defaults()); found || err != nil {
			t.Errorf("%s: stripped once more: found %t, error %v", row.name, found, err)
		}
	}
}

func TestNoEmptyListStays(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]any{
		"":        nil,
		"migrate": []any{container("migrate", 2000)},
	} {
		pod := meshed(seed003)
		if name != "" {
			pod = meshed(seed003, inits(container(name, 2000)))
		}
		got := podtree.Get(stripped(t, pod, redirect.Defaults()), "spec", "initContainers")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("init containers beside %q (-want +got):\n%s", name, diff)
		}
	}
}

// policyOf decides about a stripped pod.
func policyOf(t *testing.T, pod podtree.Object, cfg redirect.Config) redirect.Policy {
	t.Helper()
	facts, err := factsOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	decision, err := redirect.Decide(facts, cfg)
	if err != nil || decision.Skip != "" {
		t.Fatalf("skipped %q, error %v", decision.Skip, err)
	}
	return decision.Policy
}

// Both are rules of ours, so that every packet has to have one fate.
func TestAllPacketsHaveTheFateThatTheFlagsAskFor(t *testing.T) {
	t.Parallel()
	cfg := redirect.Defaults()
	for _, row := range rows() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			args := texts(words(row.args))
			before, _, err := initflags.PolicyIn(args, row.env, cfg, nameservers())
			if err != nil {
				t.Fatal(err)
			}
			before.Inbound.ExcludePorts = append(before.Inbound.ExcludePorts, cfg.Open...)
			after := policyOf(t, stripped(t, row.pod, cfg), cfg)
			differences := compare.Compare(simulate.New(redirect.Compile(before)),
				simulate.New(redirect.Compile(after)))
			if len(differences) > 0 {
				t.Errorf("%s", compare.Explain(differences, compare.Words{A: "istio-init",
					B: "stripped", Proxy: after.Proxy}))
			}
		})
	}
}

// The rules of istio-init are written by code that knows nothing of ours. What differs on purpose
// differs for every pod.
func TestAllPacketsHaveTheFateThatIstioInitGivesThem(t *testing.T) {
	t.Parallel()
	cfg := redirect.Defaults()
	for _, row := range rows() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			args := withOpenPorts(t, texts(words(row.args)), row.env)
			listing, err := istioinit.Write(args, row.env,
				istioinit.Pod{IPv6: true, Nameservers: nameservers()})
			if err != nil {
				t.Fatal(err)
			}
			tables, err := xtables.Read(listing.IPv4, listing.IPv6)
			if err != nil {
				t.Fatal(err)
			}
			tables.Routed = listing.Marks
			after := policyOf(t, stripped(t, row.pod, cfg), cfg)
			about := compare.Pod{Policy: after, IPv6: true, GIDs: after.Proxy.GIDs,
				Open: after.Inbound.ExcludePorts, DNS: hosts(after)}
			differences := compare.Separate(
				compare.Compare(tables, simulate.New(redirect.Compile(after))), about)
			differences = slices.DeleteFunc(differences,
				func(d compare.Difference) bool { return d.Reason != "" })
			if len(differences) > 0 {
				t.Errorf("%s", compare.Explain(differences, compare.Words{A: "istio-init",
					B: "stripped", Proxy: after.Proxy}))
			}
		})
	}
}

func TestAPodWithoutIstioInitIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	for name, pod := range map[string]podtree.Object{
		"empty":   {},
		"nothing": {"spec": nil},
		"no init container": meshed(seed003, func(p podtree.Object) {
			podtree.Delete(p, "spec", "initContainers")
		}),
		"another": meshed(seed003, ofInit("istio-validation", "name")),
	} {
		before := podtree.Clone(pod)
		got, found, err := Strip(pod, redirect.Defaults())
		if diff := cmp.Diff(before, got); found || err != nil || diff != "" {
			t.Errorf("%s: found %t, error %v, pod (-before +after):\n%s", name, found, err, diff)
		}
	}
}

// Of two clusters, one has other ports, marks and excluded namespaces.
func TestWhatTheClusterHasCountsBesideTheFlags(t *testing.T) {
	t.Parallel()
	cfg := redirect.Defaults()
	cfg.Ports.Outbound, cfg.Ports.Inbound, cfg.Marks.TProxy = 25001, 25006, 77
	cfg.ExcludeNamespaces = []string{"default"}
	cfg.Agent = redirect.Agent{Namespace: "default", Name: "web"}
	cfg.Values = map[string]string{noOutPorts: "22", inPorts: "80", keyMode: "NONE"}
	for line, want := range map[string]map[string]string{
		"istio-iptables -p 25001 -z 25006 -b 80": {inPorts: "80", outCIDRs: "", noOutPorts: "",
			keyMode: "REDIRECT"},
		"istio-iptables -i * -b 80 -o 22": {inPorts: "80", outCIDRs: "*", noOutPorts: "22",
			keyOutboundPort: "15001", keyInboundPort: "15006", keyMode: "REDIRECT"},
	} {
		pod := meshed(line, spec(nil, "runtimeClassName"), annotation("mine", "x"))
		podtree.Set(pod, "web-0", "metadata", "name")
		got := podtree.Strings(stripped(t, pod, cfg), "metadata", "annotations")
		delete(got, "mine")
		delete(got, redirect.StatusAnnotation)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", line, diff)
		}
	}
}

// What Strip returns can be changed without changing the pod that it was given.
func TestWhatIsReturnedIsACopy(t *testing.T) {
	t.Parallel()
	pod := meshed(seed003)
	before := podtree.Clone(pod)
	got := stripped(t, pod, redirect.Defaults())
	for _, item := range podtree.List(got, "spec", "containers") {
		item.(podtree.Object)["image"] = "another"
	}
	podtree.Set(got, "another", "metadata", "annotations", redirect.StatusAnnotation)
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the pod that was given (-before +after):\n%s", diff)
	}
}
