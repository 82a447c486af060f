package main

import (
	"path/filepath"
	"slices"
	"strings"
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

// No t.Parallel: the environment is the test's. A manifest helps only who may name one.
func TestWithoutAKubeconfig(t *testing.T) {
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for line, manifest := range map[string]bool{"cluster": false, "verify -A": false,
		"node node-1": false, "explain shop/web-0": true} {
		_, stderr, code := run(t.Context(), "", strings.Fields(line)...)
		if code != exitError || !strings.Contains(stderr, "set $KUBECONFIG, or pass the file by") ||
			strings.Contains(stderr, "name a manifest instead, by --filename") != manifest {
			t.Errorf("%s: %d, %s", line, code, stderr)
		}
	}
}
