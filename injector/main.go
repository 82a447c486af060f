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
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"github.com/sidecar-cni/sidecar-cni/daemon/api"
	"github.com/sidecar-cni/sidecar-cni/daemon/loglevel"
	"github.com/sidecar-cni/sidecar-cni/daemon/program"
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
	err := run(ctx, program.Program{
		Args: os.Args[1:], Environ: os.Environ(), CGroup: "/sys/fs/cgroup",
		Stdout: os.Stdout, Stderr: os.Stderr,
	})
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

func run(ctx context.Context, p program.Program) error {
	p.Name, p.About = "sidecar-cni-injector", "Puts proxies into pods, without istio-init"
	p.Settings = everySetting()
	return p.Run(serveCommand(ctx, p), certifyCommand(ctx, p),
		withdrawCommand(ctx, p), validateCommand(ctx, p))
}

func newSettings(p program.Program) *settings {
	return &settings{api: api.Server{InCluster: api.InCluster(p.Environ)}}
}

func serveCommand(ctx context.Context, p program.Program) *cobra.Command {
	s := newSettings(p)
	c := p.Command("serve", "answer the API server", serveAbout, s.serveGroups())
	c.RunE = func(*cobra.Command, []string) error { return s.serve(ctx, p.Stderr) }
	return c
}

func certifyCommand(ctx context.Context, p program.Program) *cobra.Command {
	s := newSettings(p)
	c := p.Command("certify", "have the API server trust the webhooks", certifyAbout,
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
		}, s.newLog(p.Stderr))
	}
	return c
}

func withdrawCommand(ctx context.Context, p program.Program) *cobra.Command {
	s := newSettings(p)
	c := p.Command("withdraw", "take the webhook configurations away", withdrawAbout,
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
		}, s.newLog(p.Stderr))
	}
	return c
}

func validateCommand(ctx context.Context, p program.Program) *cobra.Command {
	s := newSettings(p)
	c := p.Command("validate", "hold up a pod that is not redirected", validateAbout,
		s.validateGroups())
	c.RunE = func(*cobra.Command, []string) error {
		options, err := s.validation.options(p.Stdout)
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
