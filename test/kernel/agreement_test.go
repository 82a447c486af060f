package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables/istioinit"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// comparison is a policy by which istio-init and we write rules, and why they differ.
type comparison struct {
	request matrix.Request
	ipv4    bool     // istio-init finds no IPv6
	reasons []string // of differences of which packets can be sent
}

const (
	bothFamilies = "rules are written for both families"
	tunnelPort   = "the tunnel port enters the proxy by itself"
	virtual      = "what a virtual machine sends is outbound"
	nothing      = "nothing inbound is captured, and nothing is marked for it"
	statusPort   = "15020 stays open"
	mapped       = "an IPv4-mapped CIDR counts as IPv4"
	noServers    = "the runtime does not pass the pod's nameservers"
	rootProxy    = "a proxy that runs as root is known by its group"
	excludedUser = "the pod excludes this user"
)

// comparisons have every reason that packets can have for another fate than istio-init's.
var comparisons = []comparison{
	{matrix.Plain(), true, []string{bothFamilies}},
	{with("tproxy"), true, []string{bothFamilies, tunnelPort}},
	{with("tproxy", "virtual interface", "exclude CIDRs"), false, []string{tunnelPort, virtual}},
	{with("tproxy", "include no inbound port"), false, []string{nothing}},
	{with("status port", "include CIDRs", "virtual interface"), false, []string{statusPort}},
	{with("tproxy", "status port", "dns everywhere"), false, []string{tunnelPort, statusPort}},
	{with("exclude a mapped CIDR", "drop invalid"), false, []string{mapped}},
	{with("dns of unknown nameservers"), false, []string{noServers}},
	{with("root proxy", "exclude interface"), false, []string{rootProxy}},
	{with("exclude uids", "include a mapped CIDR", "dns"), false, []string{mapped, excludedUser}},
	{with("tproxy", "init containers bypass", "several proxy users", "dns", "exclude groups"), false,
		[]string{tunnelPort, excludedUser}},
}

// TestTheKernelAgreesWithComparisons sends packets of what differs between istio-init and us, and
// of what does not, in a pod with istio-init's rules and in one with ours.
func TestTheKernelAgreesWithComparisons(t *testing.T) {
	netns.RequireRoot(t)
	t.Parallel()
	told := map[string]bool{}
	for _, c := range comparisons {
		for _, reason := range c.reasons {
			told[reason] = true
		}
		t.Run(testName(c.request), func(t *testing.T) {
			t.Parallel()
			c.hold(t)
		})
	}
	for _, p := range compare.Purposes {
		if !told[p.Reason] {
			t.Errorf("no policy differs because %s", p.Reason)
		}
	}
}

// hold sends packets of every difference, and of classes without one.
func (c comparison) hold(t *testing.T) {
	policy, rs := compile(t, c.request)
	written, given := secondPen(t, c.request, !c.ipv4)
	theirs, ours := readTables(t, written), simulate.New(rs)
	if len(rs.Routes) != len(written.Marks) {
		t.Fatalf("routes %v and marks %v: want one way for packets in both pods", rs.Routes,
			written.Marks)
	}
	r := &rig{policy: policy, sender: sender{random: rand.New(rand.NewPCG(1, 2)),
		routed: packet.Numbers(written.Marks...)}, sides: []*side{
		{name: "istio-init", rules: theirs}, {name: "sidecar-cni", rules: ours}}}
	r.setUp(t)
	c.asIstioInit(t, r.sides[0].pod, written)
	apply(t, dialectOf(t, redirect.NFTables), r.sides[1].pod.NS, rs)
	awaitRoute(t, r.sides[1].pod.NS, "::6")

	differences := compare.Separate(compare.Compare(theirs, ours), given)
	r.sendDifferences(t, differences, c.reasons)
	r.sendAlike(t, alike(r.random, theirs, ours, differences))
	r.wantBorne(t)
}

// sendDifferences sends packets of each difference, and some for each reason.
func (r *rig) sendDifferences(t *testing.T, differences []compare.Difference, reasons []string) {
	const ofEach = 3
	sent := map[string]int{}
	could := 0
	for _, d := range differences {
		one, found := r.choose(t, d.Class)
		if !found {
			continue
		}
		could++
		for range ofEach {
			r.send(t, one)
			sent[d.Reason]++
			one, _ = r.choose(t, d.Class)
		}
	}
	t.Logf("%d differences: %d sent, %s", len(differences), could, r.takeUnsent())
	for _, reason := range reasons {
		if sent[reason] == 0 {
			t.Errorf("no packet was sent of what differs because %s", reason)
		}
	}
}

// sendAlike sends a packet of each class that does not differ, and of few classes several.
func (r *rig) sendAlike(t *testing.T, classes []packet.Class) {
	const enough = 200
	var can []packet.Class
	for _, class := range classes {
		if _, found := r.choose(t, class); found {
			can = append(can, class)
		}
	}
	t.Logf("%d classes alike: %d can be sent, %s", len(classes), len(can), r.takeUnsent())
	if len(can)*10 < len(classes) {
		t.Fatal("want a tenth of the classes to be sent, or more")
	}
	for i := range max(enough, len(can)) {
		if one, found := r.choose(t, can[i%len(can)]); found {
			r.send(t, one)
		}
	}
}

// alike returns, in random order, classes in which packets have the same fate by both sides' rules.
func alike(random *rand.Rand, a, b packet.Side, differences []compare.Difference) []packet.Class {
	var classes []packet.Class
	for _, part := range packet.Partition(a, packet.Everything()) {
		for _, p := range packet.Partition(b, []packet.Class{part.Class}) {
			if !slices.ContainsFunc(differences,
				func(d compare.Difference) bool { return d.Class.Meets(p.Class) }) {
				classes = append(classes, p.Class)
			}
		}
	}
	random.Shuffle(len(classes),
		func(i, j int) { classes[i], classes[j] = classes[j], classes[i] })
	return classes
}

// asIstioInit does what istio-init does in a pod.
func (c comparison) asIstioInit(t testing.TB, pod *netns.Pod, l istioinit.Listing) {
	t.Helper()
	pod.Run(t, "", "ip", "-6", "address", "add", "::6/128", "dev", "lo")
	for _, mark := range l.Marks {
		for _, family := range []string{"-4", "-6"} {
			table := fmt.Sprint(c.request.Config.Marks.Table)
			pod.Run(t, "", "ip", family, "rule", "add", "fwmark", fmt.Sprint(mark), "lookup", table)
			pod.Run(t, "", "ip", family, "route", "add", "local", "default", "dev", "lo", "table",
				table)
		}
	}
	restore(t, pod.NS, l)
	awaitRoute(t, pod.NS, "::6")
}

func dialectOf(t testing.TB, name string) dialect {
	all := dialects(t)
	return all[slices.IndexFunc(all, func(d dialect) bool { return d.name == name })]
}
