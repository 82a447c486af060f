package inject

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// maxMerged bounds the containers of a pod, and other lists of it that a template adds to: the time
// that strategic merge takes grows with the square of their length.
const maxMerged = 256

// merger merges templates of today's form into a pod.
type merger struct {
	pod   podtree.Object
	own   []ownContainer
	at    map[string]int  // in own, by name
	aside map[string]bool // taken out, since a template has one of the name, too
}

// ownContainer is one that the author of the pod wrote.
type ownContainer struct {
	name, list string
	fields     podtree.Object
}

func newMerger(pod podtree.Object) *merger {
	m := &merger{pod: pod, at: map[string]int{}, aside: map[string]bool{}}
	for _, list := range []string{initContainers, containers} {
		for _, item := range podtree.List(pod, "spec", list) {
			one := ownContainer{podtree.String(item.(podtree.Object), "name"), list,
				item.(podtree.Object)}
			m.at[one.name] = len(m.own)
			m.own = append(m.own, one)
		}
	}
	return m
}

// merge merges a template by strategic merge, as the API does a patch. Three things are the pod's
// first: the containers that it has of the same names, its fsGroup, and what it says about DNS.
func (m *merger) merge(template podtree.Object) error {
	patch := podtree.Object{}
	for _, part := range []string{"metadata", "spec"} {
		if fields := podtree.Map(template, part); fields != nil {
			patch[part] = fields
		}
	}
	m.setAside(template)
	dns := podtree.Map(patch, "spec", "dnsConfig")
	podtree.Delete(patch, "spec", "dnsConfig")
	if podtree.Get(m.pod, "spec", "securityContext", "fsGroup") != nil {
		podtree.Delete(patch, "spec", "securityContext", "fsGroup")
	}
	if err := m.checkLists(patch); err != nil {
		return err
	}
	merged, err := strategicpatch.StrategicMergeMapPatch(m.pod, patch, corev1.Pod{})
	if err != nil {
		return fmt.Errorf("merge into pod: %w", plain(err))
	}
	m.pod = merged
	mergeDNS(podtree.Map(m.pod, "spec"), dns)
	return nil
}

// setAside takes the pod's own containers out that a template has, too.
func (m *merger) setAside(template podtree.Object) {
	for _, from := range []string{initContainers, containers} {
		for _, name := range appendNames(nil, podtree.List(template, "spec", from)) {
			at, own := m.at[name]
			if !own || m.aside[name] {
				continue
			}
			m.aside[name] = true
			list := m.own[at].list
			rest, _ := without(podtree.Map(m.pod, "spec"), list, name)
			podtree.Set(m.pod, rest, "spec", list)
		}
	}
}

func (m *merger) checkLists(patch podtree.Object) error {
	for _, part := range []string{"metadata", "spec"} {
		for key, value := range podtree.Map(patch, part) {
			_, list := value.([]any)
			if n := len(podtree.List(m.pod, part, key)); list && n > maxMerged {
				return fmt.Errorf("%s.%s of the pod has %d items, want at most %d where a "+
					"template adds some", part, key, n, maxMerged)
			}
		}
	}
	return nil
}

// restoreOwn puts the pod's own containers over those of the templates, and all of its own in front
// in their order: kubectl logs and exec take the first. A directive of a template, such as
// $patch: delete, cannot remove one of them.
func (m *merger) restoreOwn() {
	for _, one := range m.own {
		now := containerOf(m.pod, one.name)
		switch {
		case now == nil:
			appendTo(podtree.Map(m.pod, "spec"), one.list, []any{one.fields})
		case m.aside[one.name]:
			overlay(now, one.fields)
		}
	}
	for _, list := range []string{initContainers, containers} {
		slices.SortStableFunc(podtree.List(m.pod, "spec", list), func(a, b any) int {
			return m.place(a) - m.place(b)
		})
	}
	m.adoptUser()
}

// adoptUser has the mesh's init containers know the user as whom the author of the pod runs the
// proxy: istio-init's flag -u says whose traffic is the proxy's, and istio-validation stands in for
// the proxy. Root stays out of it, since rules never know the proxy by that.
func (m *merger) adoptUser() {
	at, own := m.at[proxyName]
	if !own {
		return
	}
	context := podtree.Map(m.own[at].fields, "securityContext")
	user, ok := context["runAsUser"].(int64)
	if !ok || user == 0 {
		return
	}
	for _, item := range podtree.List(m.pod, "spec", initContainers) {
		c := item.(podtree.Object)
		switch c["name"] {
		case validationName:
			podtree.Set(c, user, "securityContext", "runAsUser")
			if group := context["runAsGroup"]; group != nil {
				podtree.Set(c, group, "securityContext", "runAsGroup")
			}
		case initName:
			args := podtree.List(c, "args")
			if at := slices.Index(args, any("-u")); at >= 0 && at+1 < len(args) {
				args[at+1] = strconv.FormatInt(user, 10)
			}
		}
	}
}

// place is where a container stands among the pod's own; one of a template's stands behind all.
func (m *merger) place(item any) int {
	if at, ok := m.at[podtree.String(item.(podtree.Object), "name")]; ok {
		return at
	}
	return len(m.own)
}
