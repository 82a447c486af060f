package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Families says which addresses nodes, pods and services have.
type Families int

// Dual has IPv4 addresses first.
const (
	Dual Families = iota
	IPv4
	IPv6
)

// of picks from what there is of each family, for the comma-separated lists of the Kubernetes
// programs.
func (f Families) of(v4, v6 string) []string { return [][]string{{v4, v6}, {v4}, {v6}}[f] }

// ClusterDNS is where pods send their questions: give a Service this address (in a cluster of IPv6
// alone ClusterDNSv6), and put a server of names behind it. There is none by itself.
const (
	ClusterDNS   = "10.96.0.10"
	ClusterDNSv6 = "fd00:96::a"
)

const (
	wire   = "nodes" // the bridge that joins the nodes with the control plane
	siteV4 = "172.18.0.1"
	siteV6 = "fd00:18::1"
	podsV4 = "10.244.0.0/16"
	podsV6 = "fd00:244::/48"
)

func nodeAddresses(f Families, i int) []string {
	return f.of(fmt.Sprintf("172.18.0.%d", 10+i), fmt.Sprintf("fd00:18::%x", 10+i))
}

func podSubnets(f Families, i int) []string {
	return f.of(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:244:0:%x::/64", i))
}

// layWire makes the control plane the router of all nodes and pods.
func (c *Cluster) layWire() error {
	h, err := c.site.links()
	if err != nil {
		return err
	}
	defer h.Close()
	if err := forward(c.site); err != nil {
		return err
	}
	// With a hardware address of its own, for else it takes one of its ports, and another when that
	// port goes.
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: wire,
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 1, 0}}}
	if err := h.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add bridge: %w", err)
	}
	return errors.Join(
		raise(h, "lo", nil),
		raise(h, wire, c.families.of(siteV4, siteV6)),
	)
}

// connect gives a node its interface. The routes to its pods are the router's and stay when the
// node does not.
func (c *Cluster) connect(n *Node) error {
	if err := forward(n.machine); err != nil {
		return err
	}
	site, err := c.site.links()
	if err != nil {
		return err
	}
	defer site.Close()
	node, err := n.machine.links()
	if err != nil {
		return err
	}
	defer node.Close()
	if old, err := site.LinkByName(n.Name); err == nil {
		_ = site.LinkDel(old) // of before the restart; the kernel may be faster
	}
	bridge, err := site.LinkByName(wire)
	if err != nil {
		return err
	}
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: n.Name, MasterIndex: bridge.Attrs().Index},
		PeerName:  "eth0", PeerNamespace: netlink.NsPid(n.machine.first.Process.Pid),
		// The others remember it over a restart.
		PeerHardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, byte(n.index)},
	}
	if err := site.LinkAdd(veth); err != nil {
		return fmt.Errorf("add interface %s: %w", n.Name, err)
	}
	err = errors.Join(
		raise(site, n.Name, nil),
		raise(node, "lo", nil),
		raise(node, "eth0", nodeAddresses(c.families, n.index)),
	)
	for i, gateway := range c.families.of(siteV4, siteV6) {
		everything := netip.PrefixFrom(netip.MustParseAddr(gateway), 0).Masked()
		err = errors.Join(err, route(node, everything, gateway),
			route(site, netip.MustParsePrefix(podSubnets(c.families, n.index)[i]),
				nodeAddresses(c.families, n.index)[i]))
	}
	return err
}

// forward makes a machine a router. Redirects would tell nodes that they are neighbours, and
// duplicate address detection would take a second of each address.
func forward(m *machine) error {
	settings := [][2]string{
		{"ipv4/ip_forward", "1"},
		{"ipv4/conf/all/send_redirects", "0"},
		{"ipv6/conf/all/forwarding", "1"},
		{"ipv6/conf/default/accept_dad", "0"},
		{"bridge/bridge-nf-call-iptables", "1"}, // services of pods on the same bridge
		{"bridge/bridge-nf-call-ip6tables", "1"},
	}
	return m.enter(newNamespaces, func() error {
		for _, s := range settings {
			if err := os.WriteFile("/proc/sys/net/"+s[0], []byte(s[1]), 0); err != nil {
				return fmt.Errorf("set kernel parameter (is br_netfilter loaded?): %w", err)
			}
		}
		return nil
	})
}

func raise(h *netlink.Handle, name string, addresses []string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	for _, a := range addresses {
		addr := netip.MustParseAddr(a)
		mask := net.CIDRMask(24, 32)
		if addr.Is6() {
			mask = net.CIDRMask(64, 128)
		}
		if err := h.AddrAdd(link,
			&netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: mask},
				Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	return h.LinkSetUp(link)
}

func route(h *netlink.Handle, to netip.Prefix, via string) error {
	dst := &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}
	if err := h.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}); err != nil {
		return fmt.Errorf("add route to %s via %s: %w", to, via, err)
	}
	return nil
}
