package main

import (
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/cluster"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

const clusterAbout = `Looks at all nodes through the API server alone: the DaemonSet, each node's
agent, condition and taint, what agents report in their metrics, the Events about nodes, and the
pods that wait for the plugin. A node is a row, or several, with a verdict and a remedy. What may
not be read is a row, too.

Nodes where all is well are only counted; --all lists them. Metrics are read through the API
server's proxy, which takes the right to get pods/proxy in the agents' namespace.`

func (e env) clusterCommand() *cobra.Command {
	var o options
	look := cluster.Options{}
	c := &cobra.Command{Use: "cluster", Short: "what the API server knows of all nodes",
		Long: clusterAbout, PreRunE: func(*cobra.Command, []string) error { return o.check() },
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("cluster %q: it takes no name; what is known of one node, "+
					"sidecarctl node says there", args[0])
			}
			return nil
		}}
	f := c.Flags()
	o.reach(c)
	f.StringVarP(&o.output, "output", "o", string(view.Text), "text, json or yaml")
	f.BoolVar(&look.All, "all", false, "list the nodes where all is well, too")
	c.RunE = func(c *cobra.Command, _ []string) error {
		look.Namespace = o.agentNamespace
		if n := look.Namespace; n != "" && len(validation.IsDNS1123Label(n)) > 0 {
			return usagef("--agent-namespace %q: want the name of a namespace", n)
		}
		if err := o.connect(); err != nil {
			return err
		}
		look.Now = time.Now()
		report, err := cluster.Look(c.Context(), o.cluster.Client, look)
		if err != nil {
			return err
		}
		return e.answer(&o, report, report.Wrong())
	}
	return c
}
