// Package node says what a node has and lacks for pods to start redirected: of its kernel, its
// container runtime, its CNI configuration, and of what the agent has put there.
//
//	report := node.Look(ctx, node.Options{Root: "/", Now: time.Now()})
//	for _, row := range report.Rows { ... }
//
// Be aware:
//   - It reads, and asks the runtime, the agent and the API server. What may load a kernel module
//     is left out unless Options.Probe says otherwise.
//   - It is run as root on the node, or in the agent's container, which sees less: what is not
//     mounted there is a row with the verdict unknown.
package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// Options say where to look. What is empty is found out: by the agent's command line, by what it
// has left in the run directory, by the runtime.
type Options struct {
	Preflight bool // nothing is installed yet: only what the node has to have
	Probe     bool // backends are tried out even if that loads kernel modules

	Root     string    // where the node's files are: "/", or "" for the same
	Platform string    // a name of package platforms
	ConfDir  string    // of the CNI configuration that the runtime reads
	BinDir   string    // of the CNI plugins that the runtime runs
	RunDir   string    // of the agent's socket and the plugin's records
	Socket   string    // of the runtime, for CRI
	NRI      string    // of the runtime, for NRI
	Backend  string    // what shall program the rules; "" is the configured one
	Version  string    // of this program
	Now      time.Time // by the node's clock
}

// Report is what was found on a node.
type Report struct {
	Node      string        `json:"node"`                // its name, else its host name
	Preflight bool          `json:"preflight,omitempty"` // nothing has to be installed yet
	Rows      []verdict.Row `json:"rows"`                // a thing each
	Modules   []Module      `json:"modules,omitempty"`   // of the kernel
}

// Module is a module of the kernel that rules may need.
type Module struct {
	Name     string   `json:"name"`     // as in /proc/modules
	State    State    `json:"state"`    // loaded, built in, loadable, blocked, absent or unknown
	For      string   `json:"for"`      // the feature that needs it
	Backends []string `json:"backends"` // those that need it
}

// State is where a module of the kernel is.
type State string

// The states.
const (
	Loaded   State = "loaded"
	BuiltIn  State = "built in"
	Loadable State = "loadable" // it is on the disk, and is loaded when it is needed
	Blocked  State = "blocked"  // it is on the disk, and may not be loaded
	Absent   State = "absent"   // it is not there
	Unseen   State = "unknown"  // nothing tells
)

// Wrong reports whether something keeps pods from starting redirected.
func (r Report) Wrong() bool { return verdict.Count(r.Rows, verdict.Wrong) > 0 }

// Text writes the report for people.
func (r Report) Text(p *view.Page) {
	wrong := verdict.Count(r.Rows, verdict.Wrong)
	warnings := verdict.Count(r.Rows, verdict.Warning)
	unknown := verdict.Count(r.Rows, verdict.Unknown)
	summary := fmt.Sprintf("%s: %d wrong, %d to look after, %d unknown", r.Node, wrong, warnings,
		unknown)
	switch {
	case wrong > 0:
		p.Wrong(0, summary)
	case warnings+unknown > 0:
		p.Odd(0, summary)
	case r.Preflight:
		p.Heading(r.Node + ": fit for the plugin")
	default:
		p.Heading(r.Node + ": all is well")
	}
	verdict.Text(p, r.Rows)
	if len(r.Modules) == 0 {
		return
	}
	p.Blank()
	p.Heading("Kernel modules that rules may need")
	var rows [][]string
	for _, m := range r.Modules {
		rows = append(rows, []string{m.Name, string(m.State),
			m.For + " (" + strings.Join(m.Backends, ", ") + ")"})
	}
	p.Table(2, rows)
}
