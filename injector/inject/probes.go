package inject

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

const (
	probesKey     = "sidecar.istio.io/rewriteAppHTTPProbers"
	statusPortKey = "status.sidecar.istio.io/port"
	probersEnv    = "ISTIO_KUBE_APP_PROBERS" // where Istio's agent reads what to ask
)

// probe is something that the kubelet asks a container.
type probe struct {
	field []string // of the container
	path  string   // where Istio's agent is asked for it, behind the container's name
	under string   // in front of that name
}

var probes = []probe{
	{[]string{"readinessProbe"}, "/readyz", "/app-health/"},
	{[]string{"livenessProbe"}, "/livez", "/app-health/"},
	{[]string{"startupProbe"}, "/startupz", "/app-health/"},
	{[]string{"lifecycle", "preStop"}, "/prestopz", "/app-lifecycle/"},
	{[]string{"lifecycle", "postStart"}, "/poststartz", "/app-lifecycle/"},
}

// rewriteProbes has the proxy's agent ask what the kubelet asks: from outside of the mesh, the
// kubelet would meet the proxy, which may want mutual TLS.
func (in *injection) rewriteProbes() {
	proxy := containerOf(in.pod, proxyName)
	if proxy == nil || !in.wantsProbes() {
		return
	}
	port, ok := in.statusPort(proxy)
	if !ok {
		in.warn("the proxy has no status port: the probes of the other containers stay as they " +
			"are, and a proxy that demands mutual TLS refuses them")
		return
	}
	asked := map[string]podtree.Object{}
	running := false
	for _, item := range podtree.List(in.pod, "spec", initContainers) {
		c := item.(podtree.Object)
		switch {
		case c["name"] == proxyName:
			running = true
		case running:
			in.rewriteContainer(c, port, asked)
		case askedByNetwork(c): // it would wait for the proxy, and the proxy for it
			in.warn("container %q starts before the proxy: its probes and hooks stay as they are, "+
				"and are redirected to a proxy that is not there yet; exclude their ports from "+
				"redirection, or make the proxy a native sidecar", c["name"])
		}
	}
	for _, item := range podtree.List(in.pod, "spec", containers) {
		if c := item.(podtree.Object); c["name"] != proxyName {
			in.rewriteContainer(c, port, asked)
		}
	}
	if len(asked) > 0 {
		setProbers(proxy, asked)
	}
}

// wantsProbes asks the pod's annotation first, then our own setting, then what Istio's template or
// values say. An annotation that is no bool says nothing, as in Istio.
func (in *injection) wantsProbes() bool {
	text := podtree.String(in.pod, "metadata", "annotations", probesKey)
	want, err := strconv.ParseBool(text)
	switch {
	case err == nil:
		return want
	case in.cfg.Settings.RewriteProbes != nil:
		return *in.cfg.Settings.RewriteProbes
	case in.rewrite != nil:
		return *in.rewrite
	}
	return in.enabled("sidecarInjectorWebhook", "rewriteAppHTTPProbe")
}

// statusPort is the port on which the agent answers: that of its command line, else the pod's, else
// the mesh's. There is none if it is 0, or no port.
func (in *injection) statusPort(proxy podtree.Object) (int64, bool) {
	text := podtree.String(in.pod, "metadata", "annotations", statusPortKey)
	if text == "" {
		text = strconv.Itoa(int(in.proxy.GetStatusPort()))
	}
	args := podtree.List(proxy, "args")
	for i, arg := range args {
		flag, _ := arg.(string)
		if value, ok := strings.CutPrefix(flag, "--statusPort="); ok {
			text = value
		} else if flag == "--statusPort" && i+1 < len(args) {
			text, _ = args[i+1].(string)
		}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	return int64(port), err == nil && port > 0
}

// rewriteContainer has the agent asked instead of the container, and notes what the agent asks.
func (in *injection) rewriteContainer(
	c podtree.Object, port int64, asked map[string]podtree.Object,
) {
	name := podtree.String(c, "name")
	for _, p := range probes {
		own := podtree.Map(c, p.field...)
		kind, action := networkAction(own)
		if action == nil {
			continue
		}
		original, ok := resolve(c, action)
		if !ok {
			in.warn("container %q: %s names the port %.64q, which the container does not have; it "+
				"stays as it is", name, strings.Join(p.field, "."), action["port"])
			continue
		}
		if original["port"] == port {
			continue
		}
		path := p.under + name + p.path
		asked[path] = podtree.Object{kind: original}
		if seconds := own["timeoutSeconds"]; seconds != nil {
			asked[path]["timeoutSeconds"] = seconds
		}
		delete(own, kind)
		own["httpGet"] = askAgent(action, path, port)
	}
}

// networkAction returns what a probe or hook sends, and its kind; nil if that does not come by the
// network, or goes to another host than the pod, where no proxy is in its way.
func networkAction(own podtree.Object) (kind string, action podtree.Object) {
	for _, kind := range []string{"httpGet", "tcpSocket", "grpc"} {
		action := podtree.Map(own, kind)
		if action != nil && podtree.String(action, "host") == "" {
			return kind, action
		}
	}
	return "", nil
}

func askedByNetwork(c podtree.Object) bool {
	return slices.ContainsFunc(probes, func(p probe) bool {
		_, action := networkAction(podtree.Map(c, p.field...))
		return action != nil
	})
}

// resolve returns an action with a port that is a number: the agent does not know the names.
func resolve(c, action podtree.Object) (podtree.Object, bool) {
	original := podtree.Clone(action)
	name, ok := action["port"].(string)
	if !ok {
		return original, true
	}
	ports := podtree.List(c, "ports")
	at := podtree.Named(ports, name)
	if at < 0 {
		return nil, false
	}
	original["port"] = ports[at].(podtree.Object)["containerPort"]
	return original, true
}

// askAgent is the request of the kubelet to the agent. The headers of one to the container stay;
// the agent is asked without TLS.
func askAgent(action podtree.Object, path string, port int64) podtree.Object {
	request := podtree.Object{"path": path, "port": port}
	if headers := action["httpHeaders"]; headers != nil {
		request["httpHeaders"] = headers
	}
	if action["scheme"] != nil {
		request["scheme"] = "HTTP"
	}
	return request
}

// setProbers writes what the agent asks into its environment.
func setProbers(proxy podtree.Object, asked map[string]podtree.Object) {
	text, err := json.Marshal(asked)
	if err != nil {
		return // a tree of JSON has nothing that JSON lacks
	}
	setVariable(proxy, probersEnv, string(text))
}

// setVariable writes a variable of a container, in place of what may stand there.
func setVariable(c podtree.Object, name, value string) {
	rest, _ := without(c, "env", name)
	c["env"] = append(slices.Clone(rest), podtree.Object{"name": name, "value": value})
}
