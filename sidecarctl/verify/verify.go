// Package verify says whether a pod that runs is redirected as it should be: whether its rules,
// routes and addresses are those that were recorded, who listens where they lead to, and who sends
// what the rules take for the proxy's own.
//
//	answer := verify.Look(ctx, verify.Question{Name: "shop/web-0", Place: place, Pod: pod, Auditor: auditor, Proc: "/proc"})
//	if answer.Amiss() { ... }
//	err := view.Show(os.Stdout, view.Text, false, verify.Answers{answer})
//
// Look is for Linux alone; an answer can be read and shown anywhere.
//
// Be aware:
//   - An answer is of one moment. A proxy that is about to start does not listen yet.
//   - What cannot be looked at, for want of a right or of a part of the kernel, is among Lacks. An
//     answer without findings, and with Lacks, is no proof.
package verify

import (
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
)

// Answers are about several pods.
type Answers []Answer

// Amiss reports whether a pod is not as it should be.
func (all Answers) Amiss() bool { return slices.ContainsFunc(all, Answer.Amiss) }

// Answer is about one pod.
type Answer struct {
	Pod  string `json:"pod"`            // for people: shop/web-0
	Node string `json:"node,omitempty"` // that it runs on, where several were asked

	// What its rules are, as the agent's repair judges. Left out of a pod that is not ours.
	Rules *audit.Judgement `json:"rules,omitempty"`

	Because  string `json:"because,omitempty"`  // of a pod that is not ours: why
	Backend  string `json:"backend,omitempty"`  // that wrote the rules, if a record says it
	Recorded bool   `json:"recorded,omitempty"` // a record says what its rules should be

	Ports    []Port    `json:"ports,omitempty"`    // where the rules lead to
	Findings []Finding `json:"findings,omitempty"` // what is or may be wrong
	Lacks    []string  `json:"lacks,omitempty"`    // what was not looked at, and what that takes
}

// Port is one on which the proxy should listen.
type Port struct {
	Number   uint16 `json:"port"`     // where rules lead to, or peers call
	Protocol string `json:"protocol"` // TCP or UDP
	For      string `json:"for"`      // outbound, inbound, DNS or tunnel

	Listeners []Listener `json:"listeners,omitempty"` // none: nobody listens
	Unheard   []string   `json:"unheard,omitempty"`   // where packets arrive, and nobody listens
	Effect    string     `json:"effect,omitempty"`    // what comes of it where nobody does

	// The rules hand packets over by TPROXY: to a transparent listener only.
	Transparent bool `json:"transparent,omitempty"`
}

// Listener is a socket that receives what is sent to a port.
type Listener struct {
	Address string `json:"address"` // 0.0.0.0 or :: is any
	UID     uint32 `json:"uid"`     // of its owner, as the pod has it

	// Takes connections to addresses that are not the pod's, as TPROXY wants. Left out if the
	// kernel is too old to say.
	Transparent *bool `json:"transparent,omitempty"`

	// Who has the socket, if the pod's processes are seen.
	Process *Process `json:"process,omitempty"`
}

// Process is one of a pod.
type Process struct {
	PID       int    `json:"pid"`                 // on the node
	Name      string `json:"name"`                // as it calls itself
	Container string `json:"container,omitempty"` // the id of its container, if its cgroup says it
	UID       uint32 `json:"uid"`                 // the effective one, as the pod has it
	GID       uint32 `json:"gid"`                 // the effective one, as the pod has it
}

// Kind says what a finding is about.
type Kind string

// The kinds of findings.
const (
	AboutRules     Kind = "rules"     // they are not what they should be
	AboutListener  Kind = "listener"  // nobody listens where they lead to, or not as they want it
	AboutLoop      Kind = "loop"      // what the proxy sends comes back to it
	AboutProcess   Kind = "process"   // what a process sends counts as the proxy's
	AboutNamespace Kind = "namespace" // it was not found, or may be another's
)

// Finding is something that is, or may be, wrong.
type Finding struct {
	Wrong  bool   `json:"wrong"`            // the pod is not as it should be
	Kind   Kind   `json:"kind"`             // rules, listener, loop, process or namespace
	Port   uint16 `json:"port,omitempty"`   // of kind listener
	What   string `json:"what"`             // a sentence
	Remedy string `json:"remedy,omitempty"` // what to do

	// Of kinds process and loop, if it is seen.
	Process *Process `json:"process,omitempty"`
}

// Amiss reports whether the pod is not as it should be.
func (a Answer) Amiss() bool {
	return slices.ContainsFunc(a.Findings, func(f Finding) bool { return f.Wrong })
}

// NotOurs is the answer about a pod that is none of ours.
func NotOurs(pod, because string) Answer { return Answer{Pod: pod, Because: because} }

// NotReached is the answer about a pod whose namespace was not found or not entered. The lacks are
// what the attempt would have taken, from Lacks.
func NotReached(pod string, err error, lacks []string) Answer {
	a := Answer{Pod: pod, Lacks: lacks, Rules: &audit.Judgement{Finding: audit.Unreachable,
		Why: strings.TrimPrefix(oneLine(err), pod+": ")}}
	a.unreachable()
	return a
}

// unreachable adds what is to be said of a pod that was not looked into.
func (a *Answer) unreachable() {
	f := ofRules(*a.Rules)
	if len(a.Lacks) > 0 {
		f[0].Remedy = "run this as root on the node, or in an agent, which has what is lacked " +
			"here with any repair.mode but off: set it to report"
	}
	a.Findings = f
}
