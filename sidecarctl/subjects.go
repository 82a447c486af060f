package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// options are the flags that all commands about pods have.
type options struct {
	file           string
	stdinBytes     int64 // of standard input that are the file; -1 is all
	namespace      string
	kubeconfig     string
	context        string
	agentNamespace string
	output         string
	entry          string
	nameservers    []string
	podIPs         []string

	pid      int    // whose network namespace is meant
	netns    string // its path
	hostRoot string // where an agent has the host's root directory; "" if nowhere

	cluster *target.Cluster // where the target is; nil of a file's pods
	here    bool            // this runs on the pods' node
	kernel  bool            // a kernel is asked: there everything else is known, too
}

// command is a verb about pods.
func (e env) command(use, short, about string, o *options) *cobra.Command {
	c := &cobra.Command{Use: use + " [TARGET]", Short: short, Long: about,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%d targets: want one, or --filename", len(args))
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error { return o.check() }}
	f := c.Flags()
	f.StringVarP(&o.file, "filename", "f", "",
		"read pods, and whatever has a pod template, of a file in YAML or JSON; - is "+
			"standard input")
	f.Int64Var(&o.stdinBytes, onnode.StdinFlag, -1, "how much of standard input is the file")
	_ = f.MarkHidden(onnode.StdinFlag) // it is there
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of a target that names none")
	o.reach(c)
	f.StringVarP(&o.output, "output", "o", string(view.Text), "text, json or yaml")
	f.StringVar(&o.entry, "entry", "",
		"file with the plugin's entry of a node, or the whole chain, for what the cluster sets")
	f.StringSliceVar(&o.nameservers, "nameserver", nil,
		"the pod's nameservers, which only the node knows")
	complete(c, "output", string(view.Text), string(view.JSON), string(view.YAML))
	f.StringSliceVar(&o.podIPs, "pod-ip", nil, "the pod's addresses, where it has none yet")
	return c
}

// check refuses what no answer can be written as, before anything is asked.
func (o *options) check() error {
	if err := view.Known(view.Format(o.output)); err != nil {
		return &usageError{err}
	}
	return nil
}

// reach adds the flags about how the cluster is reached.
func (o *options) reach(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "how the API server is reached, as for kubectl")
	f.StringVar(&o.context, "context", "", "context of the kubeconfig")
	f.StringVar(&o.agentNamespace, "agent-namespace", "",
		"namespace of the agents, for users who may not list pods in all namespaces")
}

// connect reaches the cluster.
func (o *options) connect() error {
	if o.cluster != nil {
		return nil
	}
	cluster, err := target.Connect(o.kubeconfig, o.context)
	if err == nil {
		o.cluster = &cluster
	}
	return err
}

// A subject is a pod that a command is about, and what is decided about it.
type subject struct {
	pod      target.Pod
	facts    redirect.Pod
	config   redirect.Config // what the cluster sets
	decision redirect.Decision
	mistake  error           // it would be refused for this
	record   *record.Record  // what was programmed when it started; nil if nobody knows
	records  []record.Record // of its networks, that one among them
	backend  string          // what programs the node's rules; "" if nobody knows
	lacks    []string        // what could not be learned of its node, and why
	unsaid   bool            // nobody knows its nameservers, and they matter
	class    string          // its runtime class, if its handler matters and is not known
}

// has is what the rules of a pod are compiled from: what it started with, else what it asks for.
func (s subject) has() redirect.Policy {
	if s.record != nil {
		return s.record.Policy
	}
	return s.decision.Policy
}

// redirected reports whether there is anything to say about the pod's rules.
func (s subject) redirected(outcome string) bool {
	return s.record != nil || outcome == isRedirected
}

// subjects are the pods of the target or the file.
func (e env) subjects(ctx context.Context, o *options, args []string) ([]subject, error) {
	servers, err := addresses("--nameserver", o.nameservers)
	if err != nil {
		return nil, err
	}
	ips, err := addresses("--pod-ip", o.podIPs)
	if err != nil {
		return nil, err
	}
	pods, err := e.pods(ctx, o, args)
	if err != nil {
		return nil, err
	}
	k, err := e.know(ctx, o, pods)
	if err != nil {
		return nil, err
	}
	var all []subject
	for _, pod := range pods {
		if len(ips) > 0 {
			pod.IPs = ips
		}
		if pod.Facts.Spec == nil { // a network namespace's: the record alone says what it has
			all = append(all, k.recordedOnly(pod))
			continue
		}
		all = append(all, k.decide(pod, servers))
	}
	return all, nil
}

// decide decides about a pod. Its nameservers are those that are given, that the runtime passed
// when it started, or that it names itself.
func (k knowledge) decide(pod target.Pod, servers []netip.Addr) subject {
	s := subject{pod: pod, facts: pod.Facts, config: k.config, record: k.recorded(pod),
		records: k.recordsOf(pod), backend: k.backend, lacks: k.lacks}
	s.facts.Nameservers = servers
	switch {
	case len(servers) > 0:
	case s.record != nil:
		s.facts.Nameservers = s.record.Policy.DNS.Servers
	case pod.DNSPolicy == "None":
		s.facts.Nameservers = pod.DNSServers
	}
	s.decision, s.mistake = redirect.Decide(s.facts, k.config)
	if s.mistake == nil && s.decision.AskHandler {
		s.class, s.facts.Spec.RuntimeClass = s.facts.Spec.RuntimeClass, ""
		s.decision, s.mistake = redirect.Decide(s.facts, k.config)
	}
	s.unsaid = s.record == nil &&
		slices.Contains(s.decision.Warnings, redirect.UnknownNameservers)
	return s
}

func (e env) pods(ctx context.Context, o *options, args []string) ([]target.Pod, error) {
	opts := target.Options{Namespace: o.namespace}
	switch {
	case o.file != "" && len(args) > 0:
		return nil, usagef("a target and --filename: want one of them")
	case o.file == "-" && o.stdinBytes >= 0:
		o.here = true
		pods, err := target.FromFile(io.LimitReader(e.stdin, o.stdinBytes), "standard input", opts)
		go func() { // whoever asked has gone when the rest ends
			_, _ = io.Copy(io.Discard, e.stdin)
			e.cancel()
		}()
		return pods, err
	case o.file == "-":
		return target.FromFile(e.stdin, "standard input", opts)
	case o.file != "":
		file, err := os.Open(o.file)
		if err != nil {
			return nil, unopened(err, "name a manifest by --filename, or - for standard input")
		}
		defer file.Close()
		return target.FromFile(file, o.file, opts)
	case len(args) == 0 && o.path() != "":
		pod, err := e.podAt(o)
		o.here = true
		return []target.Pod{pod}, err
	case len(args) == 0:
		return nil, usagef("want a target, as NAMESPACE/POD or deployment/NAME, or --filename")
	}
	err := o.connect()
	if errors.Is(err, target.ErrNoKubeconfig) {
		err = fmt.Errorf("%w, or name a manifest instead, by --filename", err)
	}
	if err != nil {
		return nil, err
	}
	opts.DefaultNamespace = o.cluster.DefaultNamespace
	return target.FromCluster(ctx, o.cluster.Client, args[0], opts)
}

// unopened is the error of a file that a flag names.
func unopened(err error, remedy string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}

func addresses(flag string, texts []string) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return nil, usagef("%s %q: want an address such as 10.96.0.10 or fd00::a", flag, text)
		}
		all = append(all, a.Unmap())
	}
	return all, nil
}

// answer writes what a command found, and says whether a pod is refused.
func (e env) answer(o *options, what view.Texter, refused bool) error {
	if err := view.Show(e.stdout, view.Format(o.output), e.colour, what); err != nil {
		return err
	}
	if refused {
		return errAmiss
	}
	return nil
}
