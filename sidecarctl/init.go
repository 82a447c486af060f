package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/initcontainer"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/validation"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

const initAbout = `Redirects the pod that it runs in, as the init container istio-init does, for clusters whose
nodes have no CNI plugin for it. It takes istio-init's command line and variables, and is the only
command that writes. The rules are read back. With --run-validation it tries them, as
istio-validation does, and ends with 126 where a connection goes elsewhere, or where nothing that
could be tried shows that connections are redirected.`

// initNames are the words by which a pod's template calls it.
var initNames = []string{"init", "istio-iptables", "pilot-agent"}

// invalidError is that of a validation by which the pod must not start.
type invalidError struct{ error }

func (e *invalidError) Unwrap() error { return e.error }

var (
	errInvalid = &invalidError{errors.New("connections are not redirected as they should be")}
	errUnknown = &invalidError{
		errors.New("nothing that could be tried shows that connections are redirected")}
)

// resolvConf is where a container has the pod's nameservers.
const resolvConf = "/etc/resolv.conf"

func (e env) initCommand() *cobra.Command {
	c := &cobra.Command{Use: initNames[0], Aliases: initNames[1:],
		Short: "redirect this pod, as istio-init does", Long: initAbout,
		DisableFlagParsing: true} // they are pflag's, but of another program: initflags reads them
	for _, f := range initflags.Usages() {
		if f.Toggle {
			c.Flags().BoolP(f.Long, f.Short, false, f.About)
		} else {
			c.Flags().StringP(f.Long, f.Short, "", f.About)
		}
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
			return c.Help()
		}
		return e.initPod(c.Context(), args)
	}
	return c
}

// withInit puts the command's name in front of a command line of istio-init that names none, as
// templates of early releases have them. Where another command is named it was meant. So was one by
// who begins with -f: it names a file, and no template begins with istio-init's.
func withInit(args []string, commands []*cobra.Command) []string {
	named := func(c *cobra.Command) bool { return slices.Contains(args, c.Name()) }
	if len(args) == 0 || args[0] == "-f" || !initflags.IsFlag(args[0]) ||
		slices.ContainsFunc(commands, named) {
		return args
	}
	return append([]string{initNames[0]}, args...)
}

func (e env) initPod(ctx context.Context, args []string) error {
	servers, unread := os.ReadFile(resolvConf)
	o, err := initcontainer.Read(args, variables(os.Environ()), string(servers))
	if err != nil {
		return usagef("%w: see sidecarctl init --help", err)
	}
	if unread != nil && o.Policy.DNS.Capture {
		fmt.Fprintf(e.stderr, "sidecarctl: %s\n", unread)
	}
	for _, warning := range o.Warnings {
		fmt.Fprintf(e.stderr, "sidecarctl: %s\n", warning)
	}
	switch {
	case o.Work.SkipRules:
	case o.Work.DryRun:
		if _, err := fmt.Fprint(e.stdout, initRules(o)); err != nil {
			return err
		}
	default:
		done, err := initcontainer.Program(ctx, o)
		if err != nil {
			return err
		}
		for _, warning := range done.Warnings {
			fmt.Fprintf(e.stderr, "sidecarctl: %s\n", warning)
		}
		fmt.Fprintln(e.stdout, done)
	}
	if !o.Work.Validate {
		return nil
	}
	report, err := initcontainer.Validate(ctx, o)
	if errors.Is(err, validation.ErrNothing) {
		err = &invalidError{err}
	}
	if err != nil {
		return fmt.Errorf("validate the pod's rules: %w", err)
	}
	if err := view.Show(e.stdout, view.Text, e.colour, report); err != nil {
		return err
	}
	switch {
	case len(report.Wrong) > 0:
		return errInvalid
	case report.Failed():
		return errUnknown
	}
	return nil
}

// initRules are the rules in the form that the backend's programs read.
func initRules(o initcontainer.Options) string {
	format := asNFT
	if o.Backend() != redirect.NFTables {
		format = asIptables
	}
	return render(redirect.Compile(o.Policy), format)
}

func variables(environ []string) map[string]string {
	all := map[string]string{}
	for _, one := range environ {
		if name, value, ok := strings.Cut(one, "="); ok {
			all[name] = value
		}
	}
	return all
}
