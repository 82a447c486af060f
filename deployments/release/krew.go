package main

import (
	"sigs.k8s.io/yaml"
)

// pluginName is the plugin's name at krew, which has it called as `kubectl sidecar-cni`.
const pluginName = "sidecar-cni"

const project = "https://github.com/sidecar-cni/sidecar-cni"

// published is an archive and its checksum.
type published struct {
	platform platform
	name     string
	sha256   string
}

// krewPlugin is a manifest of krew.
type krewPlugin struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       krewSpec `json:"spec"`
}

type metadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"` // with a v in front
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector selector `json:"selector"`
	URI      string   `json:"uri"`
	SHA256   string   `json:"sha256"`
	Bin      string   `json:"bin"` // what krew links to under the plugin's name
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

const description = `Says whether a pod's traffic is redirected to its sidecar and why, which rules it gets, where a
connection goes, and what is wrong on a node or in the cluster. It reads manifests, or the cluster
that kubectl talks to.
`

const caveats = `What only a node knows is read through exec in the agent's pod there. That takes the right
pods/exec in the agent's namespace, which is root on the node.
`

func krew(version string, packages []published) ([]byte, error) {
	plugin := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: metadata{pluginName},
		Spec: krewSpec{
			Version: "v" + version, Homepage: project,
			ShortDescription: "Explains the redirection of pods to their sidecars",
			Description:      description, Caveats: caveats,
		},
	}
	for _, p := range packages {
		plugin.Spec.Platforms = append(plugin.Spec.Platforms, krewPlatform{
			Selector: selector{map[string]string{"os": p.platform.os, "arch": p.platform.arch}},
			URI:      project + "/releases/download/v" + version + "/" + p.name,
			SHA256:   p.sha256, Bin: p.platform.binary(),
		})
	}
	return yaml.Marshal(plugin)
}
