// Sidecar-cni-installer puts the CNI plugin into a node's chain, keeps it there, and answers the
// plugin's questions. It is a DaemonSet's program; run.go tells what it does all day, pass.go what
// it does to the node.
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
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

//go:generate go test . -run TestSettingsPage -update

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	e := env{
		args: os.Args[1:], environ: os.Environ(), cgroup: "/sys/fs/cgroup",
		stdout: os.Stdout, stderr: os.Stderr,
	}
	err := e.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sidecar-cni-installer:", err)
		os.Exit(1)
	}
}

// env is what the program has of the world.
type env struct {
	args           []string
	environ        []string
	cgroup         string // where the process' own cgroup is mounted
	stdout, stderr io.Writer
}

const (
	runAbout = `Brings the plugin into the node's CNI chain and keeps it there; answers the plugin from a cache of the
node's pods; looks after running pods. Ends on SIGTERM and leaves the node as it is.`
	uninstallAbout = `Takes the plugin out of the node's CNI chain, restores what was wrapped, and removes credentials and
binary. A daemon that runs on the node stops writing, and reports "uninstalled". Can be run again at any time.`
	withdrawAbout = `Takes all nodes out before the DaemonSet is deleted: makes its pods run "uninstall --stay", and waits
until every node is out. Names the nodes that are not when the time is over, and ends with 0 even so: what deletes the
DaemonSet then must not hang because of a node that is down.`
	levelAbout = `Prints the log level of the daemon that runs in the same pod, or sets another one until the daemon ends:
kubectl exec POD -- /sidecar-cni-installer log-level debug`
)

func (e env) run(ctx context.Context) error {
	if limit, ok := memoryLimit(e.cgroup); ok {
		debug.SetMemoryLimit(limit)
	}
	root := &cobra.Command{
		Use: "sidecar-cni-installer", Short: "Keeps the sidecar-cni plugin in a node's CNI chain",
		Version: version(), SilenceErrors: true, SilenceUsage: true,
	}
	root.SetArgs(e.args)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	run := e.command("run", "keep the plugin in the node's chain", runAbout, append(slices.Clone(table), runOnly))
	run.RunE = func(*cobra.Command, []string) error { return run.start(ctx, e) }
	uninstall := e.command("uninstall", "take the node out again", uninstallAbout, append(slices.Clone(table), uninstallOnly))
	uninstall.RunE = func(*cobra.Command, []string) error { return uninstall.uninstall(ctx, e) }
	withdraw := e.command("withdraw", "take all nodes out again", withdrawAbout, withdrawTable)
	withdraw.RunE = func(*cobra.Command, []string) error { return withdraw.withdraw(ctx, e) }
	root.AddCommand(&run.Command, &uninstall.Command, &withdraw.Command, e.levelCommand(ctx))
	return root.Execute()
}

// command is a verb and its settings.
type command struct {
	cobra.Command
	settings
}

func (e env) command(use, short, about string, groups []group) *command {
	c := &command{Command: cobra.Command{Use: use, Short: short, Long: about, Args: cobra.NoArgs}}
	c.inCluster = serviceURL(e.environ)
	c.define(c.Flags(), groups)
	c.PreRunE = func(*cobra.Command, []string) error { return fromEnvironment(c.Flags(), e.environ) }
	c.SetHelpFunc(func(*cobra.Command, []string) {
		fmt.Fprintf(e.stdout, "%s\n\nUsage: sidecar-cni-installer %s [flags]\n", about, use)
		help(e.stdout, groups)
	})
	return c
}

// start makes one pass, or all of them.
func (c *command) start(ctx context.Context, e env) error {
	level := c.level()
	log := newLogger(level, e.stderr)
	switch {
	case c.dryRun:
		return c.settings.preview(ctx, e.stdout, log)
	case c.nodeName == "":
		return errors.New("--node-name: want the name of the node")
	case c.once:
		return c.settings.single(ctx, log)
	}
	return c.settings.daemon(ctx, log, level)
}

// level is from which on is logged. It can be changed while the daemon runs.
func (s *settings) level() zap.AtomicLevel {
	level, err := zapcore.ParseLevel(s.logLevel)
	if err != nil {
		level = zapcore.InfoLevel
	}
	return zap.NewAtomicLevelAt(level)
}

func newLogger(level zap.AtomicLevel, stderr io.Writer) *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", MessageKey: "msg",
		EncodeTime: zapcore.RFC3339TimeEncoder, EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeDuration: zapcore.StringDurationEncoder,
	}), zapcore.Lock(zapcore.AddSync(stderr)), level))
}

// version is that of the module, as the Go toolchain knows it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
