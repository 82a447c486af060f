package chain

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// traced makes a call under strace and returns the system calls of those kinds, one a line, the
// process id cut off.
func (n *Node) traced(c call, kinds string) []string {
	n.t.Helper()
	file := filepath.Join(n.t.TempDir(), "trace")
	c.within = []string{"strace", "-f", "-qq", "-s", "200", "-o", file, "-e", "trace=" + kinds,
		"-e", "signal=none"}
	if out, err := n.run(c); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		n.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		line = strings.TrimSpace(line)
		above := strings.HasPrefix(line, "<... ") // the end of a call that is above
		// This is a thread that ended before strace had seen it, and called nothing.
		ended := strings.HasPrefix(line, "???( <")
		if !above && !ended {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestNothingIsExecuted(t *testing.T) {
	t.Parallel()
	n, pod := newNode(t), Meshed("web-0", nil)
	n.agent.Put(pod)
	at := Attachment(pod, netns.New(t))
	for _, command := range []string{"ADD", "CHECK", "DEL"} {
		if execs := n.traced(call{command: command, at: at}, "execve,execveat"); len(execs) != 1 {
			t.Errorf("%s executed:\n%s", command, strings.Join(execs, "\n"))
		}
	}
}

// A pod that is not ours costs what a start of the program costs: it opens what VERSION opens, and
// talks to nobody.
func TestAPodThatIsNotOursIsNoInputAndNoOutput(t *testing.T) {
	t.Parallel()
	const kinds = "%file,%network,setns,ioctl"
	name := regexp.MustCompile(`^\w+\([^"]*"([^"]*)"`)
	touched := func(lines []string) []string {
		var names []string
		for _, line := range lines {
			if found := name.FindStringSubmatch(line); found != nil {
				names = append(names, found[1])
			} else if !strings.HasPrefix(line, "+++") {
				names = append(names, line)
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	n, at := newNode(t), Attachment(Unmeshed("web-0"), netns.New(t))
	conf := Object{"logFile": filepath.Join(n.Dir, "log"), "logLevel": "debug"}
	want := touched(n.traced(call{command: "VERSION", at: at, conf: conf}, kinds))
	got := touched(n.traced(call{command: "ADD", at: at, conf: conf}, kinds))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("touched (-VERSION +ADD):\n%s", diff)
	}
}

// Standard output carries one JSON document, or nothing.
func TestStandardOutput(t *testing.T) {
	t.Parallel()
	n, pod := newNode(t), Meshed("web-0", nil)
	n.agent.Put(pod)
	at, broken := Attachment(pod, netns.New(t)), *Attachment(Meshed("web-1", nil), netns.New(t))
	broken.NetNS = "/nowhere"
	host := *at
	host.NetNS = "/proc/self/ns/net"
	unreached := []string{"code", "msg"}
	debug, refused := Object{"logLevel": "debug"}, []string{"cniVersion", "code", "msg"}
	for _, row := range []struct { // one after the other: they share a pod
		name string
		call
		keys []string
		code string
	}{
		{"VERSION", call{command: "VERSION", at: at}, []string{"cniVersion", "supportedVersions"},
			""},
		{"ADD", call{command: "ADD", at: at, conf: debug}, []string{"cniVersion"}, ""},
		{"CHECK", call{command: "CHECK", at: at, conf: debug}, nil, ""},
		{"DEL", call{command: "DEL", at: at, conf: debug}, nil, ""},
		{"GC", call{command: "GC", at: at, conf: Object{"cniVersion": "1.1.0"}}, nil, ""},
		{"STATUS", call{command: "STATUS", at: at, conf: Object{"cniVersion": "1.1.0"}}, nil, ""},
		{"ADD without a namespace", call{command: "ADD", at: &broken}, refused, "8"},
		{"ADD in the host's namespace", call{command: "ADD", at: &host}, refused, "8"},
		{"CHECK in the host's namespace", call{command: "CHECK", at: &host}, refused, "8"},
		{"DEL in the host's namespace", call{command: "DEL", at: &host}, refused, "8"},
		{"ADD with a wrong configuration", call{command: "ADD", at: at, conf: Object{"backend": 1}},
			refused, "7"},
		{"an unknown command", call{command: "ADDD", at: at}, unreached, "4"},
		{"an unknown version", call{command: "ADD", at: at, conf: Object{"cniVersion": "0.2.0"}},
			[]string{"code", "details", "msg"}, "1"},
		{"no name of the network", call{command: "ADD", at: at, conf: Object{"name": ""}},
			unreached, "7"},
	} {
		t.Run(row.name, func(t *testing.T) {
			out, err := n.run(row.call)
			if (err != nil) != (row.code != "") {
				t.Errorf("ended with %v: %s", err, out)
			}
			wantDocument(t, out, row.keys, row.code)
		})
	}
}

func wantDocument(t *testing.T, out string, keys []string, code string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(out))
	d.UseNumber()
	var document Object
	switch err := d.Decode(&document); {
	case err == io.EOF && keys == nil:
		return
	case err != nil:
		t.Fatalf("standard output %q: %v", out, err)
	}
	var got []string
	for k := range document {
		got = append(got, k)
	}
	slices.Sort(got)
	if diff := cmp.Diff(keys, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if have, _ := document["code"].(json.Number); have.String() != code {
		t.Errorf("code %s, want %q", have, code)
	}
	if err := d.Decode(&document); err != io.EOF {
		t.Errorf("more than one document: %s", out)
	}
}

func TestByHand(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(filepath.Join(programs(t), "sidecar-cni"))
	cmd.Env = []string{}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || len(out) > 0 || !strings.Contains(stderr.String(), "CNI plugin") ||
		!strings.Contains(stderr.String(), "1.1.0") {
		t.Errorf("%v, standard output %q, standard error %q", err, out, stderr.String())
	}
}

// A plugin that a runtime starts in a namespace of its own still knows the host's: process 1 is
// there.
func TestTheNamespaceOfProcess1IsRefused(t *testing.T) {
	t.Parallel()
	n, pod := newNode(t), Meshed("web-0", nil)
	n.agent.Put(pod)
	at := Attachment(pod, netns.New(t))
	at.NetNS = "/proc/1/ns/net"
	elsewhere := netns.New(t)
	const script = `exec 3<"$0"; mount -t proc none /proc && nsenter --net=/proc/self/fd/3 "$1"; exit $?`
	out, err := n.run(call{command: "ADD", at: at, within: []string{
		"unshare", "--pid", "--fork", "--mount", "sh", "-c", script, elsewhere.Path(),
	}})
	if err == nil || !strings.Contains(out, "process 1 runs in it") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestBinary(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(filepath.Join(programs(t), "sidecar-cni"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() >= 16<<20 {
		t.Errorf("the binary has %d bytes", info.Size())
	}
}
