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
)

// rules reads the rules in a pod's network namespace.
func (s *spot) rules(ctx context.Context, format string) (*kernelListing, error) {
	var l kernelListing
	thread := podns.Apart
	if s.auditor.InRoot != nil && format == asIptables {
		thread = s.auditor.InRoot // where the programs are
	}
	err := s.place.NS.DoOn(thread, func() error {
		tables, err := kernelrules.Read()
		if err != nil {
			return err
		}
		legacy, err := kernelrules.ReadLegacy()
		if err != nil {
			return err
		}
		if format == asNFT {
			l.Tables = slices.Concat(tables, legacy)
			return nil
		}
		if err := l.addIptables(ctx, iptables.NFT, l.ofIptables(tables)); err != nil {
			return err
		}
		return l.addIptables(ctx, iptables.Legacy, legacy)
	})
	return &l, err
}

// iptablesTables are the names of iptables' own.
var iptablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

// ofIptables keeps the tables such as iptables-nft has, and notes the others.
func (l *kernelListing) ofIptables(tables []kernelrules.Table) []kernelrules.Table {
	var kept []kernelrules.Table
	var others []string
	for _, t := range tables {
		if slices.Contains(iptablesTables, t.Name) && (t.Family == "ip" || t.Family == "ip6") {
			kept = append(kept, t)
		} else {
			others = append(others, t.Family+" "+t.Name)
		}
	}
	if len(others) > 0 {
		l.Notes = append(l.Notes, "tables of nftables that are not iptables' are not shown here: "+
			strings.Join(others, ", ")+"; --format nft shows them")
	}
	return kept
}

// addIptables adds what a variant's own programs print, or the tables as the kernel has them where
// there are no programs. They are run only where there is something to print: else they might make
// tables.
func (l *kernelListing) addIptables(ctx context.Context, v iptables.Variant,
	tables []kernelrules.Table) error {
	if len(tables) == 0 {
		return nil
	}
	found, err := iptables.Find(v)
	if err != nil {
		l.Notes = append(l.Notes, fmt.Sprintf("as nft would list them: %v", err))
		l.Tables = append(l.Tables, tables...)
		return nil
	}
	return l.add(ctx, found, strings.TrimPrefix(string(v), "iptables-"))
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
