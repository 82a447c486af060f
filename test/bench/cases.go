package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
)

// testCase is a process whose cost is of interest.
type testCase struct {
	name    string
	program string
	command string
	passed  map[string]string // the pod's annotations, by the runtime
	conf    map[string]any    // beside what every call has
	want    outcome
	rules   comparison // nil where no rules are written
	turns   int        // in each round; 0 is one
	budget  float64    // the most that it may take, as a ratio to the empty program; 0 is no budget
}

// The two cases that are measured against each other.
const (
	byFile  = "ours, by its pod file, nftables"
	byAgent = "ours, agent's cache, nftables"
)

// oftenTurns is how many turns those two have in a round: their ratio is to be right to a
// hundredth.
const oftenTurns = 5

// The other budgets of the design.
const (
	fileBudget   = 0.88                   // of byFile to byAgent, of one ADD and of many at once
	rushBudget   = 600 * time.Millisecond // with two cores
	binaryBudget = 16 << 20
	memoryBudget = 20 << 20

	anonymousBudget = 25 << 20 // of the agent
	residentBudget  = 50 << 20
)

// outcome is what the plugin's log has to say about a call.
type outcome struct{ Outcome, Path string }

// comparison says how the rules in the network namespace of the calling thread differ.
type comparison func(redirect.Ruleset) ([]redirect.Problem, error)

func withNFTables(rs redirect.Ruleset) ([]redirect.Problem, error) {
	return nftables.Verify(context.Background(), rs)
}

func withIptables(rs redirect.Ruleset) ([]redirect.Problem, error) {
	tables, err := iptables.Find(iptables.NFT)
	if err != nil {
		return nil, err
	}
	return tables.Verify(context.Background(), rs)
}

// cases lists what is compared. The others are measured against the first two.
func (n *node) cases() []testCase {
	ours := annotations(n.pods[0])
	return []testCase{
		{
			name: "an empty static program in Go", program: n.programs.empty, command: "ADD",
			passed: ours,
		},
		{
			name: "VERSION", program: n.programs.plugin, command: "VERSION", passed: ours,
		},
		{
			name: "pod not ours, told by the runtime", program: n.programs.plugin, command: "ADD",
			passed: unmeshed,
			want:   outcome{"skipped", "runtime"}, budget: 3,
		},
		{
			name: byFile, program: n.programs.plugin, command: "ADD", passed: ours,
			conf: map[string]any{"agentSocket": socketIn(n.run)},
			want: outcome{"redirected", "file"}, rules: withNFTables, budget: 3.6,
			turns: oftenTurns,
		},
		{
			name: byAgent, program: n.programs.plugin, command: "ADD", passed: ours,
			want: outcome{"redirected", "agent"}, rules: withNFTables, budget: 4.5,
			turns: oftenTurns,
		},
		{
			name: "ours, API server over TLS, nftables", program: n.programs.plugin, command: "ADD",
			passed: ours,
			conf:   map[string]any{"agentSocket": filepath.Join(n.state, "nobody.sock")},
			want:   outcome{"redirected", "api"}, rules: withNFTables, budget: 7.5,
		},
		{
			name: "ours, agent's cache, iptables-nft", program: n.programs.plugin, command: "ADD",
			passed: ours,
			conf:   map[string]any{"backend": "iptables-nft"},
			want:   outcome{"redirected", "agent"}, rules: withIptables, budget: 10,
		},
	}
}

// manyPods are started at once, as many as a kubelet runs on a node by default.
const manyPods = 110

// together are the cases of which many are started at once: then no core is idle that could do the
// agent's half.
func (n *node) together() (byFiles, byAgents testCase) {
	for _, c := range n.cases() {
		switch c.name {
		case byFile:
			byFiles = c
		case byAgent:
			byAgents = c
		}
	}
	return byFiles, byAgents
}
