// Package target reads the pods that a command is about: out of manifests, or out of the API.
//
//	pods, err := target.FromFile(os.Stdin, "-", target.Options{Namespace: "shop"})
//	decision, err := redirect.Decide(pods[0].Facts, redirect.Defaults())
//
// Nothing is written to a cluster. FromCluster reads an object, what controls it and its runtime
// class, OnNodes a list, page by page.
//
// Be aware: a template is what a manifest says. What is added to each pod when it is created, a
// sidecar by a webhook above all, is in the pod only.
package target

import (
	"net/netip"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Pod is a pod that a command is about, or the template of one. Its texts, those of Facts excepted,
// are fit for a terminal: one with a control character in it is quoted.
type Pod struct {
	Name        string       // for people: "shop/web-0", or "shop/web (Deployment)" of a template
	Kind        string       // Pod, or of what the template is: Deployment, ...
	HostNetwork bool         // it shares the node's network namespace
	Phase       string       // as the API has it; "" of a file's and of a template
	Node        string       // that it runs on; "" if none is known
	IPs         []netip.Addr // its addresses; none of a template
	DNSPolicy   string       // as written; "" is ClusterFirst
	DNSServers  []netip.Addr // dnsConfig.nameservers
	UID         string       // "" if none is known, as of a template
	NodeUID     string       // as its node calls it: of a static pod another one than UID
	Facts       redirect.Pod // what decides; the nameservers are not among it
	Containers  []Container  // init containers first, in their order

	Owner   string            // for people, what has the template, or controls the pod
	Outside map[string]string // annotations of Owner itself, which no pod gets
	Object  map[string]any    // the pod as the API has it; nil of a file's and of a template

	Unread error // of OnNodes: why no more is known than Kind, Name, Node and Phase
}

// Container is one of a pod's.
type Container struct {
	Name  string // fit for a terminal
	Init  bool   // an init container; with Stays, a native sidecar
	Stays bool   // restartPolicy Always
	ID    string // that the runtime gave it, without the runtime's name; "" if none is known

	// Who it runs as: by its own security context, else by the pod's; nil if neither says.
	RunAsUser, RunAsGroup *int64

	Ports []Port // that it declares, in their order
}

// Port is one that a container declares. One that it does not declare may be open all the same.
type Port struct {
	Name     string // "" if it has none
	Number   uint16 // in the container, never 0
	Protocol string // TCP if nothing is written
}

// Options say which namespace is meant where none is written.
type Options struct {
	Namespace        string // of the command line; "" if it says none
	DefaultNamespace string // of the kubeconfig's context, see Cluster; "" is "default"
}

func (o Options) namespace() string {
	switch {
	case o.Namespace != "":
		return o.Namespace
	case o.DefaultNamespace != "":
		return o.DefaultNamespace
	}
	return "default"
}
