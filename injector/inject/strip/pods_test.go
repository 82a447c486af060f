package strip

import (
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// seed003 is the command line that was published with its rules.
const seed003 = `istio-iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x "" -b * ` +
	`-d 15090,15021,15020`

// words splits a command line; "" is an empty word.
func words(line string) []any {
	var all []any
	for w := range strings.FieldsSeq(line) {
		if w == `""` {
			w = ""
		}
		all = append(all, w)
	}
	return all
}

// change is something that a pod has beside the usual.
type change func(podtree.Object)

// meshed returns a pod whose istio-init has a command line, but for the changes.
func meshed(line string, changes ...change) podtree.Object {
	pod := podtree.Object{
		"metadata": podtree.Object{
			"name":        "web",
			"annotations": podtree.Object{redirect.StatusAnnotation: "{}", "mine": "stays"},
		},
		"spec": podtree.Object{
			"initContainers": []any{podtree.Object{
				"name": "istio-init", "image": "docker.io/istio/proxyv2:1.20.0", "args": words(line),
				"securityContext": podtree.Object{
					"capabilities": podtree.Object{"add": []any{"NET_ADMIN"}},
				},
			}},
			"containers": []any{
				podtree.Object{"name": "web", "fieldOfTomorrow": int64(7),
					"securityContext": podtree.Object{"runAsUser": int64(1000)}},
				podtree.Object{"name": "istio-proxy", "args": []any{"proxy", "sidecar"}},
			},
			"volumes": []any{podtree.Object{"name": "only-of-istio-init"}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// in finds a container and returns what sets one of its fields.
func in(list, name string) func(value any, path ...string) change {
	return func(value any, path ...string) change {
		return func(pod podtree.Object) {
			all := podtree.List(pod, "spec", list)
			podtree.Set(all[podtree.Named(all, name)].(podtree.Object), value, path...)
		}
	}
}

var (
	ofInit  = in("initContainers", "istio-init")
	ofProxy = in("containers", "istio-proxy")
)

func annotation(key, value string) change {
	return func(pod podtree.Object) { podtree.Set(pod, value, "metadata", "annotations", key) }
}

func spec(value any, path ...string) change {
	return func(pod podtree.Object) { podtree.Set(pod, value, append([]string{"spec"}, path...)...) }
}

// variables are an env, of names and values in turn.
func variables(pairs ...any) []any {
	var env []any
	for i := 0; i < len(pairs); i += 2 {
		env = append(env, podtree.Object{"name": pairs[i], "value": pairs[i+1]})
	}
	return env
}

// both sets variables of istio-init and of the proxy, as proxyMetadata does.
func both(pairs ...any) change {
	return func(pod podtree.Object) {
		ofInit(variables(pairs...), "env")(pod)
		ofProxy(variables(pairs...), "env")(pod)
	}
}

// container is one that is neither the proxy nor istio-init; user below 0 is none.
func container(name string, user int64, more ...any) podtree.Object {
	c := podtree.Object{"name": name}
	if user >= 0 {
		podtree.Set(c, user, "securityContext", "runAsUser")
	}
	for i := 0; i < len(more); i += 2 {
		c[more[i].(string)] = more[i+1]
	}
	return c
}

// inits puts init containers in front of istio-init, and behind it those after a nil.
func inits(containers ...any) change {
	return func(pod podtree.Object) {
		var all []any
		own := podtree.List(pod, "spec", "initContainers")
		for _, c := range containers {
			if c == nil {
				all, own = append(all, own...), nil
				continue
			}
			all = append(all, c)
		}
		podtree.Set(pod, append(all, own...), "spec", "initContainers")
	}
}

// native makes the proxy an init container that stays, the last one.
func native(pod podtree.Object) {
	all := podtree.List(pod, "spec", "containers")
	proxy := all[1].(podtree.Object)
	proxy["restartPolicy"] = "Always"
	podtree.Set(pod, all[:1], "spec", "containers")
	podtree.Set(pod, append(podtree.List(pod, "spec", "initContainers"), proxy), "spec",
		"initContainers")
}

// stripped strips a pod that is not refused.
func stripped(t *testing.T, pod podtree.Object, cfg redirect.Config) podtree.Object {
	t.Helper()
	out, found, err := Strip(pod, cfg)
	if err != nil || !found {
		t.Fatalf("found %t, error %v", found, err)
	}
	return out
}
