package podsource

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
	"github.com/sidecar-cni/sidecar-cni/test/agent"
)

func TestReportReachesTheAgent(t *testing.T) {
	t.Parallel()
	node := agent.Start(t)
	Sources{AgentSocket: node.Socket()}.Report(protocol.Outcome{
		Command: "ADD", Namespace: "shop", Name: "web-0", UID: "5d1c", Outcome: "failed",
		Reason: "gone", Message: "why",
		Phases: map[string]float64{"find": 0.0015},
	})
	want := agent.Outcome{
		Command: "ADD", Namespace: "shop", Name: "web-0", UID: "5d1c", Outcome: "failed",
		Reason: "gone", Message: "why",
		Phases: map[string]float64{"find": 0.0015},
	}
	if diff := cmp.Diff(want, <-node.Outcomes()); diff != "" {
		t.Errorf("the agent got (-want +got):\n%s", diff)
	}
}

func TestReportIsNotHeldUp(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*world){
		"by an agent that hangs":         func(w *world) { w.agent.Break(agent.Hang) },
		"by an agent that is away":       func(w *world) { w.away(agentAddress) },
		"by an agent that never accepts": func(w *world) { w.network.listen(agentAddress) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				set(w)
				started := time.Now()
				w.sources().Report(protocol.Outcome{Command: "ADD"})
				if took := time.Since(started); took > reportTimeout {
					t.Errorf("it took %v, want at most %v", took, reportTimeout)
				}
			})
		})
	}
}
