package podsource

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
	"github.com/sidecar-cni/sidecar-cni/test/agent"
)

func TestReportReachesTheAgent(t *testing.T) {
	t.Parallel()
	node := agent.Start(t)
	Sources{AgentSocket: node.Socket()}.Report(protocol.Outcome{
		Command: "ADD", Namespace: "shop", Name: "web-0", UID: "5d1c", Outcome: "failed",
		Reason: "gone", Message: "why",
		Phases: map[string]float64{"find": 0.0015},
	})
	want := agent.Outcome{
		Command: "ADD", Namespace: "shop", Name: "web-0", UID: "5d1c", Outcome: "failed",
		Reason: "gone", Message: "why",
		Phases: map[string]float64{"find": 0.0015},
	}
	if diff := cmp.Diff(want, <-node.Outcomes()); diff != "" {
		t.Errorf("the agent got (-want +got):\n%s", diff)
	}
}

// It ends, whatever the agent does.
func TestReportIsNotHeldUp(t *testing.T) {
	t.Parallel()
	for name, socket := range map[string]func(t *testing.T) string{
		"by an agent that hangs": func(t *testing.T) string {
			node := agent.Start(t)
			node.Break(agent.Hang)
			return node.Socket()
		},
		"by an agent that is away":       func(t *testing.T) string { return t.TempDir() + "/none" },
		"by a path that is no socket's":  func(t *testing.T) string { return strings.Repeat("x", 200) },
		"by an agent that never accepts": fullSocket,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sources, ended := Sources{AgentSocket: socket(t)}, make(chan struct{})
			go func() {
				defer close(ended)
				sources.Report(protocol.Outcome{Command: "ADD",
					Message: strings.Repeat("x", protocol.MaxOutcome)})
			}()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("it has not ended")
			}
		})
	}
}

// fullSocket has as many connections waiting as the kernel keeps for it.
func fullSocket(t *testing.T) string {
	t.Helper()
	address := &unix.SockaddrUnix{Name: filepath.Join(t.TempDir(), "s")}
	open := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	l := open()
	if err := errors.Join(unix.Bind(l, address), unix.Listen(l, 1)); err != nil {
		t.Fatal(err)
	}
	for {
		switch err := unix.Connect(open(), address); {
		case errors.Is(err, unix.EAGAIN):
			return address.Name
		case err != nil:
			t.Fatal(err)
		}
	}
}
