//go:build linux

package iptables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// listing is what iptables-save printed: the rules of each chain, without "-A CHAIN ".
type listing map[redirect.Table]map[string][]string

func parse(out string) listing {
	have := listing{}
	var chains map[string][]string
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if table, ok := strings.CutPrefix(line, "*"); ok {
			chains = map[string][]string{}
			for _, t := range redirect.Tables {
				if t.String() == table {
					have[t] = chains
				}
			}
		} else if declared, ok := strings.CutPrefix(line, ":"); ok {
			name, _, _ := strings.Cut(declared, " ")
			chains[name] = nil
		} else if rule, ok := strings.CutPrefix(line, "-A "); ok {
			name, spec, _ := strings.Cut(rule, " ")
			chains[name] = append(chains[name], withoutDots(spec))
		}
	}
	return have
}

// withoutDots writes addresses such as ::1.2.3.4/128, as the programs print the first ones of IPv6,
// as everybody else does.
func withoutDots(spec string) string {
	if !strings.Contains(spec, " ::") {
		return spec
	}
	words := strings.Split(spec, " ")
	for i, word := range words {
		if p, err := netip.ParsePrefix(word); err == nil && strings.HasPrefix(word, "::") {
			words[i] = p.String()
		}
	}
	return strings.Join(words, " ")
}

func isOurs(spec string) bool { return strings.Contains(spec, `--comment "`+Tag) }

func isHook(chain string) bool {
	return chain == redirect.Prerouting.String() || chain == redirect.Output.String()
}

// ErrForeign is the error of a namespace whose chains of our names have rules of another tool.
var ErrForeign = errors.New("programmed by another tool")

// ours returns what would delete our rules and chains. A chain with our name and another's rules
// stops everything.
func (have listing) ours() (deletions, error) {
	del := deletions{}
	for _, table := range redirect.Tables {
		var emptied, deleted []string
		for _, name := range slices.Sorted(maps.Keys(have[table])) {
			rules := have[table][name]
			if isHook(name) {
				for _, spec := range rules {
					if isOurs(spec) {
						del[table] = append(del[table], fmt.Sprintf("-D %s %s", name, spec))
					}
				}
				continue
			}
			if !strings.HasPrefix(name, traces.MeshChains) {
				continue
			}
			if i := slices.IndexFunc(rules,
				func(spec string) bool { return !isOurs(spec) }); i >= 0 {
				return nil, fmt.Errorf("%w: chain %s of table %s has -A %s %s", ErrForeign, name,
					table, name, rules[i])
			}
			emptied, deleted = append(emptied, "-F "+name), append(deleted, "-X "+name)
		}
		if lines := slices.Concat(del[table], emptied, deleted); len(lines) > 0 {
			del[table] = lines
		}
	}
	return del, nil
}

// verify compares with what the ruleset asks for.
func (have listing) verify(rs redirect.Ruleset, f redirect.Family) []redirect.Problem {
	var problems []redirect.Problem
	wanted := map[redirect.Table]map[string]bool{redirect.Raw: {}, redirect.Mangle: {},
		redirect.NAT: {}}
	for _, c := range rs.Chains {
		wanted[c.Table][c.Name] = true
		where := fmt.Sprintf("%s %s %s", f, c.Table, c.Name)
		got, ok := have[c.Table][c.Name]
		if !ok && c.Hook == redirect.NoHook {
			problems = append(problems,
				redirect.Problem{Where: where, What: "missing: the whole chain"})
			continue
		}
		if c.Hook != redirect.NoHook {
			got = slices.DeleteFunc(slices.Clone(got),
				func(spec string) bool { return !isOurs(spec) })
		}
		problems = append(problems, redirect.Compare(where, lines(chainSpecs(c, f)), lines(got))...)
	}
	for _, table := range redirect.Tables {
		for _, name := range slices.Sorted(maps.Keys(have[table])) {
			leftover := isHook(name) && slices.ContainsFunc(have[table][name], isOurs)
			if !wanted[table][name] && (leftover || strings.HasPrefix(name, traces.MeshChains)) {
				problems = append(problems,
					redirect.Problem{Where: fmt.Sprintf("%s %s %s", f, table, name),
						What: "unexpected: rules of ours"})
			}
		}
	}
	return problems
}

func lines(specs []string) []redirect.Line {
	all := make([]redirect.Line, len(specs))
	for i, s := range specs {
		all[i] = redirect.Line{Key: s, Text: s}
	}
	return all
}
