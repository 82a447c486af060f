// Sidecar-cni-injector puts proxies into pods when they are created, and takes istio-init out of
// those that another injector filled. It is the API server's webhook; package inject is what it
// does to a pod.
//
//	sidecar-cni-injector serve       answers the API server
//	sidecar-cni-injector certify     has the API server trust it, as a Job
//	sidecar-cni-injector withdraw    takes its webhook configurations away, before it goes
//	sidecar-cni-injector validate    holds a pod up that is not redirected, as its init container
//
// Be aware: serve needs no right but to read what it is configured by. What may change webhook
// configurations are certify and withdraw, for as long as they run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"github.com/sidecar-cni/sidecar-cni/daemon/api"
	"github.com/sidecar-cni/sidecar-cni/daemon/flags"
	"github.com/sidecar-cni/sidecar-cni/daemon/loglevel"
	"github.com/sidecar-cni/sidecar-cni/daemon/memory"
	"github.com/sidecar-cni/sidecar-cni/injector/certify"
	"github.com/sidecar-cni/sidecar-cni/injector/validate"
	"github.com/sidecar-cni/sidecar-cni/injector/withdraw"
)

//go:generate go test . -run TestSettingsPage -update

// exitInvalid is how validate says that the pod is not redirected. Programs that repair pods look
// for it in istio-validation, whose place validate takes.
const exitInvalid = 126

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	klog.SetLogger(logr.Discard()) // what client-go would log is in errors
	e := env{
		args: os.Args[1:], environ: os.Environ(), cgroup: "/sys/fs/cgroup",
		stdout: os.Stdout, stderr: os.Stderr,
	}
	err := e.run(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "sidecar-cni-injector:", err)
	if errors.Is(err, validate.ErrNotRedirected) {
		os.Exit(exitInvalid)
	}
	os.Exit(1)
}

// env is what the program has of the world.
type env struct {
	args           []string
	environ        []string
	cgroup         string // where the process' own cgroup is mounted
	stdout, stderr io.Writer
}

const (
	serveAbout = `Answers the API server about pods that are to be created: /inject puts the proxy
into them, /strip takes istio-init out. Ends on SIGTERM, after it has gone on answering for a while.`
	certifyAbout = `Makes the authority of the webhooks' certificates, unless there is one, and
writes it into our webhook configurations. Can be run again at any time.`
	withdrawAbout = `Deletes our webhook configurations, so that nobody asks the webhooks any more,
and waits until each API server knows. Pods that were injected stay as they are.`
	validateAbout = `Ends with 0 if the traffic of the pod that it runs in is redirected, else with
126. It needs the user and the group of the proxy, and no right.`
)

func (e env) run(ctx context.Context) error {
	if limit, ok := memory.Limit(e.cgroup); ok {
		debug.SetMemoryLimit(limit)
	}
	root := &cobra.Command{
		Use: "sidecar-cni-injector", Short: "Puts proxies into pods, without istio-init",
		Version: version(), SilenceErrors: true, SilenceUsage: true,
	}
	root.SetArgs(e.args)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(e.serveCommand(ctx), e.certifyCommand(ctx), e.withdrawCommand(ctx),
		e.validateCommand(ctx))
	return root.Execute()
}

// command is a verb, with flags for the settings of the groups.
func (e env) command(use, short, about string, groups []flags.Group) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: about, Args: cobra.NoArgs}
	flags.Define(c.Flags(), groups)
	c.PreRunE = func(*cobra.Command, []string) error {
		return flags.FromEnvironment(c.Flags(), e.environ, everySetting())
	}
	c.SetHelpFunc(func(*cobra.Command, []string) {
		fmt.Fprintf(e.stdout, "%s\n\nUsage: sidecar-cni-injector %s [flags]\n", about, use)
		flags.Help(e.stdout, groups)
	})
	return c
}

func (e env) newSettings() *settings {
	return &settings{api: api.Server{InCluster: api.InCluster(e.environ)}}
}

func (e env) serveCommand(ctx context.Context) *cobra.Command {
	s := e.newSettings()
	c := e.command("serve", "answer the API server", serveAbout, s.serveGroups())
	c.RunE = func(*cobra.Command, []string) error { return s.serve(ctx, e.stderr) }
	return c
}

func (e env) certifyCommand(ctx context.Context) *cobra.Command {
	s := e.newSettings()
	c := e.command("certify", "have the API server trust the webhooks", certifyAbout,
		s.certifyGroups())
	c.RunE = func(*cobra.Command, []string) error {
		secret, err := name("ca-secret", s.serving.secret)
		if err != nil {
			return err
		}
		names, err := s.job.names()
		if err != nil {
			return err
		}
		config, err := s.api.Config()
		if err != nil {
			return err
		}
		return certify.Run(ctx, config, certify.Settings{
			Secret: secret, Configurations: names, Timeout: s.job.timeout,
		}, s.newLog(e.stderr))
	}
	return c
}

func (e env) withdrawCommand(ctx context.Context) *cobra.Command {
	s := e.newSettings()
	c := e.command("withdraw", "take the webhook configurations away", withdrawAbout,
		s.withdrawGroups())
	c.RunE = func(*cobra.Command, []string) error {
		names, err := s.job.names()
		if err != nil {
			return err
		}
		config, err := s.api.Config()
		if err != nil {
			return err
		}
		return withdraw.Run(ctx, config, withdraw.Settings{
			Configurations: names, Settle: s.job.settle, Timeout: s.job.timeout,
		}, s.newLog(e.stderr))
	}
	return c
}

func (e env) validateCommand(ctx context.Context) *cobra.Command {
	s := e.newSettings()
	c := e.command("validate", "hold up a pod that is not redirected", validateAbout,
		s.validateGroups())
	c.RunE = func(*cobra.Command, []string) error {
		options, err := s.validation.options(e.stdout)
		if err != nil {
			return err
		}
		return validate.Run(ctx, options)
	}
	return c
}

func (s *settings) newLog(stderr io.Writer) *zap.Logger {
	log, _ := loglevel.New(s.logLevel, stderr)
	return log
}

// version is that of the module, as the Go toolchain knows it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
