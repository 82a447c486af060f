package main

import (
	"bufio"
	"context"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// redirected is a pod that has the rules of testdata/web.yaml.
func redirected(t *testing.T) *netns.Pod {
	t.Helper()
	file, err := os.Open("testdata/web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pods, err := target.FromFile(file, "web.yaml", target.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := redirect.Decide(pods[0].Facts, redirect.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	pod := netns.NewPod(t, netns.Options{})
	pod.Do(t, func() { _, err = nftables.Apply(t.Context(), redirect.Compile(d.Policy)) })
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// watcher runs the command in a pod, with what it writes to be read.
func watcher(t *testing.T, pod *netns.Pod, args ...string) (lines *bufio.Scanner, out *io.PipeReader,
	interrupt func(), code chan int) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	out, in := io.Pipe()
	var stderr strings.Builder
	e := env{args: append([]string{"watch", "-f", "testdata/web.yaml", "--netns", pod.Path()}, args...),
		stdin: strings.NewReader(""), stdout: in, stderr: &stderr}
	code = make(chan int, 1)
	go func() {
		ended := e.run(ctx)
		if stderr.Len() > 0 {
			t.Errorf("standard error: %s", stderr.String())
		}
		_ = in.Close()
		code <- ended
	}()
	t.Cleanup(func() { interrupt(); _ = out.Close() })
	return bufio.NewScanner(out), out, interrupt, code
}

func TestWatch(t *testing.T) {
	t.Parallel()
	pod := redirected(t)
	call := netns.Call{As: netns.Identity{UID: 1000, GID: 1000}, Network: "tcp",
		To: netip.MustParseAddrPort("192.0.2.7:80")}
	// This one stays for half a minute. What is behind it in the output was not there before.
	pod.Dial(t, netns.Call{Network: "udp", To: netip.MustParseAddrPort("192.0.2.7:53")})
	lines, _, interrupt, code := watcher(t, pod, "--existing", "--for", "1h")
	for _, want := range []string{"! the ends of connections", "nf_conntrack_events is 2",
		"UDP 192.0.2.7:53 not redirected"} {
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("%s; want %s", lines.Text(), want)
		}
	}
	pod.Dial(t, call)
	if !lines.Scan() || !strings.HasSuffix(lines.Text(), " TCP 192.0.2.7:80 ──▶ 15001 (outbound)") {
		t.Error(lines.Text())
	}
	if !lines.Scan() || !strings.Contains(lines.Text(), " TCP 192.0.2.7:80 refused") {
		t.Error(lines.Text())
	}
	interrupt()
	if !lines.Scan() || !strings.HasSuffix(lines.Text(), " = 1 connection began, 1 ended, 0 events lost") {
		t.Error(lines.Text())
	}
	if got := <-code; got != 0 {
		t.Errorf("it ended with %d", got)
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	pod := redirected(t)
	lines, _, _, code := watcher(t, pod, "--for", "1ms", "-o", "json")
	for lines.Scan() && !strings.Contains(lines.Text(), `"event":"done"`) {
	}
	if got := <-code; got != 0 {
		t.Errorf("after its time: %d", got)
	}
	_, out, _, code := watcher(t, pod, "--for", "1ms") // and somebody who reads nothing, as head
	_ = out.Close()
	if got := <-code; got != 0 {
		t.Errorf("without a reader: %d", got)
	}
}

func TestWatchRefusesTheHost(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	// Not /proc/self: the process's first thread may be in the namespace of another test.
	_, stderr, code := run(t.Context(), "", "watch", "--for", "1s", "--netns",
		"/proc/thread-self/ns/net")
	if code != exitError || !strings.Contains(stderr, "it is the host's") {
		t.Errorf("%d, %s", code, stderr)
	}
}
