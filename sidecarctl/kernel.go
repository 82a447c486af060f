package main

import (
	"github.com/sidecar-cni/sidecar-cni/redirect/kernelrules"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// kernelListing is what a namespace has.
type kernelListing struct {
	Tables   []kernelrules.Table `json:"tables,omitempty"`   // of nftables
	Iptables []iptablesListing   `json:"iptables,omitempty"` // as its own programs print it
	Notes    []string            `json:"notes,omitempty"`    // about what is not shown
}

// iptablesListing is of one variant and family of iptables.
type iptablesListing struct {
	Program string `json:"program"` // that restores it, as iptables-nft
	Text    string `json:"text"`    // as it saves it, with counters
}

// text writes it for people.
func (l *kernelListing) text(p *view.Page) {
	if l == nil {
		return
	}
	for _, note := range l.Notes {
		p.Comment(note)
	}
	switch {
	case len(l.Tables)+len(l.Iptables) > 0:
	case len(l.Notes) > 0: // about rules that are there
		p.Comment("there are no rules of iptables")
	default:
		p.Comment("there are no rules")
	}
	for _, t := range l.Tables {
		p.Verbatim(t.String())
	}
	for _, one := range l.Iptables {
		p.Comment(one.Program + "-save -c")
		p.Verbatim(one.Text)
	}
}
