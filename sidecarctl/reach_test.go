package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
)

// An agent is asked for what the user asked for, and not where.
func TestWhatIsPassedOn(t *testing.T) {
	t.Parallel()
	commands := env{}.commands()
	at := slices.IndexFunc(commands, func(c *cobra.Command) bool { return c.Name() == "watch" })
	c := commands[at]
	err := c.ParseFlags([]string{"--existing", "--port=53", "--for", "90s", "-n", "shop",
		"--context", "a", "--kubeconfig=b", "-o", "yaml", "--nameserver", "10.0.0.1,10.0.0.2",
		"--nameserver=10.0.0.3"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"watch", "--output=json", "--host-root=/host", "--existing=true",
		"--for=1m30s", "--nameserver=10.0.0.1,10.0.0.2,10.0.0.3", "--port=53"}
	if diff := cmp.Diff(want, passedOn(c, onnode.Agent{Args: []string{"run", "--host-root=/host"}})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
