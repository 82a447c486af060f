package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Call is one connection, or one datagram and its answer.
type Call struct {
	As          Identity
	Network     string // tcp or udp
	To          netip.AddrPort
	From        netip.Addr    // the kernel's choice unless set
	FromPort    uint16        // the kernel's choice unless set
	Transparent bool          // From may be an address that is not local
	Mark        uint32        // SO_MARK
	Timeout     time.Duration // for a call that nobody answers; a minute unless set
}

// An Outcome is how a call ended.
type Outcome int

// The outcomes of a call.
const (
	Failed   Outcome = iota // in some other way: see Result.Err
	Answered                // with a report
	Refused                 // by a reset or an ICMP port unreachable
	TimedOut                // without a sign
)

func (o Outcome) String() string {
	return [...]string{Failed: "failed", Answered: "answered", Refused: "refused",
		TimedOut: "timed out"}[o]
}

// A Result is how a call ended, and the report if it was answered.
type Result struct {
	Report
	Outcome Outcome
	Err     error // nil if answered
}

func (r Result) String() string {
	switch r.Outcome {
	case Answered:
		return "answered by " + r.Report.String()
	case Failed:
		return fmt.Sprintf("failed: %v", r.Err)
	default:
		return r.Outcome.String()
	}
}

// Dial makes a call from the namespace. An answer to a datagram counts only from the address that
// was called.
func (n *NS) Dial(t testing.TB, c Call) Result {
	t.Helper()
	kind, known := map[string]int{"tcp": unix.SOCK_STREAM, "udp": unix.SOCK_DGRAM}[c.Network]
	if !known {
		t.Fatalf("dial %v: network %q, want tcp or udp", c.To, c.Network)
	}
	fd, err := n.socket(t, c.As, c.To.Addr(), kind)
	if err != nil {
		return c.result(nil, err)
	}
	err = c.connect(fd)
	// Not before connect: the runtime's poller would take the unconnected socket's hangup for the
	// connection's.
	conn := os.NewFile(uintptr(fd), c.Network)
	defer conn.Close()
	if err != nil {
		return c.result(nil, err)
	}
	return c.result(c.exchange(conn))
}

func (c Call) connect(fd int) error {
	options := []option{}
	if c.Mark != 0 {
		options = append(options, option{unix.SOL_SOCKET, unix.SO_MARK, int(c.Mark)})
	}
	if c.Transparent {
		options = append(options, transparent(c.To.Addr()))
	}
	if err := setOptions(fd, options...); err != nil {
		return err
	}
	if from := c.from(); from.Port() != 0 || !from.Addr().IsUnspecified() {
		if err := unix.Bind(fd, sockaddr(from)); err != nil {
			return fmt.Errorf("bind to %s: %w", from, err)
		}
	}
	err := unix.Connect(fd, sockaddr(c.To))
	if errors.Is(err, unix.EINPROGRESS) {
		return nil // reading waits for the connection, too
	}
	return err
}

func (c Call) from() netip.AddrPort {
	addr := c.From
	switch {
	case addr.IsValid():
	case c.To.Addr().Is4():
		addr = netip.IPv4Unspecified()
	default:
		addr = netip.IPv6Unspecified()
	}
	return netip.AddrPortFrom(addr, c.FromPort)
}

// exchange returns all that the other side says. A connection is answered without being asked.
func (c Call) exchange(conn *os.File) ([]byte, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = time.Minute
	}
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if c.Network == "tcp" {
		return io.ReadAll(conn)
	}
	if _, err := conn.WriteString("who is there?"); err != nil {
		return nil, err
	}
	answer := make([]byte, 2048)
	n, err := conn.Read(answer)
	return answer[:n], err
}

func (c Call) result(answer []byte, err error) Result {
	r := Result{Outcome: Failed, Err: err}
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		r.Outcome = Refused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		r.Outcome = TimedOut
	case err == nil:
		if r.Err = json.Unmarshal(answer, &r.Report); r.Err == nil {
			r.Outcome = Answered
		} else {
			r.Err = fmt.Errorf("read report %q: %w", answer, r.Err)
		}
	}
	return r
}
