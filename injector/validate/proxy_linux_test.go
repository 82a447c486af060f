package validate

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func dial(t *testing.T, to net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Others may find the port open. They learn nothing, and hold nothing up.
func TestTheProxyAnswersOurCallsOnly(t *testing.T) {
	t.Parallel()
	p, err := listen(t.Context(), 0, calls(t, "127.0.0.1>127.0.0.6:15002", "127.0.0.1>127.0.0.6:15003"))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.listeners) != 1 {
		t.Errorf("%d listeners, want one", len(p.listeners))
	}
	at := p.listeners[0].Addr()
	for name, text := range map[string]string{
		"a question of its own": strings.Repeat("x", len(p.question)),
		"an HTTP request":       "GET / HTTP/1.1\r\nHost: 127.0.0.1:15006\r\n\r\n",
	} {
		other := dial(t, at)
		if _, err := io.WriteString(other, text); err != nil {
			t.Fatal(err)
		}
		if answer, _ := io.ReadAll(other); len(answer) > 0 {
			t.Errorf("%s got %q", name, answer)
		}
	}
	silent := dial(t, at)
	original, err := p.ask(dial(t, at))
	// Where connection tracking is on, it knows of no other destination.
	if err != nil || original != unknown && original != at.String() {
		t.Errorf("our own call: %q, %v", original, err)
	}
	p.close() // does not wait for the one that is silent
	if _, err := io.ReadAll(silent); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("a connection that said nothing: %v, want it reset", err)
	}
}

// Whoever answers something else is not the proxy, and one that repeats what it hears is not
// either.
func TestOthersAreNotTakenForTheProxy(t *testing.T) {
	t.Parallel()
	p := &proxy{question: []byte("question"), secret: "secret"}
	for name, answer := range map[string]string{
		"nothing":       "",
		"the question":  "question\n",
		"without end":   strings.Repeat("secret", 1000),
		"no secret":     "127.0.0.6:15002\n",
		"half a secret": "sec",
	} {
		caller, other := net.Pipe()
		go func() {
			defer other.Close()
			_, _ = io.CopyN(io.Discard, other, int64(len(p.question)))
			_, _ = io.WriteString(other, answer)
		}()
		if original, err := p.ask(caller); err == nil {
			t.Errorf("%s: %q, want an error", name, original)
		}
		caller.Close()
	}
}
