// Bench prints how fast the plugin is, next to its budgets: wall and CPU time and memory of whole
// processes, started as a container runtime starts them. The budgets are ratios to an empty Go
// program in the same run: those say the same on every machine. All cases take turns, so that what
// disturbs one disturbs all. Last comes what the installer's daemon takes.
//
//	go run ./test/bench -runs 100
//
// It needs root, and fails if a call fails, but never because one was slow.
//
// Be aware:
//   - The node and its pods are network namespaces without a name, and the API server is that of
//     the tests, in this process. All pods' namespaces are kept until the end: else the
//     kernel would clean up while others are measured.
//   - On a busy machine, cases that talk to somebody wait more often than an empty program does.
//     Their ratios of CPU time stay what they are.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/stage"
)

func main() {
	runs := flag.Int("runs", 100, "how often each case is measured")
	flag.Parse()
	if err := work(*runs, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func work(runs int, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if os.Geteuid() != 0 {
		fmt.Fprintln(out,
			"The table of the plugin's speed needs root: it makes network namespaces.")
		return nil
	}
	var r report
	err := stage.Run(ctx, func(t testing.TB) { r = newNode(t).measure(max(1, runs)) })
	if err == nil {
		err = stage.Run(ctx, func(t testing.TB) { r.daemon = measureDaemon(t) })
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx) // which has killed the plugin as well
	case err != nil:
		return err
	}
	r.print(out)
	return nil
}
