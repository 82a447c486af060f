package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
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

// verb carries out one of CNI's commands. Beside an error too, the outcome says how far it came.
type verb func(context.Context, call, deps) (outcome, error)

// call is what the runtime said.
type call struct {
	began      time.Time
	command    string
	netns      string
	attachment record.Attachment
	pod        podsource.Ref
	conf       netconf.Conf
}

// deps is what a verb works with.
type deps struct {
	sources podsource.Sources
	records record.Dir
	log     *zap.Logger // of calls for any pod
	logOurs *zap.Logger // of calls for pods that are or may be ours: the log file gets it too
}

// outcome is what became of a call, for the runtime and for those who look after the node.
type outcome struct {
	answer   []byte // for the runtime, if nothing fails; only ADD has one
	message  string // of the log, in the past tense
	word     string
	reason   string
	path     string // which source answered what the pod is
	stale    string // why that was a file that is not fresh; "" if it was not
	uid      string // of the pod that it found
	backend  string
	problems []redirect.Problem
	warnings []string
	notices  []string // for whoever runs the pod
	phases   map[string]time.Duration
	asked    bool // others were asked about the pod
	ours     bool // it is ours, or that is not known
}

// took notes how long a phase was that ends now.
func (o *outcome) took(phase string, began time.Time) {
	if o.phases == nil {
		o.phases = map[string]time.Duration{}
	}
	o.phases[phase] = time.Since(began)
}

// skip notes that the pod is left alone.
func (o *outcome) skip(why redirect.Skip) {
	o.message, o.word, o.reason = "skipped pod", "skipped", string(why)
}

// podName is how people write the pod.
func (c call) podName() string {
	if c.pod.Name == "" {
		return ""
	}
	return c.pod.Namespace + "/" + c.pod.Name
}

// verb makes a verb of the plugin what skel calls.
func (p *plugin) verb(command string, do verb) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		p.called = true
		// skel would open the namespace when all is done, even that of a pod that is not ours. We
		// have looked before.
		args.NetnsOverride = "true"
		c := call{
			began:      time.Now(),
			command:    command,
			netns:      args.Netns,
			attachment: record.Attachment{Container: args.ContainerID, Interface: args.IfName},
			pod:        parseArgs(args.Args),
		}
		d, o := p.deps(c.conf), outcome{}
		err := guard(p.stderr, func() (err error) {
			c.conf = netconf.Parse(args.StdinData)
			d = p.deps(c.conf)
			parsed := time.Since(c.began)
			ctx, cancel := context.WithDeadline(context.Background(), c.began.Add(c.conf.Deadline))
			defer cancel()
			o, err = do(ctx, c, d)
			o.took("parse", time.Now().Add(-parsed))
			return err
		})
		if p.version = c.conf.Version; err == nil {
			p.answer = o.answer
		}
		return finish(c, d, o, err)
	}
}

func (p *plugin) deps(conf netconf.Conf) deps {
	log := newLogger(p.stderr, conf.LogLevel, "")
	d := deps{
		sources: podsource.Sources{AgentSocket: conf.AgentSocket, Kubeconfig: conf.Kubeconfig,
			PodFiles: filepath.Dir(conf.AgentSocket)},
		records: record.Dir(conf.StateDir), log: log, logOurs: log,
	}
	if conf.LogFile != "" {
		d.logOurs = newLogger(p.stderr, conf.LogLevel, conf.LogFile)
	}
	return d
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

// finish reports to the log and to the agent how a call ended, and returns the answer to the
// runtime.
func finish(c call, d deps, o outcome, err error) error {
	var refusal error
	var message string
	if err != nil {
		f := classify(err)
		o.message, o.word, o.reason, o.ours = "refused call", protocol.Failed, f.word, true
		refusal, message = f.result(), f.text()
	}
	logOutcome(d, c, o, err)
	if c.podName() == "" || !o.asked && !o.ours {
		return refusal
	}
	report := protocol.Outcome{
		Command: c.command, Namespace: c.pod.Namespace, Name: c.pod.Name,
		UID:     cmp.Or(o.uid, c.pod.UID),
		Outcome: o.word, Reason: o.reason, Source: o.path, Message: cmp.Or(message, o.stale),
		Notices: o.notices, Phases: map[string]float64{},
	}
	for phase, took := range o.phases {
		report.Phases[phase] = took.Seconds()
	}
	d.sources.Report(report)
	return refusal
}
