package redirect

// keySource is the annotation by which the kubelet says where it has a pod from. It writes it on
// its own copy of the pod: what an object of the API has there is its author's.
const keySource = "kubernetes.io/config.source"

// FromRuntime is a pod as far as the container runtime knows it. The annotations are those that the
// kubelet passed; nil or none means that it passed none on, since it sets some on every pod.
func FromRuntime(namespace, name string, annotations map[string]string) Pod {
	source, ok := annotations[keySource]
	if len(annotations) == 0 {
		annotations = nil
	}
	return Pod{Namespace: namespace, Name: name, Static: ok && source != "api",
		Annotations: annotations}
}

// Forget keeps of a pod's annotations those that decide: the others may be many and long.
func (p Pod) Forget() Pod {
	if p.Annotations == nil {
		return p
	}
	kept := map[string]string{}
	for _, key := range append(Annotations(), keySource) {
		if value, ok := p.Annotations[key]; ok {
			kept[key] = value
		}
	}
	p.Annotations = kept
	return p
}

// Complete puts what the runtime passed in place of what the object of the API says: the kubelet
// acts on that, and what was decided on it alone stays true.
func (p Pod) Complete(object Pod) Pod {
	object.Nameservers = p.Nameservers
	if p.Annotations != nil {
		object.Annotations = p.Annotations
	}
	if _, ok := p.Annotations[keySource]; ok {
		object.Static = p.Static
	}
	return object
}
