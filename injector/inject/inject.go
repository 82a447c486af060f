// Package inject puts the proxy into pods, without istio-init: configuration and pod in, decision
// with its reason and pod out.
//
//	result, err := inject.Inject(cfg, inject.Request{Pod: pod, Namespace: "shop"})
//	fmt.Println(result.Decision.Reason, result.Pod)
//
// The templates of the configuration say what is put in. What they put in of istio-init leaves
// again: package strip turns its flags into annotations, which the CNI plugin reads.
//
// Be aware: a pod is injected once. One that has the annotation sidecar.istio.io/status stays as it
// is, whoever wrote that, but for our own init container of Request.Validation: it goes back to the
// front, where another webhook has put one before it.
package inject

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/strip"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Request is a pod, or the template of one, and whose it is.
type Request struct {
	Pod       podtree.Object    // metadata and spec
	Namespace string            // where it runs, if its metadata does not say
	Type      metav1.TypeMeta   // of the workload: a Deployment, or the Pod itself
	Workload  metav1.ObjectMeta // name and namespace of the workload
	// Validation is the init container that the pod gets if it is injected; nil: none. A pod whose
	// interception mode is NONE gets none.
	Validation *validation.Container
}

// Result is what became of a pod.
type Result struct {
	Decision Decision       // known with an error, too
	Pod      podtree.Object // the request's own where nothing changed
	Warnings []string       // for whoever asked
}

const (
	proxyName      = redirect.ProxyContainer
	initName       = redirect.InitContainer
	validationName = validation.Name // checks the rules, as the proxy's user
	coreDumpName   = "enable-core-dump"

	containers     = "containers"
	initContainers = "initContainers"
)

// The annotations that are read or written here. Those of redirection are package redirect's.
const (
	injectKey    = "sidecar.istio.io/inject" // also a label
	modeKey      = "sidecar.istio.io/interceptionMode"
	proxyKey     = "proxy.istio.io/config"
	templatesKey = "inject.istio.io/templates"
	mirrorKey    = "kubernetes.io/config.mirror"
	networkKey   = "topology.istio.io/network" // a label
)

// networkEnv is where the proxy reads its network.
const networkEnv = "ISTIO_META_NETWORK"

// Inject decides about a pod and puts the proxy into it. The pod of the request does not change.
// With an error the result says what was decided and warned of, and has no pod.
func Inject(cfg *config.Config, req Request) (Result, error) {
	decision, warnings := decide(cfg, req)
	if decision.Reason == AlreadyInjected {
		return renewValidation(decision, req), nil
	}
	if !decision.Inject {
		return Result{Decision: decision, Pod: req.Pod, Warnings: warnings}, nil
	}
	in := &injection{cfg: cfg, req: req, warnings: warnings}
	if err := in.run(); err != nil {
		return Result{Decision: decision, Warnings: in.warnings}, err
	}
	return Result{Decision: decision, Pod: in.pod, Warnings: in.warnings}, nil
}

// injection is the work on one pod.
type injection struct {
	cfg      *config.Config
	req      Request
	proxy    *mesh.ProxyConfig // with what the pod's annotation sets
	pod      podtree.Object    // as it is so far
	names    []string          // of the templates
	given    given             // what the templates have
	rewrite  *bool             // an old template's word on probes; nil: it has none
	warnings []string
}

func (in *injection) run() error {
	if err := checkSize(in.req.Pod, "the pod"); err != nil {
		return err
	}
	pod, err := typed(in.req.Pod)
	if err != nil {
		return fmt.Errorf("read pod: %w", err)
	}
	spec := podtree.Map(in.req.Pod, "spec")
	if spec == nil {
		return errors.New("read pod: it has no spec")
	}
	if err := checkNames(spec); err != nil {
		return fmt.Errorf("read pod: %w", err)
	}
	in.pod = podtree.Clone(in.req.Pod)
	if err := in.readAnnotations(pod); err != nil {
		return err
	}
	if err := in.applyTemplates(in.data(pod)); err != nil {
		return err
	}
	for key, value := range in.cfg.InjectedAnnotations {
		in.annotate(key, value)
	}
	in.order()
	if err := in.stripInit(); err != nil {
		return err
	}
	in.rewriteProbes()
	in.setNetwork()
	if err := in.writeStatus(); err != nil {
		return err
	}
	if err := in.validate(); err != nil {
		return err
	}
	return in.check()
}

// stripInit takes out istio-init. Where there is none, because the mode is NONE or the template is
// made for a CNI plugin, a mode that is the mesh's becomes the pod's: the CNI plugin does not know
// the mesh's configuration.
func (in *injection) stripInit() error {
	stripped, found, err := strip.Owned(in.pod, redirect.Defaults())
	if err != nil {
		return err
	}
	in.pod = stripped
	mode := in.proxy.GetInterceptionMode().String()
	if !found && mode != string(redirect.ModeRedirect) && !in.annotated(modeKey) {
		in.annotate(modeKey, mode)
	}
	return nil
}

// setNetwork has the proxy know the network that the pod's label names. Istio's injector does so
// beside its templates, which have the mesh's network at most.
func (in *injection) setNetwork() {
	network := podtree.String(in.pod, "metadata", "labels", networkKey)
	if proxy := containerOf(in.pod, proxyName); proxy != nil && network != "" {
		setVariable(proxy, networkEnv, network)
	}
}

// redirection is the configuration by which the result is judged: that of no cluster, since what
// a cluster excludes is not known here.
func redirection() redirect.Config {
	cfg := redirect.Defaults()
	cfg.ExcludeNamespaces, cfg.Agent, cfg.RuntimeHandlers = nil, redirect.Agent{}, nil
	return cfg
}

func (in *injection) annotate(key, value string) {
	podtree.Set(in.pod, value, "metadata", "annotations", key)
}

func (in *injection) annotated(key string) bool {
	return podtree.Get(in.pod, "metadata", "annotations", key) != nil
}

func (in *injection) warn(format string, values ...any) {
	in.warnings = append(in.warnings, fmt.Sprintf(format, values...))
}

// namespace is where the pod runs, as far as that is known.
func (r Request) namespace() string {
	if name := podtree.String(r.Pod, "metadata", "namespace"); name != "" {
		return name
	}
	if r.Namespace != "" {
		return r.Namespace
	}
	return r.Workload.Namespace
}
