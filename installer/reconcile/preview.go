package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// Print writes what a pass would do, for people. Its error says why that would not be enough.
func (p Outcome) Print(out io.Writer) error {
	if p.Now.Why == Uninstalled {
		fmt.Fprintf(out, "no change: %s\n", p.Now.Text)
		return nil
	}
	where, probed := p.Seen.Known.Where, p.Seen.Known.Probed
	if probed.Backend != "" {
		fmt.Fprintf(out, "platform %s (%s), backend %s\n", where.Platform.Name, where.Evidence,
			probed.Backend)
	}
	for _, warning := range probed.Warnings {
		fmt.Fprintf(out, "warning: backend %s has %s\n", probed.Backend, warning)
	}
	if p.Work.Plugin != nil {
		p.Work.Plugin.preview(out)
		fmt.Fprintf(out, "%s: kubeconfig, token and ca.crt are kept up to date\n",
			where.Credentials.Dir)
	}
	if p.Work.Enter == nil {
		return errors.New(p.Now.Text)
	}
	printPlan(out, where.Conf, p.Work.Enter.Plan, p.Seen.Conf.Files)
	if plan := p.Work.Enter.Multus; plan != nil {
		printPlan(out, where.Multus, *plan, p.Seen.Multus.Files)
	}
	return nil
}

func (b Copy) preview(out io.Writer) {
	want, err := os.ReadFile(b.From)
	have, none := os.ReadFile(b.To)
	switch {
	case err != nil:
		fmt.Fprintf(out, "%s: it would be written, but: %v\n", b.To, err)
	case errors.Is(none, os.ErrNotExist):
		fmt.Fprintf(out, "%s: it would be written\n", b.To)
	case !bytes.Equal(want, have):
		fmt.Fprintf(out, "%s: it would be replaced\n", b.To)
	default:
		fmt.Fprintf(out, "%s: no change\n", b.To)
	}
}

func printPlan(out io.Writer, conf node.Conf, plan chain.Plan, dir chain.Dir) {
	if len(plan.Steps) == 0 {
		fmt.Fprintf(out, "%s: no change, way %s\n", conf.Path, plan.Way)
		return
	}
	fmt.Fprintf(out, "%s: way %s, network %s of %s\n", conf.Path, plan.Way, plan.Network,
		plan.Primary)
	for _, step := range plan.Steps {
		fmt.Fprintf(out, "  %s\n", step)
	}
	fmt.Fprintf(out, "\n%s", plan.Diff(dir))
}
