package podns

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// opened opens a namespace.
func opened(t *testing.T, path string) *Namespace {
	t.Helper()
	host, err := FindHost("/proc", "the plugin")
	if err != nil {
		t.Fatal(err)
	}
	n, err := host.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func here(t *testing.T) ID {
	t.Helper()
	id, err := Identify(ownNetns)
	if err != nil {
		t.Error(err)
	}
	return id
}

func TestWhoseNamespaceIsForeign(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		ns   *netns.NS
		want bool
	}{
		"of our own user namespace":       {netns.New(t), false},
		"of a user namespace within ours": {netns.NewInUserNamespace(t), true},
	} {
		n := opened(t, row.ns.Path())
		var inside bool
		if err := n.Do(func() error { inside = Foreign(); return nil }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := n.Foreign(); got != row.want || inside != row.want {
			t.Errorf("a namespace %s is foreign: %t, and seen from inside %t", name, got, inside)
		}
	}
}

// within is set where a test runs once more, in a process with other namespaces.
const within = "SIDECAR_CNI_TEST_WITHIN"

// again runs a test once more by a program that makes namespaces. The test finds a namespace of its
// own at /proc/self/fd/3.
func again(t *testing.T, program ...string) {
	t.Helper()
	file, err := os.Open(netns.New(t).Path())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	args := slices.Concat(program, []string{os.Args[0], "-test.run=^" + t.Name() + "$", "-test.v"})
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), within+"=yes"), []*os.File{file}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v:\n%s", err, out)
	}
}

// Below another user namespace the kernel does not tell who owns a namespace outside of it (EPERM).
func TestANamespaceWhoseOwnerCannotBeSeenIsForeign(t *testing.T) {
	t.Parallel()
	if os.Getenv(within) == "" {
		again(t, "unshare", "--user", "--map-root-user", "--net")
		return
	}
	if !opened(t, "/proc/self/fd/3").Foreign() {
		t.Error("it is not foreign")
	}
}

// A plugin that a runtime starts in another namespace finds the host's at process 1.
func TestTheNamespaceOfProcess1IsNotOpened(t *testing.T) {
	t.Parallel()
	if os.Getenv(within) == "" {
		again(t, "unshare", "--pid", "--fork", "--mount-proc", "sh", "-c",
			`nsenter --net=/proc/self/fd/3 "$@"; exit $?`, "sh")
		return
	}
	host, err := FindHost("/proc", "the plugin")
	if err != nil || host.Unknown != nil {
		t.Fatal(err, host.Unknown)
	}
	_, err = host.Open("/proc/1/ns/net")
	if !errors.Is(err, ErrHost) || !strings.Contains(err.Error(), "process 1 runs in it") {
		t.Errorf("opened: %v", err)
	}
}

func TestWhatIsNotOpened(t *testing.T) {
	t.Parallel()
	proc, first := t.TempDir(), netns.New(t).Path()
	if err := errors.Join(os.MkdirAll(proc+"/1/ns", 0o755),
		os.Symlink(first, proc+"/1/ns/net")); err != nil {
		t.Fatal(err)
	}
	host, err := FindHost(proc, "the agent")
	if err != nil || host.Unknown != nil {
		t.Fatal(err, host.Unknown)
	}
	for path, want := range map[string]struct {
		kind error
		text string
	}{
		first:        {ErrHost, "it is the host's: process 1 runs in it"},
		ownNetns:     {ErrHost, "it is the host's: the agent runs in it"},
		"/nowhere":   {os.ErrNotExist, "no such file"},
		"/etc/hosts": {ErrNotNamespace, "it is no namespace"},

		"/proc/self/ns/mnt": {ErrNotNetwork, "it is a namespace, but no network namespace"},
	} {
		n, err := host.Open(path)
		if err == nil {
			n.Close()
		}
		if !errors.Is(err, want.kind) ||
			!strings.Contains(err.Error(), `open network namespace "`+path+`": `+want.text) {
			t.Errorf("%s: %v, want %q in it", path, err, want.text)
		}
	}
}

// Where the first process cannot be seen, what is its namespace is not known.
func TestTheHostIsNotKnown(t *testing.T) {
	t.Parallel()
	for _, proc := range []string{"", "/nowhere"} {
		host, err := FindHost(proc, "the agent")
		if err != nil || host.Unknown == nil {
			t.Errorf("host by %q: %v, %v", proc, err, host.Unknown)
		}
		if _, err := host.Open(ownNetns); !errors.Is(err, ErrHost) {
			t.Errorf("host by %q: opened its own: %v", proc, err)
		}
	}
}

func TestAFunctionRunsInTheNamespace(t *testing.T) {
	t.Parallel()
	n, oops := opened(t, netns.New(t).Path()), errors.New("oops")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, thread := here(t), unix.Gettid()
	if home == n.ID {
		t.Fatal("the test runs in the namespace")
	}
	for name, row := range map[string]struct {
		enter func(func() error) error
		moved bool // the caller's thread
	}{
		"on the caller's thread": {n.Do, true},
		"on another thread":      {func(do func() error) error { return n.DoOn(Apart, do) }, false},
	} {
		err := row.enter(func() error {
			if at := here(t); at != n.ID {
				t.Errorf("%s: it runs in %v, want %v", name, at, n.ID)
			}
			if same := unix.Gettid() == thread; same != row.moved {
				t.Errorf("%s: that is the caller's: %t", name, same)
			}
			return oops
		})
		if !errors.Is(err, oops) || here(t) != home {
			t.Errorf("%s: came back to %v with %v; want %v, %v", name, here(t), err, home, oops)
		}
		err = row.enter(func() error { panic("out of hand") })
		panicked, ok := errors.AsType[*Panic](err)
		if !ok || panicked.Error() != "panic: out of hand" ||
			!bytes.Contains(panicked.Stack, []byte("TestAFunctionRuns")) {
			t.Errorf("%s: a panic came to %v", name, err)
		}
		if at := here(t); at != home {
			t.Errorf("%s: after a panic the thread is in %v, want %v", name, at, home)
		}
	}
}

// A thread that may not go back is never used again, and the caller hears of it.
func TestAThreadThatCannotComeBack(t *testing.T) {
	t.Parallel()
	n, thread := opened(t, netns.New(t).Path()), 0
	err := n.DoOn(Apart, func() error {
		thread = unix.Gettid()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			return err
		}
		data[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
		return unix.Capset(&header, &data[0])
	})
	if err == nil || !strings.Contains(err.Error(), "leave network namespace: operation not "+
		"permitted") {
		t.Fatalf("it came back: %v", err)
	}
	for range 100 {
		done := make(chan int)
		go func() { done <- unix.Gettid() }()
		if tid := <-done; tid == thread {
			t.Fatal("something else runs on that thread")
		}
	}
}
