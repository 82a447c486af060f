package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/plugin/podsource"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// plugin answers one call.
type plugin struct {
	stderr  io.Writer
	called  bool   // a verb was reached
	version string // of the protocol
	answer  []byte // for standard output, if skel agrees
}

// call is a call for a verb: what the runtime wants, and what becomes of it.
type call struct {
	command    string
	netns      string
	attachment record.Attachment
	pod        podsource.Ref
	netconf.Conf
	stderr io.Writer
	log    *zap.Logger

	answer  []byte
	outcome outcome
}

// outcome is what a call comes to, for those who look after the node.
type outcome struct {
	message  string // of the log, in the past tense
	word     string
	reason   string
	path     string // which source answered what the pod is
	backend  string
	problems []redirect.Problem
	notices  []string // for whoever runs the pod
	phases   map[string]time.Duration
	asked    bool // others were asked about the pod
	ours     bool // or may be
}

// verb is one of CNI's commands.
type verb func(context.Context, *call) error

// verb makes a verb of the plugin what skel calls.
func (p *plugin) verb(command string, do verb) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		began := time.Now()
		p.called = true
		// skel would open the namespace when all is done, even that of a pod that is not ours. We
		// have looked before.
		args.NetnsOverride = "true"
		c := &call{
			command:    command,
			netns:      args.Netns,
			attachment: record.Attachment{Container: args.ContainerID, Interface: args.IfName},
			pod:        parseArgs(args.Args),
			stderr:     p.stderr,
			log:        newLogger(p.stderr, ""),
			outcome:    outcome{phases: map[string]time.Duration{}},
		}
		err := guard(p.stderr, func() error {
			c.Conf = netconf.Parse(args.StdinData)
			c.log = newLogger(p.stderr, c.LogLevel)
			c.took("parse", began)
			ctx, cancel := context.WithDeadline(context.Background(), began.Add(c.Deadline))
			defer cancel()
			return do(ctx, c)
		})
		p.version, p.answer = c.Version, c.answer
		return c.finish(began, err)
	}
}

// guard calls a function. A panic of it becomes an error, since the runtime is owed an answer that
// it can read, and its stack goes to standard error.
func guard(stderr io.Writer, do func() error) error {
	err := podns.Guard(do)
	if p, ok := errors.AsType[*podns.Panic](err); ok {
		fmt.Fprintf(stderr, "%v\n%s", p, p.Stack)
	}
	return err
}

// claim notes that the pod is ours, or that nobody could tell. From here on the log file gets what
// is logged.
func (c *call) claim() {
	if !c.outcome.ours {
		c.outcome.ours = true
		c.logToFile()
	}
}

// took notes how long a phase was that ends now.
func (c *call) took(phase string, began time.Time) { c.outcome.phases[phase] = time.Since(began) }

func (c *call) sources() podsource.Sources {
	return podsource.Sources{AgentSocket: c.AgentSocket, Kubeconfig: c.Kubeconfig}
}

func (c *call) records() record.Dir { return record.Dir(c.StateDir) }

// podName is how people write a pod.
func (c *call) podName() string {
	if c.pod.Name == "" {
		return ""
	}
	return c.pod.Namespace + "/" + c.pod.Name
}

// finish reports to the log and to the agent how the call ended, and returns the answer to the
// runtime.
func (c *call) finish(began time.Time, err error) error {
	report := protocol.Outcome{
		Command: c.command, Namespace: c.pod.Namespace, Name: c.pod.Name, UID: c.pod.UID, Phases: map[string]float64{},
	}
	for phase, took := range c.outcome.phases {
		report.Phases[phase] = took.Seconds()
	}
	var refusal error
	if err != nil {
		c.claim()
		f := classify(err)
		c.outcome.message, c.outcome.word, c.outcome.reason = "refused call", protocol.Failed, f.word
		refusal, report.Message = f.result(), f.text()
	}
	c.logOutcome(began, err)
	report.Outcome, report.Reason, report.Notices = c.outcome.word, c.outcome.reason, c.outcome.notices
	if c.podName() != "" && (c.outcome.asked || c.outcome.ours) {
		c.sources().Report(report)
	}
	return refusal
}
