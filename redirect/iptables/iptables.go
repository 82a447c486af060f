//go:build linux

package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// Variant says which of the kernel's two interfaces a build of iptables uses.
type Variant string

// The variants.
const (
	NFT    Variant = redirect.IptablesNFT
	Legacy Variant = redirect.IptablesLegacy
)

// programs names the main program of each variant and family. Those that restore and save have its
// name with an ending.
var programs = map[Variant]map[redirect.Family]string{
	NFT:    {redirect.IPv4: "iptables-nft", redirect.IPv6: "ip6tables-nft"},
	Legacy: {redirect.IPv4: "iptables-legacy", redirect.IPv6: "ip6tables-legacy"},
}

// Tables is the host's iptables.
type Tables struct {
	variant Variant
	tools   map[redirect.Family]tools
}

type tools struct{ iptables, restore, save string }

// families lists those that the host has programs for.
func (t *Tables) families() []redirect.Family {
	var families []redirect.Family
	for _, f := range redirect.Families {
		if _, ok := t.tools[f]; ok && (f == redirect.IPv4 || hasIPv6()) {
			families = append(families, f)
		}
	}
	return families
}

// hasIPv6 asks whether the kernel has the protocol at all; a namespace where it is only switched
// off still filters it.
func hasIPv6() bool {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return err == nil
}

// Find looks for a variant's programs, without running any.
func Find(v Variant) (*Tables, error) {
	t := &Tables{variant: v, tools: map[redirect.Family]tools{}}
	var errs []error
	for _, f := range redirect.Families {
		name := programs[v][f]
		main, err1 := lookPath(name)
		restore, err2 := lookPath(name + "-restore")
		save, err3 := lookPath(name + "-save")
		if err := errors.Join(err1, err2, err3); err == nil {
			t.tools[f] = tools{main, restore, save}
		} else if f == redirect.IPv4 {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("find %s: %w: install iptables 1.8 or later on the host, or "+
			"choose another backend", v, errors.Join(errs...))
	}
	return t, nil
}

// lookPath also looks where administrators' programs are: a runtime may call us with a user's PATH.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", err
}

// Apply writes the ruleset: addresses and routes first, then the rules. Ours are replaced; rules of
// another tool in chains of our names are an error. The function that it returns takes back what
// this call did, for a caller that fails later; on an error it has done so itself. The warnings are
// about traffic that the host's programs cannot capture.
func (t *Tables) Apply(ctx context.Context,
	rs redirect.Ruleset) (undo func(), warnings []string, err error) {
	warnings, err = t.uncaptured()
	if err != nil {
		return nil, nil, err
	}
	used, err := t.used()
	if err != nil {
		return nil, nil, err
	}
	undoRouting, err := routing.Apply(rs)
	if err != nil {
		return nil, nil, err
	}
	var changed []change
	undo = func() {
		// The deadline of ctx may be what made this fail.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		for _, c := range slices.Backward(changed) {
			_ = t.restoreTo(ctx, c) // whoever undoes reports an error already
		}
		undoRouting()
	}
	for _, f := range t.families() {
		before, err := t.apply(ctx, rs, f, used)
		if before != nil {
			changed = append(changed, change{f, before})
		}
		if err != nil {
			undo()
			return nil, nil, fmt.Errorf("program %s for %s: %w", t.variant, f, err)
		}
	}
	return undo, warnings, nil
}

// undoTimeout is for what a call does after its deadline.
const undoTimeout = 5 * time.Second

// change is a family that was written to, and what it had of ours before.
type change struct {
	family redirect.Family
	before listing
}

// restoreTo brings our chains and rules of a family back to what they were.
func (t *Tables) restoreTo(ctx context.Context, c change) error {
	have, err := t.read(ctx, c.family)
	if err != nil {
		return err
	}
	ours, err := have.ours()
	if err != nil {
		return err
	}
	return t.restore(ctx, c.family, ours.replacedBy(c.before.creations()))
}

// apply writes the rules of a family. It returns what the family had of ours before, nil if nothing
// was changed. The namespace of a new pod has nothing, and there the programs need not be asked for
// it.
func (t *Tables) apply(ctx context.Context, rs redirect.Ruleset, f redirect.Family,
	used families) (before listing, err error) {
	rules := creationsOf(rs, f)
	if len(rules) == 0 {
		return nil, nil
	}
	if !used[f] {
		return listing{}, explain(t.restore(ctx, f, deletions{}.replacedBy(rules)))
	}
	have, err := t.read(ctx, f)
	if err != nil {
		return nil, err
	}
	if len(have.verify(rs, f)) == 0 {
		return nil, nil // twice is once
	}
	ours, err := have.ours()
	if err != nil {
		return nil, err
	}
	return have, explain(t.restore(ctx, f, ours.replacedBy(rules)))
}

// families is a set of them.
type families map[redirect.Family]bool

// used returns which families may have rules of ours, or of a mesh at all.
func (t *Tables) used() (families, error) {
	used := families{}
	if t.variant == Legacy {
		for _, f := range t.families() {
			tables, err := traces.LegacyTables(f)
			if err != nil {
				return nil, err
			}
			used[f] = len(tables) > 0
		}
		return used, nil
	}
	chains, err := traces.Chains()
	for _, c := range chains {
		switch c.Family { // where iptables-nft keeps its tables
		case "ip":
			used[redirect.IPv4] = true
		case "ip6":
			used[redirect.IPv6] = true
		}
	}
	return used, err
}

// explain adds what is behind a refusal that the programs do not understand themselves.
func explain(err error) error {
	if err != nil && podns.Foreign() {
		return fmt.Errorf("%w: the namespace belongs to a user namespace of its own (hostUsers: "+
			"false), where the kernel "+
			"refuses owner matches of iptables: use the nftables backend", err)
	}
	return err
}

// Remove deletes our rules and chains, and the addresses and routes of the ruleset. What is not
// there is not missed.
func (t *Tables) Remove(ctx context.Context, rs redirect.Ruleset) error {
	for _, f := range t.families() {
		if err := t.restoreTo(ctx, change{family: f}); err != nil {
			return fmt.Errorf("remove from %s for %s: %w", t.variant, f, err)
		}
	}
	return routing.Remove(rs)
}

// Verify names every difference between the ruleset and what the kernel has, and changes nothing.
// Rules of others in the hooks' chains are not looked at.
func (t *Tables) Verify(ctx context.Context, rs redirect.Ruleset) ([]redirect.Problem, error) {
	var problems []redirect.Problem
	if _, err := t.uncaptured(); err != nil {
		problems = append(problems,
			redirect.Problem{Where: redirect.IPv6.String(), What: err.Error()})
	}
	for _, f := range t.families() {
		have, err := t.read(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("read %s for %s: %w", t.variant, f, err)
		}
		problems = append(problems, have.verify(rs, f)...)
	}
	routes, err := routing.Verify(rs)
	return append(problems, routes...), err
}
