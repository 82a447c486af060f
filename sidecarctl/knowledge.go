package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

// knowledge is what is known of the node of the pods that a command is about.
type knowledge struct {
	config  redirect.Config
	records []record.Record
	backend string   // of the plugin's configuration
	lacks   []string // what could not be learned, and why
}

// maxEntry is how much is read of a file with an entry.
const maxEntry = 1 << 20

// know learns what the cluster sets and what the node recorded: of --entry, of this node, or of the
// pods' node. Where nothing is to be asked, the cluster sets nothing.
func (e env) know(ctx context.Context, o *options, pods []target.Pod) (knowledge, error) {
	k := knowledge{config: redirect.Defaults()}
	switch {
	case o.entry != "":
		data, err := bounded.Named(o.entry, maxEntry)
		if err != nil {
			return k, unopened(err, "name by --entry a file that a node has in "+names.ConfDir)
		}
		entry, err := onnode.Entry(data)
		if err == nil {
			err = k.read(entry)
		}
		if err != nil {
			return k, fmt.Errorf("read %s: %w", o.entry, err)
		}
		return k, nil
	case o.cluster == nil && !o.here:
		return k, nil
	}
	facts, err := e.facts(ctx, o, pods)
	if err != nil {
		k.lacks = append(k.lacks, err.Error())
		return k, nil
	}
	k.records, k.lacks = facts.Records, facts.Unread
	if facts.Entry != nil {
		if err := k.read(facts.Entry); err != nil {
			k.lacks = append(k.lacks, fmt.Sprintf("read %s: %v", facts.File, err))
		}
	}
	return k, nil
}

// facts are read here if this node has one of the pods, else where the first one runs; of a
// template by any agent.
func (e env) facts(ctx context.Context, o *options, pods []target.Pod) (onnode.Facts, error) {
	var uids []string
	node := ""
	for _, pod := range pods {
		if pod.NodeUID != "" {
			uids = append(uids, pod.NodeUID)
		}
		if node == "" {
			node = pod.Node
		}
	}
	if o.here || e.root {
		facts := onnode.Read(e.dirs, uids)
		if o.here || len(facts.Records) > 0 {
			return facts, nil
		}
	}
	if o.kernel {
		return onnode.Facts{}, nil
	}
	agent, err := o.agents().On(ctx, node)
	if err != nil {
		return onnode.Facts{}, err
	}
	return agent.Facts(ctx, uids)
}

func (o *options) agents() onnode.Agents {
	return onnode.Agents{Client: o.cluster.Client, Config: o.cluster.Config,
		Namespace: o.agentNamespace}
}

// read reads an entry of the plugin.
func (k *knowledge) read(entry []byte) error {
	conf := netconf.Parse(entry)
	if wrong := slices.Concat(conf.Mistakes, conf.Unknown); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	k.config, k.backend = conf.Redirect, conf.Backend
	return nil
}

// recordsOf are those of a pod.
func (k knowledge) recordsOf(pod target.Pod) []record.Record {
	var its []record.Record
	for _, r := range k.records {
		if pod.NodeUID != "" && r.Pod.UID == pod.NodeUID {
			its = append(its, r)
		}
	}
	return its
}

// recordedOnly is the pod of a network namespace, of which there is no more than its record. What
// the cluster sets, and whether that was learned, does not matter: the record has what it came to.
func (k knowledge) recordedOnly(pod target.Pod) subject {
	s := subject{pod: pod, config: k.config, record: k.recorded(pod), records: k.recordsOf(pod),
		backend: k.backend}
	if s.record != nil {
		s.decision.Policy = s.record.Policy
	}
	return s
}

// recorded is the record of a pod's own network.
func (k knowledge) recorded(pod target.Pod) *record.Record {
	var found *record.Record
	its := k.recordsOf(pod)
	for i, r := range its {
		if found == nil || r.Interface == record.MainInterface {
			found = &its[i]
		}
	}
	return found
}

// factsCommand is what an agent is asked by.
func (e env) factsCommand() *cobra.Command {
	return &cobra.Command{
		Use: onnode.FactsVerb + " [UID...]", Hidden: true,
		Short: "what this node knows of pods, for this program elsewhere",
		RunE: func(_ *cobra.Command, uids []string) error {
			return json.NewEncoder(e.stdout).Encode(onnode.Read(e.dirs, uids))
		},
	}
}
