// Demo shows the product at work on a machine without a cluster. It has sidecarctl put a proxy into
// a Deployment, builds a node out of network namespaces, runs the real chain of CNI plugins through
// libcni for that Deployment's pod, starts an app and a small transparent proxy, and draws each
// connection's way with and without sidecar-cni. It needs root, Linux and Go, and leaves nothing
// behind.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/test/stage"
)

func main() {
	if len(os.Args) > 1 {
		os.Exit(talk(os.Args[1]))
	}
	os.Exit(show(os.Stdout, os.Stderr))
}

// show runs the demonstration until it is over or somebody interrupts it.
func show(out, complaints io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	switch err := run(ctx, out); {
	case ctx.Err() != nil:
		fmt.Fprintln(out, "\nInterrupted; everything is cleaned up.")
	case err != nil:
		fmt.Fprintln(complaints, "demo:", err)
		return 1
	}
	return 0
}

// run is the demonstration. Everything it makes lives in directories, namespaces and processes of
// its own, which end with it.
func run(ctx context.Context, out io.Writer) error {
	if err := ready(); err != nil {
		return err
	}
	return stage.Run(ctx, func(t testing.TB) {
		fmt.Fprintln(out, "Building the plugins bridge, host-local and sidecar-cni, and "+
			"sidecarctl.")
		newDemo(t, out).play()
	})
}

// ready says in one line what is missing.
func ready() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("this makes network namespaces and needs root: run sudo -E env " +
			"PATH=$PATH make demo")
	}
	for path, what := range map[string]string{
		"/proc/self/ns/net": "a kernel with network namespaces (CONFIG_NET_NS)",
		"/proc/thread-self/net/": "a kernel with /proc/thread-self (Linux 3.17 or later) and " +
			"/proc mounted",
	} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s is missing: this needs %s", path, what)
		}
	}
	return nil
}
