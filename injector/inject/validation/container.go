package validation

import (
	"fmt"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// program is what runs in the container. By it we know our own.
const program = "/sidecar-cni-injector"

func isOurs(container podtree.Object) bool {
	command := podtree.List(container, "command")
	return len(command) > 0 && command[0] == program
}

// object returns the container for a pod. It takes what Pod Security restricted allows to anybody,
// and is the proxy to the rules: they know it by its uid first.
func (c Container) object(pod podtree.Object, p redirect.Policy, calls []call) podtree.Object {
	words := make([]string, len(calls))
	for i, one := range calls {
		words[i] = one.String()
	}
	container := podtree.Object{
		"name":    Name,
		"image":   c.Image,
		"command": []any{program},
		"args": []any{"validate", fmt.Sprintf("--inbound-port=%d", p.Ports.Inbound),
			"--call=" + strings.Join(words, ",")},
		"securityContext": podtree.Object{
			"runAsUser":                int64(p.Proxy.UIDs[0]),
			"runAsGroup":               int64(p.Proxy.GIDs[0]),
			"runAsNonRoot":             true,
			"privileged":               false,
			"allowPrivilegeEscalation": false,
			"readOnlyRootFilesystem":   true,
			"capabilities":             podtree.Object{"drop": []any{"ALL"}},
			"seccompProfile":           podtree.Object{"type": "RuntimeDefault"},
		},
		"resources": resources(pod),
		// so that kubectl describe shows why the pod does not start
		"terminationMessagePolicy": "FallbackToLogsOnError",
	}
	if c.PullPolicy != "" {
		container["imagePullPolicy"] = c.PullPolicy
	}
	return container
}

// adopt takes of a former container of ours what others may have put into it, and nothing by which
// it would do less: one with a restart policy, for example, would not hold the pod up.
func adopt(fresh, own podtree.Object) {
	take := func(to, from podtree.Object, keys ...string) {
		for _, key := range keys {
			if value, ok := from[key]; ok {
				to[key] = value
			}
		}
	}
	take(fresh, own, "image", "imagePullPolicy", "resources", "env", "volumeMounts",
		"terminationMessagePath")
	take(podtree.Map(fresh, "securityContext"), podtree.Map(own, "securityContext"),
		"seLinuxOptions", "appArmorProfile")
}

// resources are those of the proxy. So the pod needs no more than it does without the container,
// stays in its class of quality of service, and meets the quotas and limit ranges that it meets.
func resources(pod podtree.Object) podtree.Object {
	proxy := proxyOf(pod)
	copied := podtree.Object{}
	for _, kind := range []string{"limits", "requests"} {
		for _, name := range []string{"cpu", "memory", "ephemeral-storage"} {
			if quantity := podtree.Get(proxy, "resources", kind, name); quantity != nil {
				podtree.Set(copied, quantity, kind, name)
			}
		}
	}
	return copied
}

func proxyOf(pod podtree.Object) podtree.Object {
	for _, list := range []string{"initContainers", "containers"} {
		all := podtree.List(pod, "spec", list)
		if at := podtree.Named(all, redirect.ProxyContainer); at >= 0 {
			return all[at].(podtree.Object)
		}
	}
	return nil
}
