package target

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/podtemplate"
)

// resource is a type of objects that have pods in them.
type resource struct {
	kind   string
	group  string   // of the API; "" is the core group
	plural string   // its name in the API
	short  []string // kubectl's short names
}

// resources begin with the pods themselves.
var resources = []resource{
	{podtemplate.Pod, "", "pods", []string{"po"}},
	{"Deployment", "apps", "deployments", []string{"deploy"}},
	{"StatefulSet", "apps", "statefulsets", []string{"sts"}},
	{"DaemonSet", "apps", "daemonsets", []string{"ds"}},
	{"ReplicaSet", "apps", "replicasets", []string{"rs"}},
	{"Job", "batch", "jobs", nil},
	{"CronJob", "batch", "cronjobs", []string{"cj"}},
	{"ReplicationController", "", "replicationcontrollers", []string{"rc"}},
}

// resourceNamed finds a type by what kubectl takes for its name, deployment.apps included, which is
// how kubectl get -o name writes it.
func resourceNamed(word string) (resource, bool) {
	word, group, grouped := strings.Cut(strings.ToLower(word), ".")
	for _, r := range resources {
		if word == r.plural || word == strings.ToLower(r.kind) || slices.Contains(r.short, word) {
			return r, !grouped || group == r.group && group != ""
		}
	}
	return resource{}, false
}

// path is where the API has an object.
func (r resource) path(namespace, name string) []string {
	version := "/api/v1"
	if r.group != "" {
		version = "/apis/" + r.group + "/v1"
	}
	return append(api.Path(version, namespace, r.plural), name)
}

// full is the name of the resource for kubectl: deployments.apps.
func (r resource) full() string {
	if r.group == "" {
		return r.plural
	}
	return r.plural + "." + r.group
}

// reference is what a user calls an object, understood.
type reference struct {
	resource        resource
	namespace, name string
}

func (r reference) String() string {
	return strings.ToLower(r.resource.kind) + " " + r.namespace + "/" + r.name
}

// parseReference reads what FromCluster describes.
func parseReference(text string, o Options) (reference, error) {
	r := reference{resource: resources[0], namespace: o.namespace(), name: text}
	first, rest, two := strings.Cut(text, "/")
	if named, ok := resourceNamed(first); two && ok && o.Namespace != first {
		r.resource, r.name = named, rest
	} else if two {
		r.namespace, r.name = first, rest
	}
	shown := foreign.Cut(text)
	if strings.Contains(r.name, "/") {
		return r, fmt.Errorf("read %q: too many slashes; want NAMESPACE/POD, POD or TYPE/NAME, "+
			"and the namespace by its own flag", shown)
	}
	if o.Namespace != "" && r.namespace != o.Namespace {
		return r, fmt.Errorf("read %q: the command line says namespace %q, too; leave out one, "+
			"or name one of the types %s", shown, foreign.Cut(o.Namespace), typeNames())
	}
	if len(validation.IsDNS1123Label(r.namespace)) > 0 {
		return r, fmt.Errorf("read %q: no namespace is called %q; want NAMESPACE/POD, POD or "+
			"TYPE/NAME, the type one of %s", shown, foreign.Cut(r.namespace), typeNames())
	}
	if len(validation.IsDNS1123Subdomain(r.name)) > 0 {
		return r, fmt.Errorf("read %q: no object is called %q; "+
			"a name has lower-case letters, digits, dots and hyphens only",
			shown, foreign.Cut(r.name))
	}
	return r, nil
}

func typeNames() string {
	var names []string
	for _, r := range resources {
		names = append(names, strings.ToLower(r.kind))
	}
	return strings.Join(names, ", ")
}
