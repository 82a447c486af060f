package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables/istioinit"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

const compareAbout = `Says for which packets two sets of rules differ; where it names none, there is none. With one
target, the rules that a pod got when it started are compared with what it asks for now. A side is

- a target, as NAMESPACE/POD or deployment/NAME: what it has, if it has
  started, else what it asks for
- a manifest's file, of which the first pod counts
- iptables:FILE, what iptables-save printed, or iptables:FILE,FILE6 for both
- istio-init:'FLAGS', the command line of an istio-init

Where there are many differences, those are named that say where connections go; the others, as in
marks, are counted, and named with --all. The outputs json and yaml always have all of them.

It ends with 3 where they differ; a difference from istio-init that is on purpose does not count.`

// A side is one of two sets of rules.
type side struct {
	name   string
	rules  packet.Side
	policy *redirect.Policy // that they were compiled from; nil of a listing and of istio-init
	flags  initflags.Values // of istio-init; nil of others
}

func (e env) compareCommand() *cobra.Command {
	var o options
	c := e.command("compare", "for which packets two sets of rules differ", compareAbout, &o)
	c.Use = "compare TARGET | compare A B"
	all := false
	c.Flags().BoolVar(&all, "all", false, "name all differences, not only where connections go")
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) < 1 || len(args) > 2 {
			return usagef("%d sides: want two, or one running pod", len(args))
		}
		return nil
	}
	_ = c.Flags().MarkHidden("filename") // a file is a side
	c.RunE = func(c *cobra.Command, args []string) error {
		a, b, err := e.sides(c.Context(), &o, args)
		if err != nil {
			return err
		}
		found := newComparison(a, b)
		if all {
			found.shown = len(found.Sentences)
		}
		return e.answer(&o, found, !found.Same)
	}
	return c
}

// sides are the two that are compared.
func (e env) sides(ctx context.Context, o *options, args []string) (a, b side, err error) {
	if len(args) == 1 {
		if isFile(args[0]) || strings.Contains(args[0], ":") {
			return a, b, usagef("%s: want another side to compare it with", args[0])
		}
		return e.thenAndNow(ctx, o, args[0])
	}
	if a, err = e.side(ctx, o, args[0]); err != nil {
		return a, b, err
	}
	b, err = e.side(ctx, o, args[1])
	return a, b, err
}

// thenAndNow are the two of one pod.
func (e env) thenAndNow(ctx context.Context, o *options, name string) (a, b side, err error) {
	all, err := e.subjects(ctx, o, []string{name})
	if err != nil {
		return a, b, err
	}
	s := all[0]
	switch {
	case s.record == nil && len(s.lacks) > 0:
		err = fmt.Errorf("what %s started with is not known: %s", s.pod.Name, s.lacks[0])
	case s.record == nil:
		err = fmt.Errorf("what %s started with is not known: its node has no record of it: "+
			"sidecar-cni has not redirected it", s.pod.Name)
	default:
		a = sideOf("what it has", s.record.Policy)
		b, err = s.asksFor("what it asks for now")
	}
	return a, b, err
}

// side reads one side of the command line.
func (e env) side(ctx context.Context, o *options, text string) (side, error) {
	form, rest, _ := strings.Cut(text, ":")
	switch form {
	case "istio-init":
		servers, err := addresses("--nameserver", o.nameservers)
		if err != nil {
			return side{}, err
		}
		return istioInit(rest, servers)
	case "iptables":
		return listed(rest)
	}
	one, args := *o, []string{text}
	if isFile(text) {
		one.file, args = text, nil
	}
	all, err := e.subjects(ctx, &one, args)
	if err != nil {
		return side{}, err
	}
	switch s := all[0]; {
	case s.record != nil:
		return sideOf(s.pod.Name, s.record.Policy), nil
	case s.pod.Phase != "" && len(s.lacks) > 0:
		return side{}, fmt.Errorf("what %s started with is not known: %s", s.pod.Name, s.lacks[0])
	}
	return all[0].asksFor(all[0].pod.Name)
}

// isFile tells a manifest from a target.
func isFile(text string) bool {
	info, err := os.Stat(text)
	return text == "-" || err == nil && info.Mode().IsRegular()
}

func sideOf(name string, policy redirect.Policy) side {
	return side{name: name, rules: simulate.New(redirect.Compile(policy)), policy: &policy}
}

// asksFor is the side of what a pod asks for.
func (s subject) asksFor(name string) (side, error) {
	switch {
	case s.mistake != nil:
		return side{}, fmt.Errorf("%s does not start: %w", s.pod.Name, s.mistake)
	case s.pod.HostNetwork, s.decision.Skip != "":
		return side{name: name, rules: simulate.New(redirect.Ruleset{})}, nil
	}
	return sideOf(name, s.decision.Policy), nil
}

// istioInit is the side of an istio-init in a pod with both families.
func istioInit(line string, servers []netip.Addr) (side, error) {
	args := strings.Fields(line)
	for i, word := range args {
		args[i] = strings.Trim(word, `'"`)
	}
	flags, err := initflags.Read(args, nil, nil)
	if err != nil {
		return side{}, err
	}
	written, err := istioinit.Write(args, nil, istioinit.Pod{IPv6: true, Nameservers: servers})
	if err != nil {
		return side{}, err
	}
	tables, err := xtables.Read(written.IPv4, written.IPv6)
	if err != nil {
		return side{}, err
	}
	tables.Routed = written.Marks
	return side{name: "istio-init", rules: tables, flags: flags}, nil
}

// maxListing is how much is read of a listing.
const maxListing = 4 << 20

func listed(files string) (side, error) {
	var texts [2]string
	names := strings.SplitN(files, ",", len(texts))
	for i, name := range names {
		data, err := bounded.Named(name, maxListing)
		if err != nil {
			return side{}, err
		}
		texts[i] = string(data)
	}
	tables, err := xtables.Read(texts[0], texts[1])
	if err != nil {
		return side{}, fmt.Errorf("read %s: %w", files, err)
	}
	return side{name: "the listing", rules: tables}, nil
}

// comparison is what compare shows.
type comparison struct {
	A         string   `json:"a"`                     // what the first side is
	B         string   `json:"b"`                     // what the second is
	Same      bool     `json:"same"`                  // no packet differs but on purpose
	Sentences []string `json:"differences,omitempty"` // each a sentence about some packets

	shown int // of Sentences, which come first
}

// few is how many sentences about something else than where connections go are no trouble to read.
const few = 5

func newComparison(a, b side) comparison {
	if b.flags != nil && a.policy != nil { // what is on purpose, is so of ours beside istio-init's
		c := newComparison(b, a)
		c.A, c.B = a.name, b.name
		return c
	}
	differences := compare.Compare(a.rules, b.rules)
	words := compare.Words{A: a.name, B: b.name, Proxy: redirect.Defaults().Proxy}
	if a.policy != nil {
		words.Proxy = a.policy.Proxy
	}
	if b.policy != nil {
		words.Proxy = b.policy.Proxy
		if a.flags != nil {
			differences = compare.Separate(differences, a.purposes(*b.policy))
		}
	}
	c := comparison{A: a.name, B: b.name, Same: true}
	for _, d := range differences {
		c.Same = c.Same && d.Reason != ""
	}
	first, rest := compare.Connections(differences)
	c.add(first, words)
	c.shown = len(c.Sentences)
	c.add(rest, words)
	if c.shown == 0 || len(c.Sentences)-c.shown <= few {
		c.shown = len(c.Sentences)
	}
	return c
}

func (c *comparison) add(differences []compare.Difference, words compare.Words) {
	if len(differences) > 0 {
		c.Sentences = append(c.Sentences, strings.Split(strings.TrimSpace(
			compare.Explain(differences, words)), "\n")...)
	}
}

// purposes says of an istio-init what differences on purpose depend on.
func (s side) purposes(p redirect.Policy) compare.Pod {
	pod := compare.Pod{Policy: p, IPv6: true, GIDs: p.Proxy.GIDs}
	for _, a := range p.DNS.Servers {
		pod.DNS = append(pod.DNS, netip.PrefixFrom(a, a.BitLen()))
	}
	items := func(flag string) []string { return strings.Split(s.flags[flag].Text, ",") }
	for _, item := range items("istio-local-exclude-ports") {
		if port, err := strconv.ParseUint(strings.TrimSpace(item), 10, 16); err == nil {
			pod.Open = append(pod.Open, uint16(port))
		}
	}
	group := cmp.Or(s.flags["proxy-gid"].Text, s.flags["proxy-uid"].Text)
	if gid, err := strconv.ParseUint(group, 10, 32); err == nil {
		pod.GIDs = []uint32{uint32(gid)}
	}
	for _, flag := range []string{"istio-service-cidr", "istio-service-exclude-cidr"} {
		for _, item := range items(flag) {
			if prefix, err := netip.ParsePrefix(item); err == nil && prefix.Addr().Is4In6() {
				pod.Mapped = append(pod.Mapped, prefix)
			}
		}
	}
	return pod
}

// Text writes it for people.
func (c comparison) Text(p *view.Page) {
	if len(c.Sentences) == 0 {
		p.Heading(fmt.Sprintf("No packet is treated differently by %s and %s.", c.A, c.B))
		return
	}
	if c.Same {
		p.Heading("All differences are on purpose:")
	}
	for _, s := range c.Sentences[:c.shown] {
		p.Paragraph(0, s)
	}
	if more := len(c.Sentences) - c.shown; more > 0 {
		p.Paragraph(0, fmt.Sprintf("%d more are not about where a connection goes: --all "+
			"names them.", more))
	}
}
