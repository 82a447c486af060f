// Sidecar-cni is the CNI plugin that redirects the traffic of a mesh's pods to their sidecar
// proxies. The container runtime executes it as the last of a network's chain, once a verb; add.go
// says what becomes of a new pod.
//
// Be aware: standard output belongs to the CNI protocol. It carries one JSON document, written at
// the very end.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

//go:generate go test . -run TestConfigurationPage -update

func main() {
	e := env{command: os.Getenv("CNI_COMMAND"), stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(e.run())
}

// env is what the plugin has of the world, beside what skel reads: environment and standard input.
type env struct {
	command        string
	stdout, stderr io.Writer
}

func (e env) run() int {
	p := plugin{stderr: e.stderr}
	refusal := e.serve(&p)
	answer := p.answer
	if refusal != nil {
		answer = p.encode(refusal)
	}
	if refusal != nil && !p.called {
		newLogger(e.stderr, "", "").Info("refused call", zap.String("command", e.command),
			zap.Error(refusal))
	}
	if len(answer) > 0 {
		if _, err := e.stdout.Write(answer); err != nil {
			fmt.Fprintln(e.stderr, "write answer:", err)
			return 1
		}
	}
	if refusal != nil {
		return 1
	}
	return 0
}

func (e env) serve(p *plugin) (refusal *types.Error) {
	err := guard(e.stderr, func() error {
		refusal = skel.PluginMainFuncsWithError(skel.CNIFuncs{
			Add:    p.verb("ADD", add),
			Del:    p.verb("DEL", del),
			Check:  p.verb("CHECK", check),
			GC:     p.verb("GC", gc),
			Status: p.verb("STATUS", status),
		}, version.PluginSupports(names.CNIVersions...), e.about())
		return nil
	})
	if err != nil {
		return classify(err).result()
	}
	return refusal
}

// encode writes an error as CNI wants it, which is with the version of the protocol if that is
// known.
func (p *plugin) encode(e *types.Error) []byte {
	data, _ := json.MarshalIndent(struct {
		Version string `json:"cniVersion,omitempty"`
		*types.Error
	}{p.version, e}, "", "    ") // a number and three strings
	return append(data, '\n')
}

// about is what a person sees who runs the program by hand. The runtime's calls shall not pay for
// it.
func (e env) about() string {
	if e.command != "" {
		return ""
	}
	v := "of an unknown version"
	if info, ok := debug.ReadBuildInfo(); ok {
		v = info.Main.Version
	}
	return "sidecar-cni " + v + ": a CNI plugin, which the container runtime executes; see " +
		"docs/configuration.md"
}
