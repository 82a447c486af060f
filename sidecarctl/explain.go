package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

const explainAbout = `Says whether a pod is redirected and why, what each setting comes to and where its value is
from, and what may be wrong with it, with what to do about that.`

func (e env) explainCommand() *cobra.Command {
	var o options
	rules := false
	c := e.command("explain", "what a pod asks for, and what it gets", explainAbout, &o)
	c.Flags().BoolVar(&rules, "rules", false, "the rules, too, as sentences")
	c.RunE = func(c *cobra.Command, args []string) error {
		all, err := e.subjects(c.Context(), &o, args)
		if err != nil {
			return err
		}
		var shown explanations
		refused := false
		for _, one := range all {
			x := one.explain(rules)
			shown = append(shown, x)
			refused = refused || x.Outcome == isRefused
		}
		return e.answer(&o, shown, refused)
	}
	return c
}

// explanations are what explain shows.
type explanations []explanation

// explanation is about one pod.
type explanation struct {
	Pod      string    `json:"pod"`                // namespace/name, and its kind if it is no Pod
	Outcome  string    `json:"outcome"`            // redirected, skipped or refused
	Reason   string    `json:"reason,omitempty"`   // of a skip, a word
	Because  string    `json:"because,omitempty"`  // why it is skipped or refused
	Settings []setting `json:"settings,omitempty"` // all of them, in the order of the docs
	Findings []finding `json:"findings,omitempty"` // what may be wrong with it
	Rules    []string  `json:"rules,omitempty"`    // as sentences, with --rules
}

// setting is what one setting comes to.
type setting struct {
	Key    string          `json:"key"`            // the annotation's name
	Value  string          `json:"value"`          // what counts
	Source redirect.Source `json:"source"`         // pod, older_name, cluster, default, unreadable
	Name   string          `json:"name,omitempty"` // the older one that the pod has it under
}

// finding is something that may be wrong.
type finding struct {
	Wrong  bool   `json:"wrong"`            // the pod does not start because of it
	What   string `json:"what"`             // in a sentence
	Remedy string `json:"remedy,omitempty"` // what to do about it
}

// show writes it for people.
func (f finding) show(p *view.Page, indent int) {
	if f.Wrong {
		p.Wrong(indent, f.text())
	} else {
		p.Odd(indent, f.text())
	}
}

func (f finding) text() string {
	if f.Remedy == "" {
		return f.What
	}
	return f.What + "; remedy: " + f.Remedy
}

// The outcomes of an explanation.
const (
	isRedirected = "redirected"
	isSkipped    = "skipped"
	isRefused    = "refused"
)

func (s subject) explain(rules bool) explanation {
	x := explanation{Pod: s.pod.Name}
	switch {
	case s.pod.HostNetwork:
		x.Outcome, x.Reason = isSkipped, "host_network"
		x.Because = "it is in the host's network (hostNetwork), where no plugin is called"
		return x
	case s.mistake == nil && s.decision.Skip != "":
		x.Outcome, x.Reason = isSkipped, string(s.decision.Skip)
		x.Because = s.decision.Skip.String()
		x.Findings = append(notes(s.decision.Notices), s.aside()...)
		return x
	}
	for _, one := range redirect.Readings(s.facts, s.config) {
		shown := setting{Key: one.Key, Value: one.Value, Source: one.Source}
		if one.Name != one.Key {
			shown.Name = one.Name
		}
		x.Settings = append(x.Settings, shown)
	}
	if s.mistake != nil {
		x.Outcome, x.Because = isRefused, "it does not start: what it asks for cannot be"
		x.Findings = append(wrongs(s.mistake), s.aside()...)
		return x
	}
	x.Outcome, x.Findings = isRedirected, s.findings()
	if rules {
		for line := range strings.Lines(redirect.Explain(redirect.Compile(s.has()))) {
			x.Rules = append(x.Rules, strings.TrimRight(line, "\n"))
		}
	}
	return x
}

// wrongs are the mistakes of a pod.
func wrongs(err error) []finding {
	const remedy = "correct it, and create the pod anew"
	var all []finding
	mistakes, ok := errors.AsType[redirect.Mistakes](err)
	if !ok {
		return []finding{{Wrong: true, What: oneLine(err),
			Remedy: "take the pod out of the mesh, or leave istio-init in it"}}
	}
	for _, m := range mistakes {
		all = append(all, finding{Wrong: true, What: m.String(), Remedy: remedy})
	}
	return all
}

func notes(texts []string) []finding {
	var all []finding
	for _, text := range texts {
		all = append(all, finding{What: text})
	}
	return all
}

// findings are what may be wrong with a pod that is redirected.
func (s subject) findings() []finding {
	all := notes(s.decision.Notices)
	for _, text := range s.decision.Warnings {
		if text == redirect.UnknownNameservers {
			continue // here no runtime was to pass them: see unknown
		}
		all = append(all, finding{What: text})
	}
	out := s.decision.Policy.Outbound
	if out.All && len(out.Ports) > 0 {
		all = append(all, finding{What: "includeOutboundPorts limits nothing: all " +
			"destinations are captured, whatever their port",
			Remedy: "annotate the pod with traffic.sidecar.istio.io/includeOutboundIPRanges: " +
				`"" to capture these ports alone`})
	}
	all = append(all, s.early()...)
	return append(all, s.aside()...)
}

// early names the init containers whose traffic is redirected to a proxy that does not run yet.
func (s subject) early() []finding {
	var all []finding
	for _, c := range redirect.BeforeProxy(s.facts) {
		uid, known := s.uidOf(c)
		if known && s.decision.Policy.Outbound.ExcludeUIDs.Holds(uid) {
			continue
		}
		all = append(all, finding{
			What: earlyWords(c),
			Remedy: "run the proxy as a native sidecar; or give the init container a uid of its " +
				"own and annotate the pod with sidecar-cni.io/initContainers: bypass",
		})
	}
	return all
}

func earlyWords(container string) string {
	return fmt.Sprintf("init container %q runs before the proxy: what it sends is refused, since "+
		"nobody listens yet", container)
}

func (s subject) uidOf(container string) (uint32, bool) {
	for _, c := range s.pod.Containers {
		if c.Name == container {
			return idOf(c.RunAsUser)
		}
	}
	return 0, false
}

// sourceWords heads the settings of a source.
var sourceWords = []struct {
	source redirect.Source
	words  string
}{
	{redirect.FromPod, "set by the pod"},
	{redirect.FromOlderName, "set by the pod, under an older name"},
	{redirect.Unreadable, "set by the pod, from where only the kubelet reads: taken as"},
	{redirect.FromCluster, "set by the cluster"},
	{redirect.FromDefault, "not set"},
}

// Text writes it for people.
func (all explanations) Text(p *view.Page) {
	for i, x := range all {
		if i > 0 {
			p.Blank()
		}
		x.text(p)
	}
}

func (x explanation) text(p *view.Page) {
	head := x.Pod + ": " + x.Outcome
	if x.Reason != "" {
		head += ", " + x.Reason
	}
	p.Heading(head)
	if x.Because != "" {
		p.Paragraph(2, x.Because)
	}
	for _, f := range x.Findings {
		f.show(p, 2)
	}
	x.settings(p)
	for _, line := range x.Rules {
		p.Paragraph(2, line)
	}
}

// settings writes them by their sources.
func (x explanation) settings(p *view.Page) {
	const column = 54
	for _, of := range sourceWords {
		first := true
		for _, s := range x.Settings {
			if s.Source != of.source {
				continue
			}
			if first {
				p.Paragraph(2, of.words)
				first = false
			}
			name := s.Key
			if s.Name != "" {
				name = s.Name
			}
			value := s.Value
			if value == "" {
				value = "-"
			}
			p.Row(4, name, column, value)
		}
	}
}
