// Setup builds what a cluster is made of, so that the first test does not have to:
//
//	go run ./test/cluster/setup
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

func main() {
	if err := cluster.Build(context.Background(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
