package chain

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/cgroup"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// pluginMemory is what a call may take at most, the programs of iptables and the kernel's rules
// counted in.
const pluginMemory = 64 << 20

// worst are pods that ask for about as much as is accepted, in different ways.
func worst() map[string]map[string]string {
	list := func(n int, item func(i int) string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return strings.Join(items, ",")
	}
	ipv4 := func(i int) string { return fmt.Sprintf("10.%d.%d.0/25", i/250, i%250) }
	ipv6 := func(i int) string { return fmt.Sprintf("2001:db8:%x::/49", i) }
	port := func(i int) string { return fmt.Sprint(1024 + i) }
	const (
		traffic    = "traffic.sidecar.istio.io/"
		interfaces = "istio.io/reroute-virtual-interfaces"
	)
	return map[string]map[string]string{
		"CIDRs of IPv4": {
			traffic + "includeOutboundIPRanges": list(5050, ipv4),
			traffic + "excludeOutboundIPRanges": list(5050, ipv4),
		},
		"CIDRs of IPv6": {
			traffic + "includeOutboundIPRanges": list(5050, ipv6),
			traffic + "excludeOutboundIPRanges": list(5050, ipv6),
		},
		"CIDRs and virtual interfaces": {
			traffic + "includeOutboundIPRanges": list(9000, ipv4),
			interfaces: list(256,
				func(i int) string { return fmt.Sprintf("vm%d", i) }),
		},
		"ports": {
			traffic + "includeInboundPorts":  list(3000, port),
			traffic + "excludeOutboundPorts": list(1950, port),
		},
		"users": {"sidecar-cni.io/excludeOutboundUIDs": list(1000,
			func(i int) string { return fmt.Sprint(100000 + 2*i) })},
	}
}

// TestTheDearestPods holds every call about them to the plugin's memory.
func TestTheDearestPods(t *testing.T) {
	netns.RequireRoot(t)
	for name, annotations := range worst() {
		for _, backend := range []string{"nftables", "iptables-nft", "iptables-legacy"} {
			t.Run(name+" by "+backend, func(t *testing.T) {
				n, ns, pod := newNode(t), netns.New(t), Meshed("web-0", annotations)
				n.agent.Put(pod)
				at := Attachment(pod, ns)
				for _, verb := range []string{"ADD", "ADD", "CHECK", "changed", "ADD"} {
					if verb == "changed" { // so that the next ADD replaces every rule
						pod.Annotations["status.sidecar.istio.io/port"] = "15000"
						at = Attachment(pod, ns)
						n.agent.Put(pod)
						continue
					}
					group := cgroup.New(t, pluginMemory)
					c := call{command: verb, at: at,
						conf: Object{"backend": backend, "deadline": "1m"}}
					c.prepare = func(cmd *exec.Cmd) { within(group, cmd) }
					cmd := n.start(c)
					err := cmd.Wait()
					if kills := group.Kills(t); err != nil || kills > 0 {
						t.Fatalf("%s: %v, %d processes killed for want of memory: %s", verb, err,
							kills, cmd.Stderr.(*bytes.Buffer))
					}
					t.Logf("%s: %d MB at most", verb, group.Most(t)>>20)
				}
			})
		}
	}
}

// within has a command run in a cgroup.
func within(group *cgroup.Memory, cmd *exec.Cmd) {
	confined := group.Command(cmd.Path, cmd.Args[1:]...)
	cmd.Path, cmd.Args = confined.Path, confined.Args
}
