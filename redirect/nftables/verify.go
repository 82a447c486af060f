//go:build linux

package nftables

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
)

// Verify names every difference between the ruleset and what the kernel has, and changes nothing.
func Verify(ctx context.Context, rs redirect.Ruleset) ([]redirect.Problem, error) {
	problems, err := verifyTable(ctx, translate(rs))
	if err != nil {
		return nil, fmt.Errorf("read nftables: %w", explain(err))
	}
	routes, err := routing.Verify(rs)
	return append(problems, routes...), err
}

func verifyTable(ctx context.Context, t *table) ([]redirect.Problem, error) {
	s, err := dial()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	where := "table inet " + TableName
	flags, there, err := s.readTable()
	if err != nil {
		return nil, err
	}
	if !there {
		return []redirect.Problem{{Where: where, What: "missing"}}, nil
	}
	var problems []redirect.Problem
	if flags != 0 {
		problems = append(problems,
			redirect.Problem{Where: where,
				What: fmt.Sprintf("changed: want no flags, found %#x", flags)})
	}
	have, err := s.readChains()
	if err != nil {
		return nil, err
	}
	problems = append(problems, t.verifyChains(have)...)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	rules, err := t.verifyRules(s)
	return append(problems, rules...), err
}

// verifyChains compares what makes a chain what it is, its rules aside.
func (t *table) verifyChains(have map[string]string) []redirect.Problem {
	var problems []redirect.Problem
	for _, want := range t.chains {
		got, ok := have[want.name]
		delete(have, want.name)
		switch {
		case !ok:
			problems = append(problems,
				redirect.Problem{Where: want.name, What: "missing: the whole chain"})
		case got != want.base.String():
			problems = append(problems,
				redirect.Problem{Where: want.name,
					What: fmt.Sprintf("changed: want %s, found %s", want.base, got)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		problems = append(problems,
			redirect.Problem{Where: name, What: "unexpected: the whole chain"})
	}
	return problems
}

// verifyRules compares rule by rule, in the kernel's own encoding.
func (t *table) verifyRules(s socket) ([]redirect.Problem, error) {
	sets, err := s.readSets()
	if err != nil {
		return nil, err
	}
	have, err := s.readRules(sets)
	if err != nil {
		return nil, err
	}
	var problems []redirect.Problem
	for _, c := range t.chains {
		var want []redirect.Line
		for _, r := range c.rules {
			key, err := r.key()
			if err != nil {
				return nil, err
			}
			want = append(want, redirect.Line{Key: key, Text: r.String()})
		}
		problems = append(problems, redirect.Compare(c.name, want, have[c.name])...)
	}
	return problems, nil
}

// key is the statement as the kernel would give it back.
func (s *statement) key() (string, error) {
	lists := map[string]string{}
	for _, one := range s.sets {
		lists[setKey(anonymous, one.id)] = one.digest()
	}
	var key []byte
	for _, e := range s.exprs {
		encoded, err := encode(e)
		if err != nil {
			return "", err
		}
		if key, err = decode(key, encoded, lists); err != nil {
			return "", err
		}
	}
	return string(key) + comment(s.userdata()), nil
}
