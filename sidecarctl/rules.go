package main

import (
	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

const rulesAbout = `Prints the rules that a pod gets, as nft lists them or as input of
iptables-restore, each with its reason.`

// The formats of rules.
const (
	asNFT      = "nft"
	asIptables = "iptables"
)

func (e env) rulesCommand() *cobra.Command {
	var o options
	format := asNFT
	c := e.command("rules", "the rules that a pod gets", rulesAbout, &o)
	c.Flags().StringVar(&format, "format", asNFT, "nft or iptables")
	c.RunE = func(c *cobra.Command, args []string) error {
		if format != asNFT && format != asIptables {
			return usagef("--format %q: want nft or iptables", format)
		}
		all, err := e.subjects(c.Context(), &o, args)
		if err != nil {
			return err
		}
		var shown listings
		refused := false
		for _, one := range all {
			x := one.explain(false)
			l := listing{Pod: x.Pod, Outcome: x.Outcome, Because: x.Because, Findings: x.Findings}
			if one.redirected(x.Outcome) {
				l.Rules = render(redirect.Compile(one.has()), format)
			}
			refused = refused || x.Outcome == isRefused
			shown = append(shown, l)
		}
		return e.answer(&o, shown, refused)
	}
	return c
}

// render prints a ruleset; iptables' of both families, each behind the program that reads it.
func render(rs redirect.Ruleset, format string) string {
	if format == asNFT {
		return nftables.Render(rs)
	}
	return "# iptables-restore\n" + iptables.Render(rs, redirect.IPv4) +
		"# ip6tables-restore\n" + iptables.Render(rs, redirect.IPv6)
}

// listings are what rules shows.
type listings []listing

// listing is about one pod.
type listing struct {
	Pod      string    `json:"pod"`
	Outcome  string    `json:"outcome"` // redirected, skipped or refused
	Because  string    `json:"because,omitempty"`
	Findings []finding `json:"findings,omitempty"`
	Rules    string    `json:"rules,omitempty"`
}

// Text writes it for people, who may give it to nft or iptables-restore.
func (all listings) Text(p *view.Page) {
	for i, l := range all {
		if i > 0 {
			p.Blank()
		}
		p.Comment(l.Pod + ": " + l.Outcome)
		if l.Because != "" {
			p.Comment(l.Because)
		}
		for _, f := range l.Findings {
			p.Comment(f.What)
		}
		p.Verbatim(l.Rules)
	}
}
