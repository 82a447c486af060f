package redirect

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Facts of a fuzzed pod that are there or not.
const (
	factUser = 1 << iota
	factGroup
	factNative
	factInit
	factAppUser
	factNameservers
	factLabel
	factUntold
	factElsewhere
	factSeveral
)

// fuzzedPod has in each line of values what a setting's key holds, in the order of the table. A
// line that does not begin with = is a key that the pod does not have.
func fuzzedPod(values, args string, user int64, facts uint16) (Pod, Config) {
	has := func(fact uint16) bool { return facts&fact != 0 }
	pod, cfg := meshed(proxy(func(c *Container) { c.Args = strings.Fields(args) })), Defaults()
	for i, line := range strings.Split(values, "\n") {
		if value, ok := strings.CutPrefix(line, "="); ok && i < len(settings) {
			says(settings[i], value)(&pod)
		} else if ok && has(factLabel) {
			label(istio+"inject", value)(&pod)
		} else if ok {
			annotation(istio+"inject", value)(&pod)
		}
	}
	optional := func(fact uint16, change change) {
		if has(fact) {
			change(&pod)
		}
	}
	optional(factUser, proxy(func(c *Container) { c.RunAsUser = &user }))
	optional(factGroup, proxy(func(c *Container) { c.RunAsGroup = id(5000) }))
	optional(factElsewhere, proxy(func(c *Container) {
		c.EnvFrom = []string{"INVALID_DROP",
			"\x00"}
	}))
	optional(factInit, first(Container{Name: "migrate", Init: true, RunAsUser: id(2000)},
		Container{Name: "wait", Init: true, RunAsUser: new(user)}))
	optional(factAppUser, func(p *Pod) { p.Spec.RunAsUser = id(1000) })
	optional(factNameservers, nameservers(resolver, "2001:db8::53"))
	optional(factNative, native)
	optional(factUntold, untold)
	if has(factSeveral) {
		cfg.Proxy = Identity{UIDs: []uint32{1337, 1340}, GIDs: []uint32{1337, 1341}}
	}
	return pod, cfg
}

// lines writes values, by key, as fuzzedPod reads them.
func lines(values map[string]string) string {
	list := make([]string, len(settings))
	for i, s := range settings {
		if value, ok := values[s.key]; ok {
			list[i] = "=" + value
		}
	}
	return strings.Join(list, "\n")
}

// seedPods adds what is worth beginning with.
func seedPods(f *testing.F) {
	f.Add(lines(nil), "proxy sidecar", int64(1337), uint16(0))
	f.Add(lines(nil), "proxy router", int64(0), uint16(factUntold))
	f.Add(lines(map[string]string{istio + "interceptionMode": "NONE"})+"\n=maybe", "", int64(0),
		uint16(factLabel))
	whole := meshed(everything)
	for _, c := range whole.Spec.Containers {
		maps.Copy(whole.Annotations, c.Env)
	}
	f.Add(lines(whole.Annotations), "proxy sidecar", int64(2001),
		uint16(factInit|factNameservers|factNative))
	for _, s := range settings {
		for _, row := range accepted[s.key] {
			f.Add(lines(map[string]string{s.key: row.value}), "proxy sidecar", int64(2500),
				uint16(factUser))
			values := map[string]string{captureDNS: "true", istio + "interceptionMode": "TPROXY"}
			values[s.key] = row.value
			f.Add(lines(values), "proxy sidecar", int64(0),
				uint16(factUser|factGroup|factNameservers))
			f.Add(lines(values), "proxy sidecar", int64(0), uint16(factSeveral|factNative))
		}
		for _, nasty := range []string{"", ",", "*,*", "65536", "-1", "0.0.0.0/0,::/0",
			"127.0.0.1/0", "::ffff:0.0.0.0/0", "lo", "lo,+", "0-4294967294",
			"\x00", "\xff\xfe", strings.Repeat("1,", 2000), strings.Repeat("é", 300)} {
			f.Add(lines(map[string]string{s.key: nasty}), "proxy sidecar", int64(-1),
				uint16(factAppUser|factElsewhere))
		}
	}
}

// checkDecision holds what is decided about any pod at all, and returns the policy of one that is
// ours.
func checkDecision(t *testing.T, pod Pod, cfg Config) (p Policy, isOurs bool) {
	t.Helper()
	d, err := Decide(pod, cfg)
	checkParts(t, pod, cfg, d)
	switch {
	case err != nil:
		checkText(t, err.Error())
		return Policy{}, false
	case d.Skip != "" && !slices.Contains(Skips, d.Skip):
		t.Fatalf("skipped for no reason of the list: %q", string(d.Skip))
	case d.Skip != "" || d.AskMore:
		return Policy{}, false
	}
	checkText(t, strings.Join(d.Warnings, " "))
	checkRoundTrip(t, d.Policy)
	return d.Policy, true
}

// checkParts holds a decision about a pod against those about parts of it: what a part skips, the
// whole skips too.
func checkParts(t *testing.T, pod Pod, cfg Config, whole Decision) {
	t.Helper()
	for name, forget := range map[string]change{
		"spec":                 untold,
		"annotations":          func(p *Pod) { p.Annotations = nil },
		"spec and annotations": func(p *Pod) { p.Spec, p.Annotations = nil, nil },
		"nameservers":          func(p *Pod) { p.Nameservers = nil },
	} {
		part := pod
		forget(&part)
		if d, err := Decide(part, cfg); err == nil && d.Skip != "" && whole.Skip == "" &&
			!whole.AskMore {
			t.Fatalf("without %s it is skipped (%s), as a whole it is not: %+v", name, d.Skip, pod)
		}
	}
}
