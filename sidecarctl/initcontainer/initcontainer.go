// Package initcontainer does the work of the init container istio-init: it writes the rules of a
// pod from inside the pod, where no CNI plugin does.
//
//	o, err := initcontainer.Read(args, env, resolvConf)
//	done, err := initcontainer.Program(ctx, o)
//
// Be aware: no record says what was written, so the flags that wrote the rules have to be given
// again to remove them.
package initcontainer

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
)

// Options is what an init container is told.
type Options struct {
	Policy      redirect.Policy // what is redirected
	Work        initflags.Work  // what to do about it
	Nameservers []netip.Addr    // of the pod
	Warnings    []string        // about what was told
}

// Outcome is what has become of the rules.
type Outcome string

// The outcomes.
const (
	Written   Outcome = "written and read back"
	Replaced  Outcome = "written in place of others of ours, and read back"
	Unchanged Outcome = "there already"
	Removed   Outcome = "removed"
	Absent    Outcome = "not there; what addresses and routes there were of theirs is removed"
)

// Done is what was done.
type Done struct {
	Backend  string   // one of redirect.Backends
	Outcome  Outcome  // in words
	Warnings []string // about traffic that is not captured
}

func (d Done) String() string {
	return fmt.Sprintf("%s: rules %s", d.Backend, d.Outcome)
}

// Read reads the command line and the variables of istio-init. resolvConf is the text of
// /etc/resolv.conf, for DNS capture. The mistakes come at once.
func Read(args []string, env map[string]string, resolvConf string) (Options, error) {
	var o Options
	var strange string
	o.Nameservers, strange = nameservers(resolvConf)
	var err error
	if o.Work, err = initflags.ReadWork(args, env); err != nil {
		return o, err
	}
	if o.Warnings, err = initflags.Warnings(args, env); err != nil {
		return o, err
	}
	cfg := redirect.Defaults()
	var unknown bool
	o.Policy, unknown, err = initflags.PolicyIn(args, env, cfg, o.Nameservers)
	if err != nil {
		return o, err
	}
	if unknown {
		o.Warnings = append(o.Warnings, "/etc/resolv.conf names no nameserver"+strange+
			": all of port 53 is captured")
	}
	for _, uid := range o.Policy.Proxy.UIDs {
		if uid == 0 {
			o.Warnings = append(o.Warnings,
				"the proxy's uid is 0: nothing that root sends is captured, of the app neither")
		}
	}
	return o, check(o.Policy)
}

// check reports numbers that work alone and not together, or not beside the kernel's own.
func check(p redirect.Policy) error {
	if size := redirect.Compile(p).Size(); size > redirect.MaxRules {
		return fmt.Errorf("all that the flags ask for comes to %d rules, at most %d are possible: "+
			"want shorter lists", size, redirect.MaxRules)
	}
	if p.Mode != redirect.ModeTProxy {
		return nil
	}
	switch {
	case p.Marks.TProxy == p.Marks.SelfCall:
		return fmt.Errorf("--istio-inbound-tproxy-mark: %d: want another mark: this one is that "+
			"of calls within the pod", p.Marks.TProxy)
	case p.Marks.Table >= 253 && p.Marks.Table <= 255:
		return fmt.Errorf("--istio-inbound-tproxy-route-table: %d: want a routing table other "+
			"than the kernel's own, 253 to 255", p.Marks.Table)
	}
	return nil
}

// nameservers are those of a resolv.conf(5) that are addresses. Strange says which are none.
func nameservers(text string) (all []netip.Addr, strange string) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		a, err := netip.ParseAddr(words[1])
		if err != nil {
			strange += fmt.Sprintf(", for %q is no address", words[1])
			continue
		}
		all = append(all, a.WithZone("").Unmap())
	}
	return all, strange
}

// Backend is what writes the rules, one of redirect.Backends. The programs of iptables are used
// where that is asked for, and only there: they are in few images.
func (o Options) Backend() string {
	if o.Work.Backend != "" {
		return o.Work.Backend
	}
	return redirect.NFTables
}
