package podfiles

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
)

// TestMain is also the process that a test kills.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "agent" {
		runtime.LockOSThread() // strace counts the system calls of each thread
		live(os.Args[2])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// alone is the test of a process that is none.
type alone struct{ testing.TB }

func (alone) Helper()                {}
func (alone) Cleanup(func())         {}
func (alone) Fatal(arguments ...any) { panic(arguments) }

// live is an agent that takes over, and whose pods change, come and go.
func live(run string) {
	r := newAgent(alone{}, run, newWorld(meshed("web-0", "u0"), meshed("web-1", "u1")))
	r.pass(false)
	r.world.pods["shop/web-1"] = changed()
	r.pass(false)
	delete(r.world.pods, "shop/web-0")
	r.world.put(meshed("web-2", "u2"))
	r.pass(true)
	r.world.put(sized("web-2", podfile.MaxFile)) // of another uid
	r.pass(true)
}

func changed() *corev1.Pod {
	pod := meshed("web-1", "u1")
	pod.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "1"
	return pod
}

// calls are those with which an agent changes what is on the disk or locked, by strace's names; a
// question mark is for what an architecture lacks.
var calls = []string{"openat", "write", "flock", "?rename,renameat,?renameat2", "unlinkat",
	"mkdirat"}

// whole are the files that there may be at any time, each as one of the agents had it.
var whole = map[string][]string{
	"u0":     {"web-0"},
	"u1":     {"web-1", "web-1, 1 more annotations"},
	"u2":     {"web-2"},
	"u9":     {"gone"},
	tempName: nil, // whatever is in it: no plugin opens it
}

// TestKilledBeforeAnyCall has strace kill an agent before each of its system calls that change
// something. What the agent before it has said to be fresh is then untouched, or not fresh any
// more; no file is half a file; and the next agent leaves what an undisturbed one would have.
func TestKilledBeforeAnyCall(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	reached := map[string]int{}
	for _, call := range calls {
		for nth := 1; ; nth++ {
			run := t.TempDir()
			old := newAgent(t, run, newWorld(meshed("web-0", "u0"), meshed("gone", "u9")))
			old.pass(false) // and it goes on holding its lock
			must(t, os.WriteFile(filepath.Join(podfile.Dir(run), tempName), nil, 0o600))
			before := pods(t, run)
			cmd := exec.CommandContext(t.Context(), "strace", "-f", "-qq", "-o", "/dev/null", "-e",
				"trace="+call, "-e", "inject="+call+":signal=SIGKILL:when="+strconv.Itoa(nth), self,
				"agent", run)
			out, err := cmd.CombinedOutput()
			if err == nil {
				break
			}
			ended, ok := errors.AsType[*exec.ExitError](err)
			if !ok || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%s %d: %v: %s", call, nth, err, out)
			}
			reached[call]++
			when := call + " " + strconv.Itoa(nth)
			if diff := cmp.Diff(before, pods(t, run)); diff != "" && freshness(t, run) == "fresh" {
				t.Errorf("killed before %s, the old agent vouches for (-before +after):\n%s", when,
					diff)
			}
			checkKilled(t, run, when)
			old.end()
		}
	}
	for _, call := range calls {
		if call != "mkdirat" && reached[call] < 4 {
			t.Errorf("killed before %v only", reached)
		}
	}
}

func checkKilled(t *testing.T, run, when string) {
	t.Helper()
	for name, what := range pods(t, run) {
		allowed, known := whole[name]
		if !known || allowed != nil && !slices.Contains(allowed, what) {
			t.Errorf("killed before %s, there is %s: %s", when, name, what)
		}
	}
	next := newAgent(t, run, newWorld(changed(), meshed("web-2", "u2")))
	next.pass(false)
	if diff := cmp.Diff(map[string]string{"u1": "web-1, 1 more annotations", "u2": "web-2"},
		pods(t, run)); diff != "" {
		t.Errorf("killed before %s, the next agent leaves (-want +got):\n%s", when, diff)
	}
	next.wantFresh("fresh")
}
