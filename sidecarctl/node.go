package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/installer/platforms"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/node"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

const nodeAbout = `Looks at the node that it runs on, as root, or by its agent at the one that is named: the kernel's features by module and backend, what the
container runtime has loaded, the CNI configuration and who else writes it, the plugin, its
credentials and their age, the agent and its socket, the clock, the versions. Each is a row with a
verdict, and with a remedy where there is something to be done.

With --preflight it says before an installation whether the node has what the plugin needs.

It changes nothing and loads no kernel module. A backend is tried out, in a network namespace of its
own, where that loads none: where its modules are loaded or built in, or the agent has tried it
before. With --probe it is tried out in any case.`

func (e env) nodeCommand() *cobra.Command {
	var o options
	look := node.Options{Root: "/", Version: version()}
	c := &cobra.Command{Use: "node [NODE]", Short: "what a node has and lacks", Long: nodeAbout,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%d nodes: want one, or none for this machine", len(args))
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error { return o.check() }}
	o.reach(c)
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", string(view.Text), "text, json or yaml")
	f.BoolVar(&look.Preflight, "preflight", false,
		"before an installation: only what the node has to have")
	f.BoolVar(&look.Probe, "probe", false,
		"try backends out even if the kernel loads modules for that")
	f.StringVar(&look.Backend, "backend", "", "judge by this backend: nftables, iptables-nft or "+
		"iptables-legacy; the configured one by default")
	f.StringVar(&look.Platform, "platform", "", "kind of cluster, as the chart's value")
	f.StringVar(&look.ConfDir, "conf-dir", "", "directory of the CNI configuration")
	f.StringVar(&look.BinDir, "bin-dir", "", "directory of the CNI plugins")
	f.StringVar(&look.RunDir, "run-dir", "", "directory of the agent's socket and the records")
	f.StringVar(&look.Socket, "runtime-socket", "", "CRI socket of the container runtime")
	f.StringVar(&look.NRI, "nri-socket", "", "NRI socket of the container runtime")
	c.RunE = func(c *cobra.Command, args []string) error {
		if _, ok := platforms.Named(look.Platform); !ok && look.Platform != "" {
			return usagef("--platform %q: want one of %s", look.Platform, platformNames())
		}
		if look.Backend != "" && !slices.Contains(redirect.Backends, look.Backend) {
			return usagef("--backend %q: want one of %s", look.Backend,
				strings.Join(redirect.Backends, ", "))
		}
		look.Now = time.Now()
		var report node.Report
		var err error
		if len(args) > 0 {
			report, err = askNode(c, &o, args[0])
		} else {
			report, err = lookAtNode(c.Context(), look)
		}
		if err != nil {
			return err
		}
		return e.answer(&o, report, report.Wrong())
	}
	return c
}

// askNode has the agent of a node look, where it has been told that things are.
func askNode(c *cobra.Command, o *options, name string) (node.Report, error) {
	if err := o.connect(); err != nil {
		return node.Report{}, err
	}
	agent, err := o.agents().On(c.Context(), name)
	if err != nil {
		return node.Report{}, err
	}
	args := passedOn(c, agent)
	for _, flag := range []string{"platform", "conf-dir", "bin-dir", "runtime-socket",
		"nri-socket"} {
		if told := agent.Told(flag); told != "" && !c.Flags().Changed(flag) {
			args = append(args, "--"+flag+"="+told)
		}
	}
	report, _, err := onnode.Ask[node.Report](c.Context(), agent, onnode.Call{Args: args})
	return report, err
}

func platformNames() string {
	var names []string
	for _, p := range platforms.All {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}
