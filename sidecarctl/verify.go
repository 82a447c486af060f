package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verify"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

const verifyAbout = `Says whether pods that run are redirected as they should be: whether their rules, routes and
addresses are those that were recorded, who listens where the rules lead to, as whom, and which
processes the rules take for the proxy. It looks into the pods' network namespaces: as root on
their node, else by the node's agent.

With --node all pods of a node are verified that have a sidecar, of this machine or of the one
that is named; with -A those of all nodes. On a node from which the API server is not reached,
those are verified that were recorded there.`

// verifyFlags say which pods are verified.
type verifyFlags struct {
	node string // "" is none
	all  bool
}

func (e env) verifyCommand() *cobra.Command {
	var o options
	var v verifyFlags
	c := e.command("verify", "whether pods that run are redirected as they should be",
		verifyAbout, &o)
	f := c.Flags()
	f.StringVar(&v.node, "node", "", "all pods of this node, or of the one that is named")
	f.Lookup("node").NoOptDefVal = thisNode
	f.BoolVarP(&v.all, "all-namespaces", "A", false, "all pods of the cluster")
	o.placeFlags(c)
	o.kernel = true
	c.RunE = func(c *cobra.Command, args []string) error {
		subjects, err := e.verified(c.Context(), &o, v, args)
		if err != nil {
			return err
		}
		answers, err := e.verify(c, &o, v, subjects)
		if err != nil {
			return err
		}
		return e.answer(&o, answers, answers.Amiss())
	}
	return c
}

// thisNode stands for the name of the machine that this runs on.
const thisNode = "."

// verified are the pods that the flags and the arguments name.
func (e env) verified(ctx context.Context, o *options, v verifyFlags,
	args []string) ([]subject, error) {
	switch {
	case v.all && v.node != "":
		return nil, usagef("--node and -A: want one of them")
	case v.node == thisNode && len(args) == 1: // --node NAME
		v.node, args = args[0], nil
	case v.node == thisNode && (len(args) > 0 || o.file != "" || o.path() != ""):
	case v.node == thisNode:
		return e.verifiedHere(ctx, o)
	}
	if !v.all && v.node == "" {
		if len(args) == 0 && o.file == "" && o.path() == "" {
			return nil, usagef("want a target, as NAMESPACE/POD or deployment/NAME, or " +
				"--filename, --node or -A")
		}
		return e.subjects(ctx, o, args)
	}
	if len(args) > 0 || o.file != "" || o.path() != "" {
		return nil, usagef("a target, --node and -A: want one of them")
	}
	return e.listed(ctx, o, v.node)
}

// verifiedHere are the pods of this machine: as the API server has them, else as they were
// recorded.
func (e env) verifiedHere(ctx context.Context, o *options) ([]subject, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	subjects, unreached := e.listed(ctx, o, strings.ToLower(name))
	if unreached == nil || !e.root || here() != nil || o.kubeconfig != "" || o.context != "" {
		return subjects, unreached
	}
	o.cluster, o.here = nil, true
	if subjects, err = e.recordedHere(ctx, o); err != nil {
		return nil, errors.Join(unreached, err)
	}
	fmt.Fprintf(e.stderr, "sidecarctl: %s; verified are the pods that were recorded here, %d: one "+
		"that never was is not among them\n", view.Clean(oneLine(unreached)), len(subjects))
	return subjects, nil
}

// listed are the pods of a node that have a sidecar; of all nodes without a name.
func (e env) listed(ctx context.Context, o *options, node string) ([]subject, error) {
	if err := o.connect(); err != nil {
		return nil, err
	}
	pods, err := target.OnNodes(ctx, o.cluster.Client, target.Selection{Node: node,
		Namespace: o.namespace})
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 && node != "" {
		return nil, fmt.Errorf("no pod runs on node %q: see by kubectl get nodes how it is called",
			node)
	}
	k, err := e.know(ctx, o, pods)
	if err != nil {
		return nil, err
	}
	var subjects []subject
	for _, pod := range pods {
		if pod.Unread != nil {
			subjects = append(subjects, subject{pod: pod})
			continue
		}
		if s := k.decide(pod, nil); s.record != nil || s.facts.NeedsRedirection() {
			subjects = append(subjects, s)
		}
	}
	return subjects, nil
}

// verify looks at pods. One of several that cannot be looked at does not keep the others' answers.
func (e env) verify(c *cobra.Command, o *options, v verifyFlags,
	subjects []subject) (verify.Answers, error) {
	all := verify.Answers{}
	var running []subject
	for _, s := range subjects {
		switch p := s.pod.Phase; {
		case p == "Succeeded" || p == "Failed":
			all = append(all, verify.NotOurs(s.pod.Name, "it has ended"))
		case s.pod.Unread != nil:
			answer := verify.NotReached(s.pod.Name, s.pod.Unread, nil)
			if v.all {
				answer.Node = s.pod.Node
			}
			all = append(all, answer)
		default:
			running = append(running, s)
		}
	}
	for _, one := range ask(c.Context(), e, question[verify.Answer]{command: c, options: o,
		here: verifyHere, pod: func(a verify.Answer) string { return a.Pod }}, running) {
		answer := one.value
		switch {
		case one.subject.pod.HostNetwork:
			answer = verify.NotOurs(one.subject.pod.Name, "it is in the host's network")
		case one.err != nil && (c.Context().Err() != nil || len(subjects) == 1 && !o.here):
			return nil, one.err
		case one.err != nil:
			answer = verify.NotReached(one.subject.pod.Name, one.err, lacksHere(o))
		}
		if v.all {
			answer.Node = one.subject.pod.Node
		}
		all = append(all, answer)
	}
	return all, nil
}

// recordedHere are the pods that were recorded on this node.
func (e env) recordedHere(ctx context.Context, o *options) ([]subject, error) {
	pods, err := e.podsRecorded()
	if err != nil {
		return nil, err
	}
	k, err := e.know(ctx, o, pods)
	if err != nil {
		return nil, err
	}
	var subjects []subject
	for _, pod := range pods {
		subjects = append(subjects, k.recordedOnly(pod))
	}
	return subjects, nil
}

// proxyID is the id of the proxy's container; "" if the pod does not say it.
func (s subject) proxyID() string {
	for _, c := range s.pod.Containers {
		if c.Name == redirect.ProxyContainer {
			return c.ID
		}
	}
	return ""
}
