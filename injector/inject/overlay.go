package inject

import (
	"cmp"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// autoImage is the image of a container that the author of a pod writes to say something about the
// one of a template: the API wants every container to have an image.
const autoImage = "auto"

// keys are those by which the lists of a container are merged, as the API's types say. The others
// are replaced.
var keys = map[string]string{
	"env": "name", "ports": "containerPort", "volumeMounts": "mountPath",
	"volumeDevices": "devicePath",
}

// handlers are the fields of a probe or hook of which only one can be there.
var handlers = []string{"exec", "httpGet", "tcpSocket", "grpc", "sleep"}

// overlay puts the fields of a container that its author wrote over those of a template's.
// Strategic merge would do that too, in quadratic time, and not with fields that it does not know.
func overlay(template, own podtree.Object) {
	image := template["image"]
	overlayFields(template, own)
	if own["image"] == autoImage && image != nil {
		template["image"] = image
	}
}

func overlayFields(base, own podtree.Object) {
	if slices.ContainsFunc(handlers, func(h string) bool { return own[h] != nil }) {
		for _, h := range handlers {
			delete(base, h)
		}
	}
	for name, value := range own {
		before, both := base[name]
		switch value := value.(type) {
		case podtree.Object:
			if fields, ok := before.(podtree.Object); both && ok {
				overlayFields(fields, value)
				continue
			}
		case []any:
			if list, ok := before.([]any); both && ok && keys[name] != "" {
				base[name] = overlayList(list, value, keys[name])
				continue
			}
		}
		base[name] = value
	}
}

// overlayList replaces the items that have the key of one of the author's, and appends the others.
func overlayList(base, own []any, key string) []any {
	at := map[any]int{}
	for i, item := range base {
		if object, ok := item.(podtree.Object); ok {
			at[identity(object, key)] = i
		}
	}
	merged := slices.Clone(base)
	for _, item := range own {
		object, _ := item.(podtree.Object)
		if i, ok := at[identity(object, key)]; ok {
			merged[i] = item
			continue
		}
		merged = append(merged, item)
	}
	return merged
}

// identity tells an item of a list from the others. Two ports may differ in the protocol alone.
func identity(item podtree.Object, key string) any {
	if key == "containerPort" {
		return [2]any{item[key], cmp.Or(podtree.String(item, "protocol"), "TCP")}
	}
	return item[key]
}

// appendTo appends items to a list. Without any it does not make one.
func appendTo(spec podtree.Object, list string, items []any) {
	if len(items) > 0 {
		spec[list] = slices.Concat(podtree.List(spec, list), items)
	}
}

// appendNew appends the items whose names the list does not have.
func appendNew(spec podtree.Object, list string, items []any) {
	have := map[any]bool{}
	for _, item := range podtree.List(spec, list) {
		if object, ok := item.(podtree.Object); ok {
			have[object["name"]] = true
		}
	}
	var more []any
	for _, item := range items {
		if object, ok := item.(podtree.Object); ok && !have[object["name"]] {
			have[object["name"]] = true
			more = append(more, item)
		}
	}
	appendTo(spec, list, more)
}

// mergeDNS puts what a template says about DNS behind what the pod says. A template's option that
// the pod has, too, is the pod's.
func mergeDNS(spec, template podtree.Object) {
	if template == nil {
		return
	}
	own := podtree.Map(spec, "dnsConfig")
	if own == nil {
		spec["dnsConfig"] = template
		return
	}
	for _, list := range []string{"nameservers", "searches"} {
		have := slices.Clone(podtree.List(own, list))
		for _, text := range podtree.List(template, list) {
			if !slices.Contains(have, text) {
				have = append(have, text)
			}
		}
		if len(have) > 0 {
			own[list] = have
		}
	}
	appendNew(own, "options", podtree.List(template, "options"))
}

// fillIn sets the fields of an object that it does not have.
func fillIn(spec podtree.Object, name string, fields podtree.Object) {
	if fields == nil {
		return
	}
	own := podtree.Map(spec, name)
	if own == nil {
		own = podtree.Object{}
		spec[name] = own
	}
	for key, value := range fields {
		if own[key] == nil {
			own[key] = value
		}
	}
}
