package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/manifest"
)

// protocols are those that a mesh's control plane tells by the name of a Service's port.
var protocols = []string{"grpc", "grpc-web", "http", "http2", "http3", "https", "mongo", "mysql",
	"redis", "tcp", "tls", "udp"}

// appLabels are those by which a workload is named in traces and metrics.
var appLabels = []string{"app", "app.kubernetes.io/name", "service.istio.io/canonical-name"}

// adviseService names the ports of a Service whose names do not begin with a protocol. Istio 1.1
// treats their traffic as plain TCP; later versions guess.
func adviseService(object podtree.Object) []string {
	if object["kind"] != "Service" || object["apiVersion"] != "v1" ||
		podtree.Map(object, "spec", "selector") == nil {
		return nil
	}
	var advice []string
	for _, item := range podtree.List(object, "spec", "ports") {
		port, ok := item.(podtree.Object)
		if !ok || port["protocol"] == "UDP" || podtree.String(port, "appProtocol") != "" {
			continue
		}
		name := podtree.String(port, "name")
		if saysProtocol(name) {
			continue
		}
		was := fmt.Sprintf("name %q begins with no protocol", name)
		if name == "" {
			was = "it has no name"
		}
		advice = append(advice, fmt.Sprintf("Service %s, port %v: %s, so the mesh may treat its "+
			"traffic as plain TCP; name it PROTOCOL or PROTOCOL-SUFFIX, with one of %s, or set "+
			"appProtocol",
			nameOf(object), port["port"], was, strings.Join(protocols, ", ")))
	}
	return advice
}

// saysProtocol reports whether a port's name is a protocol, or one with a hyphen and more.
func saysProtocol(name string) bool {
	return slices.ContainsFunc(protocols, func(protocol string) bool {
		rest, ok := strings.CutPrefix(name, protocol)
		return ok && (rest == "" || rest[0] == '-')
	})
}

// named reports whether a workload's pods have a label by which traces and metrics name them.
func named(w manifest.Workload) bool {
	labels := podtree.Strings(w.Pod, "metadata", "labels")
	return slices.ContainsFunc(appLabels, func(key string) bool { return labels[key] != "" })
}

// nameOf is how messages call an object.
func nameOf(object podtree.Object) string {
	name := podtree.String(object, "metadata", "name")
	if namespace := podtree.String(object, "metadata", "namespace"); namespace != "" {
		name = namespace + "/" + name
	}
	return name
}
