package inject

import (
	"encoding/json"
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// status is what the annotation sidecar.istio.io/status says: what was put into the pod, by names.
// Istio's tools read it.
type status struct {
	Version          string   `json:"version"` // of the configuration
	InitContainers   []string `json:"initContainers"`
	Containers       []string `json:"containers"`
	Volumes          []string `json:"volumes"`
	ImagePullSecrets []string `json:"imagePullSecrets"`
	Revision         string   `json:"revision"`
}

// writeStatus writes the annotation. Of the templates' containers it names those that are in the
// pod; of volumes and pull secrets those that the pod did not have before.
func (in *injection) writeStatus() error {
	spec, before := podtree.Map(in.pod, "spec"), podtree.Map(in.req.Pod, "spec")
	s := status{
		Version:          in.cfg.Version,
		InitContainers:   present(in.given.init, spec, initContainers),
		Containers:       present(in.given.ordinary, spec, containers),
		Volumes:          added(in.given.volumes, before, "volumes"),
		ImagePullSecrets: added(in.given.pullSecrets, before, "imagePullSecrets"),
		Revision:         in.cfg.Settings.Revision,
	}
	if s.Revision == "" {
		s.Revision = "default"
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write annotation %s: %w", redirect.StatusAnnotation, err)
	}
	in.annotate(redirect.StatusAnnotation, string(text))
	return nil
}

func present(names []string, spec podtree.Object, list string) []string {
	all := podtree.List(spec, list)
	return keep(names, func(name string) bool { return podtree.Named(all, name) >= 0 })
}

func added(names []string, before podtree.Object, list string) []string {
	all := podtree.List(before, list)
	return keep(names, func(name string) bool { return podtree.Named(all, name) < 0 })
}

// keep returns the names that are wanted; nil, which Istio writes as null, if none is.
func keep(names []string, wanted func(string) bool) []string {
	var kept []string
	for _, name := range names {
		if wanted(name) {
			kept = append(kept, name)
		}
	}
	return kept
}
