package repair

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// A redirection is a chain in a namespace that redirects to the sidecar.
type redirection struct {
	where string
	ours  bool
}

// A chain is one of a namespace, of nft or of either iptables.
type chain struct {
	key    string // what jumps name it by
	name   string // "" of a hook's chain in legacy iptables, which keeps no name for it
	where  string // for people
	hooked bool   // the kernel sends packets here that enter or leave the pod
	rules  []rule
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

// A proxy is where the traffic of a pod ends that is redirected.
type proxy struct {
	ports []uint16
	addrs []netip.Addr // the pod's own, none if they are not known yet; loopback counts in any case
}

// listens reports whether the proxy has one of the ports from first to last. Port 0 is none.
func (p proxy) listens(first, last uint16) bool {
	return slices.ContainsFunc(p.ports, func(port uint16) bool {
		return port != 0 && first <= port && port <= last
	})
}

// local reports whether packets to addr stay in the pod. A DNAT may lead anywhere: to a container
// of a Docker inside the pod, for one, that happens to have the proxy's port. Where the pod's
// addresses are not known it counts: nothing is written beside what may be a redirection.
func (p proxy) local(addr netip.Addr) bool {
	return addr.IsLoopback() || len(p.addrs) == 0 || slices.Contains(p.addrs, addr)
}

// look reads the chains in the namespace of the calling thread. No program is run.
func look(p proxy) ([]*chain, error) {
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

// redirectionsIn returns the chains that redirect. Another tool's counts only where packets come to
// it: its rules may be left over, and no traffic meets them. Of ours a rule counts wherever it
// stands: who took the hook away has altered what was programmed.
func redirectionsIn(chains []*chain) []redirection {
	reached := reachedOf(chains)
	var redirections []redirection
	for _, c := range chains {
		ours := slices.ContainsFunc(c.rules, func(r rule) bool { return r.ours && r.redirects })
		others := reached[c.key] && slices.ContainsFunc(c.rules, func(r rule) bool {
			return !r.ours && (r.captures || strings.HasPrefix(c.name, traces.MeshChains))
		})
		if ours {
			redirections = append(redirections, redirection{c.where, true})
		}
		if others {
			redirections = append(redirections, redirection{c.where, false})
		}
	}
	return redirections
}

// unhit reports whether there are rules of ours, and none has met a packet. One without a counter
// may have.
func unhit(chains []*chain) bool {
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

// reachedOf returns the keys of the chains that packets come to: those of hooks, and all that
// rules lead to from there.
func reachedOf(chains []*chain) map[string]bool {
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
