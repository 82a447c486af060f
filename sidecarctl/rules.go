package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

const rulesAbout = `Prints the rules that a pod gets, as nft lists them or as input of
iptables-restore, each with its reason. With --kernel those that are in the pod's network
namespace, whoever wrote them, with counters and handles. They are read from the kernel; only
for --format iptables are iptables' own programs run, if this machine has them.`

// The formats of rules.
const (
	asNFT      = "nft"
	asIptables = "iptables"
)

func (e env) rulesCommand() *cobra.Command {
	var o options
	format := asNFT
	c := e.command("rules", "the rules that a pod gets", rulesAbout, &o)
	kernel := false
	c.Flags().StringVar(&format, "format", asNFT, "nft or iptables")
	c.Flags().BoolVar(&kernel, "kernel", false, "the rules that the pod has, instead of those it "+
		"should have")
	o.placeFlags(c)
	complete(c, "format", asNFT, asIptables)
	c.RunE = func(c *cobra.Command, args []string) error {
		if format != asNFT && format != asIptables {
			return usagef("--format %q: want nft or iptables", format)
		}
		if o.path() != "" && !kernel {
			return usagef("--netns and --pid say where rules are read: want --kernel, too")
		}
		o.kernel = kernel
		all, err := e.subjects(c.Context(), &o, args)
		if err != nil {
			return err
		}
		if kernel {
			shown, err := values(ask(c.Context(), e, question[listing]{command: c, options: &o,
				here: func(ctx context.Context, at *spot) (l listing, err error) {
					l = at.subject.listing()
					l.Kernel, err = at.rules(ctx, format)
					return l, err
				}, pod: func(l listing) string { return l.Pod }}, all))
			if err != nil {
				return err
			}
			return e.answer(&o, listings(shown), false)
		}
		var shown listings
		refused := false
		for _, one := range all {
			l := one.listing()
			if one.redirected(l.Outcome) {
				l.Rules = render(redirect.Compile(one.has()), format)
			}
			refused = refused || l.Outcome == isRefused
			shown = append(shown, l)
		}
		return e.answer(&o, shown, refused)
	}
	return c
}

// listing is what is said of a pod beside its rules.
func (s subject) listing() listing {
	if s.facts.Spec == nil { // a network namespace
		return listing{Pod: s.pod.Name, Findings: s.aside()}
	}
	x := s.explain(false)
	return listing{Pod: x.Pod, Outcome: x.Outcome, Because: x.Because, Findings: x.Findings}
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
	Pod      string         `json:"pod"`                // namespace/name, and its kind if it is no Pod
	Outcome  string         `json:"outcome,omitempty"`  // redirected, skipped or refused
	Because  string         `json:"because,omitempty"`  // why it is skipped or refused
	Findings []finding      `json:"findings,omitempty"` // what may be wrong with it
	Rules    string         `json:"rules,omitempty"`    // as nft or iptables-restore reads them
	Kernel   *kernelListing `json:"kernel,omitempty"`   // what it has, with --kernel
}

// Text writes it for people, who may give it to nft or iptables-restore.
func (all listings) Text(p *view.Page) {
	for i, l := range all {
		if i > 0 {
			p.Blank()
		}
		p.Comment(strings.TrimSuffix(l.Pod+": "+l.Outcome, ": "))
		if l.Because != "" {
			p.Comment(l.Because)
		}
		for _, f := range l.Findings {
			p.Comment(f.What)
		}
		p.Verbatim(l.Rules)
		l.Kernel.text(p)
	}
}
