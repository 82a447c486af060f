package agent

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/daemon/events"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

// A rig is an API server and what the agent needs of it.
type rig struct {
	api    *apiserver.Server
	pods   *Pods
	events *events.Events
	reg    *prometheus.Registry
}

const nodeName = "node-1"

// inMemory makes a rig for a synctest bubble.
func inMemory(t *testing.T) *rig { t.Helper(); return newRig(t, apiserver.InMemory(t)) }

// overSockets makes a rig that goes through the kernel.
func overSockets(t *testing.T) *rig { t.Helper(); return newRig(t, apiserver.Start(t)) }

func newRig(t *testing.T, server *apiserver.Server) *rig {
	t.Helper()
	r := &rig{api: server}
	client, err := NewClient(r.api.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Client.CloseIdleConnections)
	r.reg = prometheus.NewPedanticRegistry()
	r.pods = NewPods(client, nodeName, r.reg, zap.NewNop())
	r.events = NewEvents(client, nodeName, r.reg, zap.NewNop())
	return r
}

// run runs something until the test ends.
func run(t *testing.T, do func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}
