package redirect

// The containers that decide about a pod by their presence. Of others counts who they run as.
const (
	ProxyContainer = proxyContainer
	InitContainer  = istioInit
)

// StatusAnnotation is what an injector writes on its pods, whatever the value. A pod without it is
// none of ours.
const StatusAnnotation = "sidecar.istio.io/status"

// StrippedAnnotation is "true" on a pod out of which our webhook has taken InitContainer. One that
// has the container all the same was given it back, by a webhook that was called later.
const StrippedAnnotation = "sidecar-cni.io/stripped"

// Annotations lists the keys of the annotations that decide about a pod. Whoever keeps many pods
// may forget the others.
func Annotations() []string {
	keys := []string{StatusAnnotation, keyInject, StrippedAnnotation}
	for _, s := range settings {
		if s.env {
			continue
		}
		keys = append(keys, s.key)
		if s.older != "" {
			keys = append(keys, s.older)
		}
	}
	return keys
}

// Labels lists the keys of the labels that decide.
func Labels() []string { return []string{keyInject} }

// Variables lists the variables of ProxyContainer's environment that decide.
func Variables() []string {
	var keys []string
	for _, s := range settings {
		if s.env {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// DecisiveArgs is how many arguments of ProxyContainer decide, from the first one on.
const DecisiveArgs = 2
