// Package inspect reads the rules in a pod's network namespace, whoever wrote them, and finds those
// that redirect the pod's traffic to its sidecar.
//
//	chains, err := inspect.Read(inspect.Proxy{Ports: []uint16{15001, 15006}, Addrs: podIPs})
//	for _, one := range chains.Redirections() {
//		fmt.Println(one.Where, one.Ours)
//	}
//
// Read by netlink and by the kernel's interface of legacy iptables; no program is run.
//
// Be aware:
//   - It reads the namespace of the calling thread. What leads into a pod's is package podns.
//   - Redirection is what rules do, of nftables or of either iptables. That of an eBPF program is
//     not seen.
//   - Whoever may write rules in the namespace decides how many there are. What is read is bounded;
//     more than that is an error.
package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// Redirection is a chain in a namespace that redirects to the sidecar.
type Redirection struct {
	Where   string // the chain, for people
	Ours    bool   // our rules do it
	Backend string // that keeps its rules there, one of redirect.Backends
}

// Chains are those of a namespace.
type Chains []*chain

// A chain is one of a namespace, of nft or of either iptables.
type chain struct {
	key     string // what jumps name it by
	name    string // "" of a hook's chain in legacy iptables, which keeps no name for it
	where   string // for people
	backend string // by the table that it is in
	hooked  bool   // the kernel sends packets here that enter or leave the pod
	rules   []rule
}

// A rule is what matters here of a rule in the kernel.
type rule struct {
	ours      bool
	redirects bool     // it gives packets another destination or another socket
	captures  bool     // and that is the proxy's
	jumps     []string // keys of chains, also of those that it goes to
	counted   bool     // it has a counter
	packets   uint64   // that the counter has seen
}

// Proxy is where the traffic of a pod ends that is redirected.
type Proxy struct {
	Ports []uint16     // on which the proxy listens; 0 is none
	Addrs []netip.Addr // the pod's own, none if they are not known yet; loopback counts in any case
}

// listens reports whether the proxy has one of the ports from first to last. Port 0 is none.
func (p Proxy) listens(first, last uint16) bool {
	return slices.ContainsFunc(p.Ports, func(port uint16) bool {
		return port != 0 && first <= port && port <= last
	})
}

// local reports whether packets to addr stay in the pod. A DNAT may lead anywhere: to a container
// of a Docker inside the pod, for one, that happens to have the proxy's port. Where the pod's
// addresses are not known it counts: nothing is written beside what may be a redirection.
func (p Proxy) local(addr netip.Addr) bool {
	return addr.IsLoopback() || len(p.Addrs) == 0 || slices.Contains(p.Addrs, addr)
}

// Read reads the chains in the namespace of the calling thread.
func Read(p Proxy) (Chains, error) {
	chains, err := readNFT(p)
	if err != nil {
		return nil, fmt.Errorf("read nftables: %w", err)
	}
	legacy, err := readLegacy(p)
	if err != nil {
		return nil, fmt.Errorf("read legacy iptables: %w", err)
	}
	return append(chains, legacy...), nil
}

// Redirections returns the chains that redirect. Another tool's counts only where packets come to
// it: its rules may be left over, and no traffic meets them. Of ours a rule counts wherever it
// stands: who took the hook away has altered what was programmed.
func (chains Chains) Redirections() []Redirection {
	reached := chains.reached()
	var redirections []Redirection
	for _, c := range chains {
		ours := slices.ContainsFunc(c.rules, func(r rule) bool { return r.ours && r.redirects })
		others := reached[c.key] && slices.ContainsFunc(c.rules, func(r rule) bool {
			return !r.ours && (r.captures || strings.HasPrefix(c.name, traces.MeshChains))
		})
		if ours {
			redirections = append(redirections, Redirection{c.where, true, c.backend})
		}
		if others {
			redirections = append(redirections, Redirection{c.where, false, c.backend})
		}
	}
	return redirections
}

// Unhit reports whether there are rules of ours, and none has met a packet. One without a counter
// may have.
func (chains Chains) Unhit() bool {
	found := false
	for _, c := range chains {
		for _, r := range c.rules {
			if r.ours && (!r.counted || r.packets > 0) {
				return false
			}
			found = found || r.ours
		}
	}
	return found
}

// reached returns the keys of the chains that packets come to: those of hooks, and all that
// rules lead to from there.
func (chains Chains) reached() map[string]bool {
	byKey := map[string]*chain{}
	var next []string
	for _, c := range chains {
		byKey[c.key] = c
		if c.hooked {
			next = append(next, c.key)
		}
	}
	reached := map[string]bool{}
	for len(next) > 0 {
		c := byKey[next[0]]
		next = next[1:]
		if c == nil || reached[c.key] {
			continue
		}
		reached[c.key] = true
		for _, r := range c.rules {
			next = append(next, r.jumps...)
		}
	}
	return reached
}
