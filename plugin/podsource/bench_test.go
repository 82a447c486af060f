package podsource

import (
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/agent"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

func BenchmarkFind(b *testing.B) {
	node, api := agent.Start(b), apiserver.Start(b)
	node.Put(meshed("5d1c"))
	api.Put(meshed("5d1c"))
	for _, c := range []struct {
		name, socket string
	}{
		{"agent", node.Socket()},
		{"API server over TLS, agent away", node.Socket() + ".away"},
	} {
		sources := Sources{AgentSocket: c.socket, Kubeconfig: api.Kubeconfig()}
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := sources.Find(b.Context(), web); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
