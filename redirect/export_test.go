package redirect

// Names for the tests of this folder that play packets. They are outside of the package, since
// package simulate imports it.

type Change = change

// Example is a pod that the reference page shows.
type Example struct {
	Title string
	Pod   Pod
}

// PageExamples lists them.
func PageExamples() []Example {
	var list []Example
	for _, e := range examples {
		pod := meshed(asChange(e.annotations, e.variables))
		if e.also != nil {
			e.also(&pod)
		}
		list = append(list, Example{e.title, pod})
	}
	return list
}

const (
	CaptureDNS     = captureDNS
	OutboundRanges = outboundRanges
	IstioKeys      = istio
	Resolver       = resolver
	TrafficKeys    = traffic
)

var (
	ByValue        = byValue
	CheckDecision  = checkDecision
	Compiled       = compiled
	FuzzedPod      = fuzzedPod
	HookOf         = hookOf
	JumpTo         = jump
	Malformed      = malformed
	Meshed         = meshed
	Annotation     = annotation
	Nameservers    = nameservers
	Ours           = ours
	PodAnnotations = annotations
	Policies       = policies
	Prefixes       = prefixes
	Returns        = returns
	SeedPods       = seedPods
	TProxyPod      = tproxy
	Together       = together
	Variable       = variable
)
