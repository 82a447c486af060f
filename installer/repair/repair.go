// Package repair looks whether the meshed pods of a node are redirected, by what package audit
// finds in their network namespaces, and does what is configured about those that are not.
//
//	r := repair.New(repair.Config{Mode: repair.Repair, Backend: "nftables", Redirect: redirect.Defaults(),
//		Records: "/run/sidecar-cni/state", HostProc: "/proc"}, repair.Deps{...})
//	report, err := r.Pass(ctx)
//
// A pass looks at every pod that redirect.Decide calls ours and whose ADD is over: it has an
// address, or a process where the runtime starts the first one once the network is set up. Pods
// that ended or are about to, and those in the host's network, are left alone. What is found is a
// Finding; only Missing, which is a pod without any redirection at all, is ever acted upon.
//
// What is found, and where, is package audit's to say.
//
//	mode     Missing                                                       everything else but Redirected
//	off      nobody looks                                                  nobody looks
//	report   Event, label, metric                                          Event, metric
//	repair   the rules are written, read back and recorded; Event          Event, metric
//	evict    the pod is evicted, if somebody creates it anew; Event        Event, metric
//
// An Unreachable pod is in the log and the metric only; a Starting one is not yet anything to
// tell of. So is a Skipped one: it has a sidecar, and Decide gives a reason to leave it alone,
// mostly one that its author wrote down, as a gateway's; the log and a metric name it. What its
// istio-init programs is nobody else's business. In every mode, records of namespaces that are
// gone are dropped, since with CRI-O nobody else does.
//
// It takes what package audit takes, and CAP_NET_ADMIN to write rules.
//
// Who is evicted: never a static pod's mirror, nor a pod without a controller, which nobody would
// create anew. A pod of a Job with restartPolicy Never is evicted while it is pending; once it
// runs, its work would be lost or done twice, so it is only reported. What a PodDisruptionBudget
// forbids is tried again, after growing pauses.
//
// Be aware:
//   - Pods has to be complete: before the cache is filled a pass finds nothing and says that
//     nothing is wrong.
//   - Connections that a pod has opened before it was repaired go on past the proxy. The Event says
//     so, and that the pod has to be restarted to end them.
//   - Evict only where new pods are redirected: the chain has to be in effect, else they are
//     evicted one after the other.
//   - A repaired pod without a record is recorded under "repair-" and its uid instead of its
//     sandbox's id, which nothing on the node has. Such a record goes when the namespace is gone.
package repair

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/daemon/events"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// Mode says what is done about a pod that is not redirected.
type Mode string

// The modes.
const (
	Off    Mode = "off"
	Report Mode = "report"
	Repair Mode = "repair"
	Evict  Mode = "evict"
)

// Modes lists them, from doing nothing to doing most.
var Modes = []Mode{Off, Report, Repair, Evict}

// Label is the usual label of pods that are not redirected.
const Label = agent.RedirectionLabel

// Config is what an administrator decides.
type Config struct {
	Mode     Mode            // Off: only records of namespaces that are gone are dropped
	Redirect redirect.Config // the plugin's, so that both decide the same
	Records  record.Dir      // the plugin's; what is repaired is recorded there
	HostProc string          // where the host's /proc is; "" if nowhere
	Label    string          // has the value "missing" on pods without redirection; "" sets none

	// InRoot calls a function where iptables' programs are, on a thread that is its own. Nil: here.
	InRoot func(do func() error) error
}

// Deps is what a Repairer works with.
type Deps struct {
	Pods    func() []*corev1.Pod      // of this node; they are only read
	Handler func(class string) string // of a runtime class; "" if it is not known
	// Backend is that of the plugin's conf: nftables, iptables-nft or iptables-legacy; "" as long
	// as none works on the node.
	Backend func() string
	// Hold says that another mesh's plugin is in the chain: what it leaves open is reported, and no
	// more.
	Hold func() bool
	// Ready says that new pods start redirected: only then Run evicts.
	Ready func() bool
	// NetworkFirst says that the runtime starts the first process of a pod once its network is set
	// up, as containerd and CRI-O do. With another one the ADD of a pod that has just started may
	// still be under way.
	NetworkFirst func() bool
	Locks        *podns.Locks // whoever else writes into namespaces has the same; nil: nobody does

	Client   *rest.RESTClient      // from agent.NewClient
	Events   *events.Events        // where the pods' owners are warned
	Registry prometheus.Registerer // for the metrics
	Log      *zap.Logger           // gets a line for each pod whose finding has changed
}
