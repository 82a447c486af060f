package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// options are the flags that all commands have.
type options struct {
	file        string
	namespace   string
	kubeconfig  string
	context     string
	output      string
	entry       string
	nameservers []string
	podIPs      []string
}

// command is a verb about pods.
func (e env) command(use, short, about string, o *options) *cobra.Command {
	c := &cobra.Command{Use: use + " [TARGET]", Short: short, Long: about,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%d targets: want one, or --filename", len(args))
			}
			return nil
		}}
	f := c.Flags()
	f.StringVarP(&o.file, "filename", "f", "",
		"read pods, and whatever has a pod template, of a file in YAML or JSON; - is "+
			"standard input")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of a target that names none")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "how the API server is reached, as for kubectl")
	f.StringVar(&o.context, "context", "", "context of the kubeconfig")
	f.StringVarP(&o.output, "output", "o", string(view.Text), "text, json or yaml")
	f.StringVar(&o.entry, "entry", "",
		"file with the plugin's entry of a node, or the whole chain, for what the cluster sets")
	f.StringSliceVar(&o.nameservers, "nameserver", nil,
		"the pod's nameservers, which only the node knows")
	f.StringSliceVar(&o.podIPs, "pod-ip", nil, "the pod's addresses, where it has none yet")
	return c
}

// A subject is a pod that a command is about, and what is decided about it.
type subject struct {
	pod      target.Pod
	facts    redirect.Pod
	decision redirect.Decision
	mistake  error  // it would be refused for this
	unsaid   bool   // nobody knows its nameservers, and they matter
	class    string // its runtime class, if the handler matters, which is the cluster's to know
}

// subjects are the pods of the target or the file.
func (e env) subjects(ctx context.Context, o *options, args []string) ([]subject, redirect.Config,
	error) {
	cfg, err := o.config()
	if err != nil {
		return nil, cfg, err
	}
	servers, err := addresses("--nameserver", o.nameservers)
	if err != nil {
		return nil, cfg, err
	}
	ips, err := addresses("--pod-ip", o.podIPs)
	if err != nil {
		return nil, cfg, err
	}
	pods, err := e.pods(ctx, o, args)
	if err != nil {
		return nil, cfg, err
	}
	var all []subject
	for _, pod := range pods {
		if len(ips) > 0 {
			pod.IPs = ips
		}
		all = append(all, decide(pod, cfg, servers))
	}
	return all, cfg, nil
}

// decide decides about a pod. Of its nameservers those are known that it names itself, unless
// they are told.
func decide(pod target.Pod, cfg redirect.Config, servers []netip.Addr) subject {
	s := subject{pod: pod, facts: pod.Facts}
	s.facts.Nameservers = servers
	if len(servers) == 0 && pod.DNSPolicy == "None" {
		s.facts.Nameservers = pod.DNSServers
	}
	s.decision, s.mistake = redirect.Decide(s.facts, cfg)
	if s.mistake == nil && s.decision.AskHandler {
		s.class, s.facts.Spec.RuntimeClass = s.facts.Spec.RuntimeClass, ""
		s.decision, s.mistake = redirect.Decide(s.facts, cfg)
	}
	s.unsaid = slices.Contains(s.decision.Warnings, redirect.UnknownNameservers)
	return s
}

func (e env) pods(ctx context.Context, o *options, args []string) ([]target.Pod, error) {
	opts := target.Options{Namespace: o.namespace}
	switch {
	case o.file != "" && len(args) > 0:
		return nil, usagef("a target and --filename: want one of them")
	case o.file == "-":
		return target.FromFile(e.stdin, "standard input", opts)
	case o.file != "":
		file, err := os.Open(o.file)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return target.FromFile(file, o.file, opts)
	case len(args) == 0:
		return nil, usagef("want a target, as NAMESPACE/POD or deployment/NAME, or --filename")
	}
	client, namespace, err := target.Client(o.kubeconfig, o.context)
	if err != nil {
		return nil, err
	}
	opts.DefaultNamespace = namespace
	return target.FromCluster(ctx, client, args[0], opts)
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

// maxEntry is how much is read of an entry's file.
const maxEntry = 1 << 20

// config is what the cluster sets: what the entry says, else the defaults.
func (o *options) config() (redirect.Config, error) {
	if o.entry == "" {
		return redirect.Defaults(), nil
	}
	file, err := os.Open(o.entry)
	if err != nil {
		return redirect.Config{}, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxEntry))
	if err != nil {
		return redirect.Config{}, err
	}
	entry, err := entryIn(data)
	if err != nil {
		return redirect.Config{}, fmt.Errorf("read %s: %w", o.entry, err)
	}
	conf := netconf.Parse(entry)
	if wrong := slices.Concat(conf.Mistakes, conf.Unknown); len(wrong) > 0 {
		return redirect.Config{}, fmt.Errorf("read %s: %s", o.entry, strings.Join(wrong, "; "))
	}
	return conf.Redirect, nil
}

// entryIn returns our entry: the whole file, or the one of our type in a chain.
func entryIn(data []byte) ([]byte, error) {
	var list struct {
		Type    string            `json:"type"`
		Plugins []json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	if list.Type == names.Plugin {
		return data, nil
	}
	for _, one := range list.Plugins {
		var entry struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(one, &entry) == nil && entry.Type == names.Plugin {
			return one, nil
		}
	}
	return nil, errors.New("want a plugin of type " + names.Plugin + ", or a chain with one")
}

// answer writes what a command found, and says whether a pod is refused.
func (e env) answer(o *options, what view.Texter, refused bool) error {
	f := view.Format(o.output)
	if !slices.Contains(view.Formats, f) {
		return usagef("--output %q: want text, json or yaml", o.output)
	}
	if err := view.Show(e.stdout, f, e.colour, what); err != nil {
		return err
	}
	if refused {
		return errAmiss
	}
	return nil
}
