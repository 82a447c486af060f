package podsource

import (
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
)

// reportTimeout is for a machine under load: connecting and writing to a socket take microseconds,
// or never end. Each of the two may take so long.
const reportTimeout = 20 * time.Millisecond

// Report hands an outcome to the agent. It does not wait for the answer, and an agent that is away
// misses it: the plugin has its own work to do. The kernel's calls are all that it takes. Where the
// pod was found in its file, nothing else needs package net, which would take 0.15 ms to get ready.
func (s Sources) Report(o protocol.Outcome) {
	body, err := json.Marshal(o)
	if err != nil {
		return
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	timeout := unix.NsecToTimeval(reportTimeout.Nanoseconds())
	if unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout) != nil ||
		unix.Connect(fd, &unix.SockaddrUnix{Name: s.AgentSocket}) != nil {
		return
	}
	_ = unix.Sendto(fd, outcomeRequest(body), unix.MSG_NOSIGNAL, nil)
}

func outcomeRequest(body []byte) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n"+
		"Connection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		protocol.PathOutcomes, protocol.Host, userAgent, len(body), body)
}
