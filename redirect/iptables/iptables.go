// Package iptables writes a ruleset with the host's iptables, one iptables-restore a family, and reads it back with
// iptables-save. It is for kernels and hosts that cannot do nftables.
//
//	tables, err := iptables.Find(ctx, iptables.NFT)
//	err = tables.Apply(rules)
//	problems, err := tables.Verify(rules)
//
// Be aware: everything happens in the network namespace of the calling thread, which the caller has locked and moved
// there. A table of a family changes at once, two of them one after the other: nat comes first, so that nothing is ever
// redirected by less than the new nat rules. A namespace of another user namespace is refused by the kernel.
package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
)

// Variant says which of the kernel's two interfaces a build of iptables uses.
type Variant string

// The variants, by the names that iptables gives them.
const (
	NFT    Variant = "nft"
	Legacy Variant = "legacy"
)

// Tables is the host's iptables. Its programs are ended with the context that it was found under.
type Tables struct {
	ctx     context.Context
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

// hasIPv6 asks whether the kernel has the protocol at all; a namespace where it is only switched off still filters it.
func hasIPv6() bool {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return err == nil
}

// Find looks for a variant's programs, without running any.
func Find(ctx context.Context, v Variant) (*Tables, error) {
	t := &Tables{ctx: ctx, variant: v, tools: map[redirect.Family]tools{}}
	var errs []error
	for f, name := range map[redirect.Family]string{redirect.IPv4: "iptables-", redirect.IPv6: "ip6tables-"} {
		name += string(v)
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
		return nil, fmt.Errorf("find iptables-%s: %w: install iptables 1.8 or later on the host, or choose another backend", v, errors.Join(errs...))
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

// Apply writes the ruleset: addresses and routes first, then the rules. Ours are replaced; rules of another tool in
// chains of our names are an error.
func (t *Tables) Apply(rs redirect.Ruleset) error {
	undo, err := routing.Apply(rs)
	if err != nil {
		return err
	}
	for i, f := range t.families() {
		if err := t.apply(rs, f); err != nil {
			again := Tables{context.WithoutCancel(t.ctx), t.variant, t.tools} // it may be the deadline that ended us
			for _, done := range t.families()[:i] {
				_ = again.remove(done)
			}
			undo()
			return fmt.Errorf("program iptables-%s for %s: %w", t.variant, f, err)
		}
	}
	return nil
}

// apply first acts as if nothing were there, as in the namespace of a new pod: creating a chain that exists fails, and
// then nothing has been changed. Only then it looks what is there.
func (t *Tables) apply(rs redirect.Ruleset, f redirect.Family) error {
	fresh := input(rs, f, nil)
	if fresh == "" {
		return nil
	}
	first := t.restore(f, fresh)
	if first == nil {
		return nil
	}
	have, err := t.read(f)
	if err != nil {
		return errors.Join(first, err)
	}
	ours, err := have.ours()
	if err != nil {
		return err
	}
	if len(ours) == 0 && inOtherUserNamespace() {
		return fmt.Errorf("%w: the namespace belongs to a user namespace of its own (hostUsers: false), where the kernel refuses owner matches of iptables: use the nftables backend", first)
	}
	if len(ours) == 0 {
		return first
	}
	return t.restore(f, input(rs, f, ours))
}

// inOtherUserNamespace reports whether the calling thread's network namespace belongs to a user namespace that is not ours.
func inOtherUserNamespace() bool {
	network, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return false
	}
	defer func() { _ = network.Close() }()
	fd, err := unix.IoctlRetInt(int(network.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return errors.Is(err, unix.EPERM) // the kernel shows only what lies within our own
	}
	defer func() { _ = unix.Close(fd) }()
	var owner, own unix.Stat_t
	if unix.Fstat(fd, &owner) != nil || unix.Stat("/proc/self/ns/user", &own) != nil {
		return false
	}
	return owner.Ino != own.Ino
}

// Remove deletes our rules and chains, and the addresses and routes of the ruleset. What is not there is not missed.
func (t *Tables) Remove(rs redirect.Ruleset) error {
	for _, f := range t.families() {
		if err := t.remove(f); err != nil {
			return fmt.Errorf("remove from iptables-%s for %s: %w", t.variant, f, err)
		}
	}
	return routing.Remove(rs)
}

func (t *Tables) remove(f redirect.Family) error {
	have, err := t.read(f)
	if err != nil {
		return err
	}
	ours, err := have.ours()
	if err != nil {
		return err
	}
	if len(ours) == 0 {
		return nil
	}
	return t.restore(f, input(redirect.Ruleset{}, f, ours))
}

// Verify names every difference between the ruleset and what the kernel has, and changes nothing. Rules of others in the
// hooks' chains are not looked at.
func (t *Tables) Verify(rs redirect.Ruleset) ([]redirect.Problem, error) {
	var problems []redirect.Problem
	for _, f := range t.families() {
		have, err := t.read(f)
		if err != nil {
			return nil, fmt.Errorf("read iptables-%s for %s: %w", t.variant, f, err)
		}
		problems = append(problems, have.verify(rs, f)...)
	}
	routes, err := routing.Verify(rs)
	return append(problems, routes...), err
}

// Render returns the input of iptables-restore for a family, and the routing policy as comments.
func Render(rs redirect.Ruleset, f redirect.Family) string {
	var b strings.Builder
	b.WriteString(input(rs, f, nil))
	for _, command := range routing.Render(rs) {
		fmt.Fprintf(&b, "# %s\n", command)
	}
	return b.String()
}

// input is one run of iptables-restore: in each table old lines go and new ones come, together. nat is the first table,
// since it always has a chain of ours: if that exists, the run fails before it changed anything.
func input(rs redirect.Ruleset, f redirect.Family, old deletions) string {
	var b strings.Builder
	for _, table := range slices.Backward(redirect.Tables) {
		lines := slices.Clone(old[table])
		var rules []string
		for _, c := range rs.Chains {
			if c.Table != table {
				continue
			}
			if c.Hook == redirect.NoHook {
				lines = append(lines, "-N "+c.Name)
			}
			for _, spec := range chainSpecs(c, f) {
				rules = append(rules, fmt.Sprintf("-A %s %s", c.Name, spec))
			}
		}
		if lines = append(lines, rules...); len(lines) > 0 {
			fmt.Fprintf(&b, "*%s\n%s\nCOMMIT\n", table, strings.Join(lines, "\n"))
		}
	}
	return b.String()
}

func chainSpecs(c redirect.Chain, f redirect.Family) []string {
	var all []string
	for _, r := range c.Rules {
		all = append(all, specs(r, f)...)
	}
	return all
}

// namespaceLock has the legacy variant lock the namespace that it changes, not the node: the file of the namespace is
// the same for all that work there, and for nobody else.
const namespaceLock = "XTABLES_LOCKFILE=/proc/self/ns/net"

func (t *Tables) restore(f redirect.Family, input string) error {
	_, err := t.run(input, t.tools[f].restore, "--noflush")
	return err
}

func (t *Tables) run(input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(t.ctx, program, args...)
	cmd.Env = append(os.Environ(), namespaceLock, "LC_ALL=C")
	cmd.Stdin = strings.NewReader(input)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(program), err, strings.Join(strings.Fields(complaints.String()), " "))
	}
	return out.String(), nil
}
