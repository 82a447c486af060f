package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/agent"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/podfiles"
)

// files are those of the node's agent, beside its socket.
func (n *node) files() *podfiles.Files {
	return podfiles.New(n.t, filepath.Dir(n.agent.Socket()))
}

const excluding = "traffic.sidecar.istio.io/excludeOutboundPorts"

func TestAPodIsRedirectedByItsFile(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	files := n.files()
	files.Put(meshed(map[string]string{excluding: "22"}), "")
	files.Refresh(0)
	n.agent.Break(onlyReports) // it would be heard if it were asked: the call would fail
	r, told := n.callReported(request{command: "ADD", netns: ns.Path()})
	r.want(t, 0)
	n.wantRedirected(ns, redirect.NFTables)
	if diff := cmp.Diff([]uint16{22},
		n.recorded("0a1b").Policy.Outbound.ExcludePorts); diff != "" {
		t.Errorf("recorded policy (-want +got):\n%s", diff)
	}
	if line := r.last(t); line["path"] != "file" || line["warnings"] != nil {
		t.Errorf("path %v, warnings %v; want the file and none", line["path"], line["warnings"])
	}
	told.Phases = nil
	if diff := cmp.Diff(agent.Outcome{Command: "ADD", Namespace: "shop", Name: "web-0", UID: uid,
		Outcome: "redirected", Source: "file"}, told); diff != "" {
		t.Errorf("the agent was told (-want +got):\n%s", diff)
	}
}

func TestAPodIsRedirectedByAStaleFileIfNobodyAnswers(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.files().Put(meshed(map[string]string{excluding: "22"}), "")
	n.agent.Break(onlyReports)
	r, told := n.callReported(request{command: "ADD", netns: ns.Path(),
		conf: map[string]any{"deadline": "1s"}})
	r.want(t, 0)
	n.wantRedirected(ns, redirect.NFTables)
	line := r.last(t)
	warnings, _ := line["warnings"].([]any)
	if line["path"] != "stale_file" || len(warnings) == 0 {
		t.Fatalf("path %v, warnings %v; want the stale file, and why", line["path"], warnings)
	}
	for _, word := range []string{"used the agent's file of the pod, which is stale", n.agent.Socket(),
		"no-kubeconfig", "remedy: "} {
		if text, _ := warnings[0].(string); !strings.Contains(text, word) {
			t.Errorf("the warning lacks %q: %v", word, warnings[0])
		}
	}
	if told.Outcome != "redirected" || told.Source != "stale_file" ||
		!strings.Contains(told.Message, "which is stale") {
		t.Errorf("the agent was told %+v", told)
	}
}

// Who has the pod does not count for what is wrong with it.
func TestAMistakeInAStaleFileIsRefusedAsOneOfThePod(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.files().Put(meshed(map[string]string{excluding: "x"}), "")
	n.agent.Break(onlyReports)
	r := n.call(request{command: "ADD", netns: ns.Path(), conf: map[string]any{"deadline": "1s"}})
	r.want(t, badPod.code, excluding, `"x"`)
	if line := r.last(t); line["path"] != "stale_file" || line["warnings"] == nil {
		t.Errorf("path %v, warnings %v; want the stale file, and why", line["path"],
			line["warnings"])
	}
	wantUntouched(t, ns)
}

func TestWhyAFileIsPassedOverIsLoggedForThoseWhoDebug(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]bool{"debug": true, "info": false} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			n.agent.Put(meshed(nil))
			n.files().Write(uid, "{}")
			r := n.call(request{command: "ADD", netns: ns.Path(),
				conf: map[string]any{"logLevel": level}})
			r.want(t, 0)
			var got bool
			for _, line := range r.lines {
				got = got || line["msg"] == "passed over pod file" && line["error"] != nil
			}
			if got != want || r.stderr == "" {
				t.Errorf("logged: %t, want %t: %s", got, want, r.stderr)
			}
		})
	}
}

// Most pods of most clusters are not ours, and the runtime says so.
func TestFilesAreOpenedForNoPodThatTheRuntimeTellsIsNotOurs(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	files := n.files()
	files.Put(meshed(nil), "")
	files.Refresh(0)
	watch := opened(t, filepath.Dir(n.agent.Socket()), files.Path(""), files.Path(uid),
		files.Path(podfile.FreshFile))
	r := n.call(request{command: "ADD", netns: ns.Path(), conf: told(map[string]string{"a": "b"})})
	r.want(t, 0)
	if path := r.last(t)["path"]; path != "runtime" || watch() {
		t.Errorf("path %v; want the runtime's, and no file opened", path)
	}
	r = n.call(request{command: "ADD", netns: ns.Path(),
		conf: told(map[string]string{statusKey: "{}"})})
	r.want(t, 0)
	if path := r.last(t)["path"]; path != "file" || !watch() {
		t.Errorf("path %v; want the file, and to see it opened", path)
	}
}

// opened watches files and directories. It returns a function that reports whether one was opened.
func opened(t *testing.T, paths ...string) func() bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	for _, path := range paths {
		if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN); err != nil {
			t.Fatal(err)
		}
	}
	return func() bool {
		n, _ := unix.Read(fd, make([]byte, 4096)) // nothing is an error
		return n > 0
	}
}
