// Package podtemplate says where in an object of Kubernetes its pod is, whatever the object's kind
// and version.
//
//	body, path := podtemplate.Find(object, "Deployment") // path is spec, template
//
// Be aware: nothing is known of kinds. An object that has the shape of a template has a template.
package podtemplate

// Pod is the kind whose objects are pods themselves.
const Pod = "Pod"

// templates are the places of pod templates: in a Deployment and most others, in a CronJob, in a
// PodTemplate.
var templates = [][]string{
	{"spec", "template"},
	{"spec", "jobTemplate", "spec", "template"},
	{"template"},
}

// Find returns what has the metadata and the spec of a pod, and its path within the object; nil if
// there is no pod. The path of a pod within itself is empty.
func Find(object map[string]any, kind string) (body map[string]any, path []string) {
	if kind == Pod {
		return object, nil
	}
	for _, path := range templates {
		body := Dig(object, path...)
		if _, ok := Dig(body, "spec")["containers"]; ok {
			return body, path
		}
	}
	return nil, nil
}

// Dig returns the object at a path; nil if there is none.
func Dig(object map[string]any, path ...string) map[string]any {
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}
	return object
}
