package redirect

import (
	"fmt"
	"slices"
)

// Source is where the value of a setting comes from, as a word.
type Source string

// The sources.
const (
	FromPod       Source = "pod"        // its annotation, or a variable of its proxy
	FromOlderName Source = "older_name" // its annotation, under a name of earlier releases
	FromCluster   Source = "cluster"    // Config.Values
	FromDefault   Source = "default"
	// A variable of the proxy whose value only the kubelet will know. What holds is what stands in
	// for a pod that does not say anything.
	Unreadable Source = "unreadable"
)

// Reading is what one setting of the reference page comes to for a pod.
type Reading struct {
	Key      string // on the reference page
	Variable bool   // of the proxy's container; else it is an annotation
	Name     string // under which the pod says it, Key or an older one
	Value    string // what holds
	Source   Source // where Value comes from

	Mistakes Mistakes // for which the pod is refused
	Ignored  Mistakes // of Value: it is taken as false
}

// Readings lists what each setting comes to for a pod of which all is known, in the order of the
// reference page.
func Readings(pod Pod, cfg Config) []Reading {
	policy := cfg.Basis()
	all := make([]Reading, len(settings))
	for i, s := range settings {
		all[i] = s.readFor(pod, cfg, &policy)
	}
	return all
}

// readFor reads a setting of a pod into a policy.
func (s setting) readFor(pod Pod, cfg Config, p *Policy) Reading {
	facts, proxy := pod.Annotations, Container{}
	if s.env {
		proxy, _ = pod.Spec.proxy()
		facts = proxy.Env
	}
	value, from := cfg.find(facts, s)
	if s.env && slices.Contains(proxy.EnvFrom, s.key) {
		from = Unreadable
	}
	one := Reading{Key: s.key, Variable: s.env, Name: s.key, Value: value, Source: from}
	if from == FromOlderName {
		one.Name = s.older
	}
	r := reader{key: one.Name, dropEmpty: s.lenient}
	if len(value) > maxText {
		r.mistake(value, fmt.Sprintf("at most %d bytes", maxText))
	} else {
		s.read(&r, value, p)
	}
	one.Mistakes, one.Ignored = r.mistakes, r.ignored
	return one
}
