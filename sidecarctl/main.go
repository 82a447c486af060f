// Sidecarctl answers questions about the redirection of pods: what a pod asks for, which rules it
// gets, and where a connection goes.
//
//	sidecarctl explain -f web.yaml
//	sidecarctl trace -f web.yaml --from app --to 10.10.0.43:5432
//	sidecarctl rules shop/web-0 --format iptables
//
// It changes nothing but manifests (inject, strip, uninject) and the pod that init runs in. It ends
// with 0 where all is well, 1 after an error, 2 if the command line is wrong, 3 where something is
// not as it should be, and 126 where init's validation failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// The exit codes.
const (
	exitError = 1
	exitUsage = 2
	exitAmiss = 3

	exitInvalid = 126 // of istio-validation: repair programs look for it
)

// asKubectlPlugin is the name under which kubectl finds it, for `kubectl sidecar-cni`.
const asKubectlPlugin = "kubectl-sidecar_cni"

//go:generate go test . -run "^(TestPage|TestSchema)$" -update

func main() {
	klog.SetLogger(logr.Discard()) // what client-go would log is in errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	e := env{name: os.Args[0], args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout,
		stderr: os.Stderr,
		colour: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "",
		dirs:   onnode.Usual(), root: os.Geteuid() == 0}
	context.AfterFunc(ctx, stop) // the second signal ends whatever does not heed the first
	code := e.run(ctx)
	stop()
	os.Exit(code)
}

// env is what the program has of the world.
type env struct {
	name           string // by which it was called
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	colour         bool        // standard output shows it
	dirs           onnode.Dirs // of the node that this may run on
	root           bool        // they may be read
	cancel         func()      // ends the command
}

// amiss is the error of a command that has said all there is to say, and found something wrong.
var errAmiss = errors.New("not as it should be")

// usageError is about the command line.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

func (e env) run(ctx context.Context) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := e
	asked.cancel = cancel
	root := &cobra.Command{
		Use:     "sidecarctl",
		Short:   "Answers questions about the redirection of pods to their sidecars",
		Version: version(), SilenceErrors: true, SilenceUsage: true,
	}
	if called := strings.TrimSuffix(filepath.Base(e.name), ".exe"); called == asKubectlPlugin {
		root.Annotations = map[string]string{
			cobra.CommandDisplayNameAnnotation: "kubectl sidecar-cni",
		}
	}
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(asked.commands()...)
	helps(root)
	root.SetArgs(withInit(e.args, root.Commands()))
	err := root.ExecuteContext(ctx)
	_, invalid := errors.AsType[*invalidError](err)
	switch _, usage := errors.AsType[*usageError](err); {
	case err == nil:
		return 0
	case errors.Is(err, errAmiss):
		return exitAmiss
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(e.stderr, "sidecarctl: interrupted")
		return exitError
	case invalid:
		fmt.Fprintf(e.stderr, "sidecarctl: %s\n", view.Clean(oneLine(err)))
		return exitInvalid
	case usage || strings.HasPrefix(err.Error(), "unknown command"):
		fmt.Fprintf(e.stderr, "sidecarctl: %s\n", view.Clean(oneLine(err)))
		return exitUsage
	}
	fmt.Fprintf(e.stderr, "sidecarctl: %s\n", view.Clean(oneLine(err)))
	return exitError
}

func (e env) commands() []*cobra.Command {
	return []*cobra.Command{e.explainCommand(), e.traceCommand(), e.rulesCommand(),
		e.compareCommand(), e.verifyCommand(), e.watchCommand(), e.nodeCommand(),
		e.clusterCommand(), e.injectCommand(), e.stripCommand(), e.uninjectCommand(),
		e.initCommand(), e.factsCommand()}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// version is that of the module, as the Go toolchain knows it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
