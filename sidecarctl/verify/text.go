package verify

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// Text writes them for people: of several pods, those that something is to be said of, and how many
// the others are.
func (all Answers) Text(p *view.Page) {
	if len(all) == 0 {
		p.Paragraph(0, "there is no pod with a sidecar")
	}
	fine, others, shown := 0, 0, 0
	for _, a := range all {
		switch {
		case len(all) > 1 && a.Rules == nil:
			others++
			continue
		case len(all) > 1 && len(a.Findings) == 0 && len(a.Lacks) == 0:
			fine++
			continue
		case shown > 0:
			p.Blank()
		}
		a.text(p)
		shown++
	}
	if len(all) < 2 {
		return
	}
	if shown > 0 {
		p.Blank()
	}
	p.Paragraph(0, fmt.Sprintf("%d of %d pods redirected as they should be; not in the mesh: "+
		"%d", fine, len(all), others))
}

// widest is where the texts begin at the latest.
const widest = 30

func (a Answer) text(p *view.Page) {
	const behind = 3
	longest := utf8.RuneCountInString(a.Pod)
	for _, port := range a.Ports {
		longest = max(longest, len("  "+port.name()))
	}
	column := min(longest+behind, widest)
	p.Row(0, a.Pod, column, a.heading())
	for _, port := range a.Ports {
		p.Row(2, port.name(), column, port.state())
		for _, f := range a.Findings {
			if f.Kind == AboutListener && f.Port == port.Number && len(port.Listeners) > 0 {
				p.Row(2, "", column, "remedy: "+f.Remedy)
			}
		}
	}
	for _, f := range a.Findings {
		text := f.What
		if f.Remedy != "" {
			text += "; remedy: " + f.Remedy
		}
		switch {
		case f.Kind == AboutListener: // it is at its port
		case f.Wrong:
			p.Wrong(2, text)
		default:
			p.Odd(2, text)
		}
	}
	for _, lack := range a.Lacks {
		p.Odd(2, "not looked at: "+lack)
	}
}

// heading says in a few words what the rules are.
func (a Answer) heading() string {
	node := ""
	if a.Node != "" {
		node = " on node " + a.Node
	}
	switch {
	case a.Rules == nil:
		return "not in the mesh" + node + ": " + a.Because
	case a.Rules.Finding != audit.Redirected:
		return string(a.Rules.Finding) + node
	}
	by, as := "", "as the pod asks for, without a record"
	if a.Backend != "" {
		by = " by " + a.Backend
	}
	if a.Recorded {
		as = "as recorded"
	}
	return fmt.Sprintf("redirected%s%s, all rules %s", by, node, as)
}

func (x Port) name() string {
	if x.Protocol == "UDP" {
		return fmt.Sprintf(":%d UDP", x.Number)
	}
	return fmt.Sprintf(":%d", x.Number)
}

// state says who listens.
func (x Port) state() string {
	if len(x.Listeners) == 0 {
		return "nobody listens: " + x.Effect
	}
	var words []string
	for _, l := range x.Listeners {
		text := fmt.Sprintf("uid %d", l.UID)
		switch {
		case l.Transparent == nil && x.Transparent:
			text += ", transparent or not: this kernel does not say"
		case x.Transparent && *l.Transparent:
			text += ", transparent"
		case x.Transparent:
			text += ", not transparent: what enters is dropped"
		}
		if !slices.Contains(words, text) {
			words = append(words, text)
		}
	}
	text := strings.Join(words, "; ")
	if len(x.Unheard) > 0 {
		text += "; nobody listens at " + strings.Join(x.Unheard, " and ") + ": " + x.Effect
	}
	return text
}
