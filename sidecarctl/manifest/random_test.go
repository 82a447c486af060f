package manifest_test

import (
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

var texts = []string{"", "a", "on", "null", "True", "NO", "1337", "web:1", "a: b", "x #y", "two words", "it's",
	`say "x"`, "line\nnext\n", "line\n\n  more", "  lead", "ünï", "1e3", "- a", "{x}", "end:",
	"#", "---", "*a", "0x1f", "2001-01-01", "~", "a\tb", "\u0085x", "😀", "back\\slash", "%d",
	strings.Repeat("long ", 40) + "end", "echo a\nexit\n\n"}

// tree makes a value.
func (l *layout) tree(depth int) any {
	switch n := l.IntN(12); {
	case n < 2 && depth > 0:
		o := podtree.Object{}
		for range l.IntN(4) {
			o[l.text()] = l.tree(depth - 1)
		}
		return o
	case n < 4 && depth > 0:
		list := []any{}
		for range l.IntN(4) {
			list = append(list, l.tree(depth-1))
		}
		return list
	case n == 4:
		return nil
	case n == 5:
		return l.one(2)
	case n == 6:
		return l.Int64N(70000)
	}
	return l.text()
}

func (l *layout) text() string { return texts[l.IntN(len(texts))] }

// pod makes a pod of containers of some names, with other fields around.
func (l *layout) pod() podtree.Object {
	spec := podtree.Object{"containers": l.containers("web", "app", "log")}
	if l.one(2) {
		spec["initContainers"] = l.containers("istio-init", "migrate")
	}
	for _, key := range []string{"volumes", "dnsPolicy", "securityContext"} {
		if l.one(3) {
			spec[key] = l.tree(3)
		}
	}
	pod := podtree.Object{"spec": spec}
	if l.one(2) {
		pod["metadata"] = podtree.Object{"labels": l.tree(2)}
	}
	if l.one(3) {
		podtree.Set(pod, podtree.Object{"a": l.text()}, "metadata", "annotations")
	}
	return pod
}

func (l *layout) containers(names ...string) []any {
	var list []any
	for _, name := range names {
		if len(list) > 0 && l.one(2) {
			continue
		}
		one := podtree.Object{"name": name, "image": l.text()}
		for _, key := range []string{"args", "env", "readinessProbe", "ports", "x"} {
			if l.one(3) {
				one[key] = l.tree(3)
			}
		}
		list = append(list, one)
	}
	return list
}

// object makes an object with a pod, or a List of some.
func (l *layout) object() podtree.Object {
	pod := l.pod()
	meta := podtree.Object{"name": "x"}
	switch l.IntN(6) {
	case 0:
		podtree.Set(pod, "x", "metadata", "name")
		pod["kind"] = "Pod"
		return pod
	case 1:
		return podtree.Object{"kind": "CronJob", "metadata": meta, "spec": podtree.Object{
			"jobTemplate": podtree.Object{"spec": podtree.Object{"template": pod}}}}
	case 2:
		list := podtree.Object{"kind": "List", "items": []any{}}
		for range l.IntN(4) {
			list["items"] = append(list["items"].([]any), l.object())
		}
		return list
	}
	return podtree.Object{"kind": "Deployment", "metadata": meta, "status": l.tree(2),
		"spec": podtree.Object{"template": pod, "selector": l.tree(3)}}
}

// mutate changes a tree at random places.
func (l *layout) mutate(value any, depth int) any {
	if depth == 0 || l.one(12) {
		return l.tree(2)
	}
	switch value := value.(type) {
	case podtree.Object:
		for _, key := range l.keys(value) {
			if l.one(4) {
				value[key] = l.mutate(value[key], depth-1)
			} else if l.one(12) {
				delete(value, key)
			}
		}
		if l.one(4) {
			value[l.text()] = l.tree(2)
		}
	case []any:
		for i := range value {
			if l.one(4) {
				value[i] = l.mutate(value[i], depth-1)
			}
		}
		if l.one(3) {
			at := l.IntN(len(value) + 1)
			value = slices.Insert(value, at, l.tree(2))
		}
		if len(value) > 0 && l.one(5) {
			at := l.IntN(len(value))
			value = slices.Delete(value, at, at+1)
		}
		if l.one(10) {
			slices.Reverse(value)
		}
		return value
	}
	return value
}
