package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// asInit is set where the test's program runs once more, as sidecarctl, with these arguments.
const asInit = "SIDECARCTL_TEST_AS_INIT"

// user is who runs the program, with which capabilities.
type user struct {
	uid, gid     uint32
	capabilities string // of setpriv's list, behind -all
}

var (
	netAdmin  = user{0, 0, ",+net_admin"}
	proxyUser = user{1337, 1337, ""}
	appUser   = user{1000, 1000, ""}
)

// ended is how a run of the program ended.
type ended struct {
	stdout, stderr string
	code           int
}

// initIn runs the program in a namespace as an init container does. Its file is handed over opened,
// since the user may not see the folder that it is in.
func initIn(t *testing.T, n *netns.NS, u user, env []string, args ...string) ended {
	t.Helper()
	cmd, out, errs := initCommandIn(t, u, env, args)
	var err error
	n.Do(t, func() { err = cmd.Start() })
	if err == nil {
		err = cmd.Wait()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return ended{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

func initCommandIn(t *testing.T, u user, env, args []string) (*exec.Cmd, *bytes.Buffer,
	*bytes.Buffer) {
	t.Helper()
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	line, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "setpriv", fmt.Sprintf("--reuid=%d", u.uid),
		fmt.Sprintf("--regid=%d", u.gid), "--clear-groups", "--inh-caps=-all",
		"--bounding-set=-all"+u.capabilities, "/proc/self/fd/3", "-test.run=^TestAsInit$")
	cmd.ExtraFiles = []*os.File{program}
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), asInit + "=" + string(line)}, env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return cmd, &stdout, &stderr
}

// TestAsInit is the program where a test runs it in a process of its own.
func TestAsInit(t *testing.T) {
	line := os.Getenv(asInit)
	if line == "" {
		return
	}
	var args []string
	if err := json.Unmarshal([]byte(line), &args); err != nil {
		t.Fatal(err)
	}
	os.Args = append([]string{"sidecarctl"}, args...)
	main() // which exits
}

// words splits a command line; "" is an empty word.
func words(line string) []string {
	all := strings.Fields(line)
	for i, w := range all {
		if w == `""` {
			all[i] = ""
		}
	}
	return all
}

func apply(t *testing.T, n *netns.NS, rules redirect.Ruleset) {
	t.Helper()
	n.Do(t, func() {
		if _, err := nftables.Apply(t.Context(), rules); err != nil {
			t.Fatal(err)
		}
	})
}

var counted = regexp.MustCompile(`counter packets \d+ bytes \d+|# handle \d+`)

// rulesIn is all that rules consist of in the kernel.
func rulesIn(t *testing.T, n *netns.NS) string {
	t.Helper()
	text := counted.ReplaceAllString(n.Run(t, "", "nft", "list", "ruleset"), "")
	return text + n.Run(t, "", "ip", "rule") + n.Run(t, "", "ip", "-6", "rule") +
		n.Run(t, "", "ip", "-o", "-6", "address", "show", "dev", "lo")
}

func problemsIn(t *testing.T, n *netns.NS, rules redirect.Ruleset) (problems []redirect.Problem) {
	t.Helper()
	n.Do(t, func() {
		var err error
		if problems, err = nftables.Verify(t.Context(), rules); err != nil {
			t.Fatal(err)
		}
	})
	return problems
}
