package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/legacy"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// readLegacy reads the chains of the tables in which rules redirect. It asks only for tables that
// are there: the kernel would make the others.
func readLegacy(to Proxy) ([]*chain, error) {
	var chains []*chain
	for _, l := range legacy.Layouts {
		tables, err := traces.LegacyTables(l.Family)
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("%w: in a namespace of another user namespace this needs "+
				"CAP_DAC_READ_SEARCH", err)
		}
		if err != nil {
			return nil, err
		}
		for _, name := range tables {
			if !slices.Contains([]string{"nat", "mangle", "raw"}, name) {
				continue
			}
			table, err := l.Read(name)
			var found []*chain
			if err == nil {
				found, err = chainsIn(table, to)
			}
			if err != nil {
				return nil, fmt.Errorf("table %s %s: %w", l.Name, name, err)
			}
			chains = append(chains, found...)
		}
	}
	return chains, nil
}

// chainsIn are the chains of a table of legacy iptables.
func chainsIn(t legacy.Table, to Proxy) ([]*chain, error) {
	entries, err := t.Entries()
	if err != nil {
		return nil, err
	}
	var chains []*chain
	begin := func(at int, name string) {
		c := &chain{key: legacyKey(t, at), name: name, backend: redirect.IptablesLegacy}
		c.where = fmt.Sprintf("chain %s of legacy table %s %s", name, t.Layout.Name, t.Name)
		if name == "" {
			c.where = fmt.Sprintf("a hook's chain of legacy table %s %s", t.Layout.Name, t.Name)
		}
		chains = append(chains, c)
	}
	for _, e := range entries {
		if hook, ok := t.Hooks[e.At]; ok {
			begin(e.At, "")
			// those that see the pod's traffic
			chains[len(chains)-1].hooked = hook == unix.NF_INET_PRE_ROUTING ||
				hook == unix.NF_INET_LOCAL_OUT
		}
		if name, ok := e.Begins(); ok {
			begin(e.Next(), name)
		} else if len(chains) > 0 {
			now := chains[len(chains)-1]
			now.rules = append(now.rules, legacyRule(t, e, to))
		}
	}
	for _, c := range chains { // each ends with its policy, which nobody has written as a rule
		c.rules = c.rules[:max(0, len(c.rules)-1)]
	}
	return chains, nil
}

func legacyKey(t legacy.Table, at int) string {
	return fmt.Sprintf("legacy %s %s %d", t.Layout.Name, t.Name, at)
}

// legacyRule reads a rule. One without a target jumps to the entry behind it.
func legacyRule(t legacy.Table, e legacy.Entry, to Proxy) rule {
	r := rule{ours: bytes.Contains(e.Data, []byte(iptables.Tag)), counted: true}
	r.packets, _ = e.Counter()
	x := xtTarget{ipv6: t.Family == redirect.IPv6}
	x.name, x.info = e.Target()
	if x.redirects() {
		r.redirects, r.captures = true, x.captures(to)
	}
	if at, ok := e.Verdict(); ok && at >= 0 && at != e.Next() {
		r.jumps = []string{legacyKey(t, at)}
	}
	return r
}
