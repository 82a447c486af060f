package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/kernelrules"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// rules reads the rules in a pod's network namespace.
func (s *spot) rules(ctx context.Context, format string) (*kernelListing, error) {
	var l kernelListing
	thread := podns.Apart
	if s.auditor.InRoot != nil && format == asIptables {
		thread = s.auditor.InRoot // where the programs are
	}
	err := s.place.NS.DoOn(thread, func() error {
		var err error
		if l.Tables, err = kernelrules.Read(); err != nil {
			return err
		}
		legacy, err := legacyTables()
		if err != nil {
			return err
		}
		if format == asNFT {
			l.Notes = legacy.notes(nil)
			return nil
		}
		return l.addIptables(ctx, legacy)
	})
	return &l, err
}

// legacy are the tables of legacy iptables by family.
type legacy map[redirect.Family][]string

func legacyTables() (legacy, error) {
	all := legacy{}
	for _, f := range redirect.Families {
		tables, err := traces.LegacyTables(f)
		if err != nil {
			return nil, err
		}
		if len(tables) > 0 {
			all[f] = tables
		}
	}
	return all, nil
}

// notes say which tables of legacy iptables are not shown, and why: since another format was asked
// for, or for a reason.
func (all legacy) notes(why error) []string {
	var notes []string
	for _, f := range redirect.Families {
		if len(all[f]) == 0 {
			continue
		}
		note := fmt.Sprintf("legacy iptables has tables for %s that are not shown here: %s", f,
			strings.Join(all[f], ", "))
		if why != nil {
			note += fmt.Sprintf(": %v", why)
		} else {
			note += "; --format iptables shows them"
		}
		notes = append(notes, note)
	}
	return notes
}

// addIptables adds what iptables' own programs print. They are run only where there is something to
// print: else they might make tables.
func (l *kernelListing) addIptables(ctx context.Context, old legacy) error {
	if l.hasIptables() {
		found, err := iptables.Find(iptables.NFT)
		if err != nil {
			l.Notes = append(l.Notes, fmt.Sprintf("as nft lists them: %v", err))
		} else {
			l.Tables = nil
			if err := l.add(ctx, found, "nft"); err != nil {
				return err
			}
		}
	}
	if len(old) == 0 {
		return nil
	}
	found, err := iptables.Find(iptables.Legacy)
	if err != nil {
		l.Notes = append(l.Notes, old.notes(err)...)
		return nil
	}
	return l.add(ctx, found, "legacy")
}

// iptablesTables are the names of iptables' own.
var iptablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

// hasIptables reports whether there are tables such as iptables-nft has, and keeps only these.
func (l *kernelListing) hasIptables() bool {
	var kept []kernelrules.Table
	var others []string
	for _, t := range l.Tables {
		ofIptables := slices.Contains(iptablesTables, t.Name)
		if ofIptables && (t.Family == "ip" || t.Family == "ip6") {
			kept = append(kept, t)
		} else {
			others = append(others, t.Family+" "+t.Name)
		}
	}
	if len(others) > 0 {
		l.Notes = append(l.Notes, "tables of nftables that are not iptables' are not shown here: "+
			strings.Join(others, ", ")+"; --format nft shows them")
	}
	l.Tables = kept
	return len(kept) > 0
}

func (l *kernelListing) add(ctx context.Context, by *iptables.Tables, variant string) error {
	for _, f := range redirect.Families {
		program := map[redirect.Family]string{redirect.IPv4: "iptables-",
			redirect.IPv6: "ip6tables-"}[f] + variant
		text, err := by.List(ctx, f)
		if err != nil {
			return err
		}
		if text != "" {
			l.Iptables = append(l.Iptables, iptablesListing{Program: program, Text: text})
		}
	}
	return nil
}
