// Sidecar-cni-installer puts the CNI plugin into a node's chain, keeps it there, and answers the
// plugin's questions. It is a DaemonSet's program; run.go is what it does all day, package
// reconcile what it does to the node.
//
//	sidecar-cni-installer run                the daemon
//	sidecar-cni-installer run --once         one pass, as a job
//	sidecar-cni-installer run --dry-run      what a pass would change
//	sidecar-cni-installer uninstall          takes the node out again
//	sidecar-cni-installer withdraw           takes all nodes out, before the DaemonSet is deleted
//	sidecar-cni-installer log-level debug    has the running daemon say more
//
// Be aware: ending the daemon leaves the node as it is. Only uninstall takes out what was put in.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/daemon/api"
	"github.com/sidecar-cni/sidecar-cni/daemon/flags"
	"github.com/sidecar-cni/sidecar-cni/daemon/loglevel"
	"github.com/sidecar-cni/sidecar-cni/daemon/program"
	"github.com/sidecar-cni/sidecar-cni/installer/access"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
	"github.com/sidecar-cni/sidecar-cni/installer/withdraw"
)

//go:generate go test . -run TestSettingsPage -update

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, program.Program{
		Args: os.Args[1:], Environ: os.Environ(), CGroup: "/sys/fs/cgroup",
		Stdout: os.Stdout, Stderr: os.Stderr,
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sidecar-cni-installer:", err)
		os.Exit(1)
	}
}

const (
	runAbout = `Brings the plugin into the node's CNI chain and keeps it there; answers
the plugin from a cache of the node's pods; looks after running pods. Ends on SIGTERM and leaves
the node as it is.`
	uninstallAbout = `Takes the plugin out of the node's CNI chain, restores what was wrapped,
and removes credentials and binary. A daemon that runs on the node stops writing, and reports
"uninstalled". Can be run again at any time.`
	withdrawAbout = `Takes all nodes out before the DaemonSet is deleted: makes its pods run
"uninstall --stay", and waits until every node is out. Names the nodes that are not when the
time is over, and ends with 0 even so: what deletes the DaemonSet then must not hang because of
a node that is down.`
	levelAbout = `Prints the log level of the daemon that runs in the same pod, or sets another one until the
daemon ends:
kubectl exec POD -- /sidecar-cni-installer log-level debug`
)

func run(ctx context.Context, p program.Program) error {
	p.Name, p.About = "sidecar-cni-installer", "Keeps the sidecar-cni plugin in a node's CNI chain"
	p.Settings = everySetting()
	return p.Run(runCommand(ctx, p), uninstallCommand(ctx, p),
		withdrawCommand(ctx, p), levelCommand(ctx, p))
}

func newSettings(p program.Program) *settings {
	return &settings{api: api.Server{InCluster: api.InCluster(p.Environ)}}
}

// runCommand makes one pass, or all of them.
func runCommand(ctx context.Context, p program.Program) *cobra.Command {
	s := newSettings(p)
	c := p.Command("run", "keep the plugin in the node's chain", runAbout,
		append(s.common(), s.runOnly()))
	c.RunE = func(*cobra.Command, []string) error {
		log, level := loglevel.New(s.agent.logLevel, p.Stderr)
		switch {
		case s.dryRun:
			return s.preview(ctx, p.Stdout, log)
		case s.agent.node == "":
			return errors.New("--node-name: want the name of the node")
		case s.once:
			return s.single(ctx, log)
		}
		return s.runDaemon(ctx, log, level)
	}
	return c
}

// single makes one pass, and waits until the runtime has loaded what was written.
func (s *settings) single(ctx context.Context, log *zap.Logger) error {
	client, err := access.Client(s.api)
	if err != nil {
		return err
	}
	r, err := s.newReconciler(client, log)
	if err != nil {
		return err
	}
	if err := r.Start(ctx, false); err != nil {
		return err
	}
	return r.Once(ctx)
}

// preview prints what a pass would change.
func (s *settings) preview(ctx context.Context, out io.Writer, log *zap.Logger) error {
	r := reconcile.New(s.node, reconcile.Sources{Account: access.AccountUID}, log)
	return r.Pass(ctx, reconcile.Preview).Print(out)
}

func uninstallCommand(ctx context.Context, p program.Program) *cobra.Command {
	s := newSettings(p)
	c := p.Command("uninstall", "take the node out again", uninstallAbout,
		append(s.common(), s.uninstallOnly()))
	c.RunE = func(*cobra.Command, []string) error { return s.uninstall(ctx, p.Stderr) }
	return c
}

func withdrawCommand(ctx context.Context, p program.Program) *cobra.Command {
	s := newSettings(p)
	c := p.Command("withdraw", "take all nodes out again", withdrawAbout,
		[]flags.Group{s.withdrawOnly()})
	c.RunE = func(*cobra.Command, []string) error {
		config, err := s.api.Config()
		if err != nil {
			return err
		}
		return withdraw.Run(ctx, config, s.withdraw, p.Stdout)
	}
	return c
}

// levelCommand shows or changes the log level of the daemon that runs in the same pod.
func levelCommand(ctx context.Context, p program.Program) *cobra.Command {
	s := newSettings(p)
	c := p.Command("log-level", "show or set the log level of the running daemon", levelAbout,
		[]flags.Group{s.levelOnly()})
	c.Use, c.Args = "log-level [debug|info|warn|error]", cobra.MaximumNArgs(1)
	c.RunE = func(_ *cobra.Command, args []string) error {
		return loglevel.Ask(ctx, s.agent.listen, args, p.Stdout)
	}
	return c
}
