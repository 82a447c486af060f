package agent

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/await"
)

// folder returns a directory whose path is short enough for a socket.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") //nolint:usetesting // with the test in its name it is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func listenAt(t *testing.T, path string) *Socket {
	t.Helper()
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestOnlyRootGetsToTheSocket(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, dir string){
		"the directory is made": func(*testing.T, string) {},
		"the directory is there": func(t *testing.T,
			dir string) {
			mkdir(t, dir, 0o700)
		},
		"the directory is open to readers": func(t *testing.T,
			dir string) {
			mkdir(t, dir, 0o755)
		},
		"a socket was left half-way": func(t *testing.T,
			dir string) {
			mkdir(t, dir, 0o700)
			abandon(t, filepath.Join(dir, "agent.sock.new"))
		},
		"a socket was left by one that died": func(t *testing.T,
			dir string) {
			mkdir(t, dir, 0o700)
			abandon(t, filepath.Join(dir, "agent.sock"))
		},
		"a file that is no socket is replaced": func(t *testing.T,
			dir string) {
			mkdir(t, dir, 0o700)
			touch(t, filepath.Join(dir, "agent.sock"))
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(folder(t), "run")
			prepare(t, dir)
			s := listenAt(t, filepath.Join(dir, "agent.sock"))
			want := []any{fs.ModeDir | 0o700, fs.ModeSocket | 0o600, []string{"agent.sock"}}
			if diff := cmp.Diff(want,
				[]any{mode(t, dir), mode(t, s.path), names(t, dir)}); diff != "" {
				t.Errorf("modes and names (-want +got):\n%s", diff)
			}
		})
	}
}

func mkdir(t *testing.T, dir string, mode fs.FileMode) {
	t.Helper()
	if err := os.Mkdir(dir, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// abandon leaves a socket that nobody listens on.
func abandon(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

func TestDirectoriesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		prepare func(t *testing.T, dir string)
		want    string
	}{
		"everybody may write to it": {func(t *testing.T, dir string) { mkdir(t, dir, 0o777) },
			"mode 0777: want one that no other user may write to"},
		"its group may write to it": {func(t *testing.T, dir string) { mkdir(t, dir, 0o770) },
			"mode 0770: want"},
		"another user owns it": {func(t *testing.T, dir string) {
			mkdir(t, dir, 0o700)
			if err := os.Chown(dir, 65534, 65534); err != nil {
				t.Fatal(err)
			}
		}, "it is another user's"},
		"it is a link to elsewhere": {func(t *testing.T, dir string) {
			mkdir(t, dir+".real", 0o700)
			if err := os.Symlink(dir+".real", dir); err != nil {
				t.Fatal(err)
			}
		}, "open "},
		"it is a file": {func(t *testing.T, dir string) { touch(t, dir) },
			"not a directory"},
		"its name is too long": {func(t *testing.T, dir string) { mkdir(t, dir, 0o700) },
			"invalid argument"},
		"a directory is in its way": {func(t *testing.T, dir string) {
			mkdir(t, dir, 0o700)
			mkdir(t, filepath.Join(dir, "agent.sock"), 0o700)
		}, "file exists"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(folder(t), "run")
			test.prepare(t, dir)
			path := filepath.Join(dir, "agent.sock")
			if strings.Contains(name, "too long") {
				path = filepath.Join(dir, strings.Repeat("s", 100))
			}
			s, err := Listen(path)
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) ||
				!strings.Contains(err.Error(), "listen on "+path) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if info, err := os.Lstat(dir); err == nil && info.IsDir() {
				for _, left := range names(t, dir) {
					if strings.HasSuffix(left, ".new") {
						t.Errorf("%s was left behind", left)
					}
				}
			}
		})
	}
}

// dialAs connects as another user.
func dialAs(t *testing.T, uid int, path string) net.Conn {
	t.Helper()
	type result struct {
		conn net.Conn
		err  error
	}
	dialled := make(chan result)
	go func() {
		// It is never unlocked: the thread ends with the goroutine, and nobody else gets its uid.
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid),
			^uintptr(0)); errno != 0 {
			dialled <- result{nil, errno}
			return
		}
		conn, err := net.Dial("unix", path)
		dialled <- result{conn, err}
	}()
	r := <-dialled
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.conn.Close() })
	return r.conn
}

func TestOthersAreNotAnsweredEvenIfTheModeLetsThemThrough(t *testing.T) {
	t.Parallel()
	s := startServer(t, overSockets(t))
	for path, mode := range map[string]fs.FileMode{filepath.Dir(filepath.Dir(s)): 0o755,
		filepath.Dir(s): 0o755, s: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	conn := dialAs(t, 65534, s)
	_, _ = conn.Write([]byte("GET /v1/healthz HTTP/1.1\r\nHost: agent\r\n\r\n"))
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || os.IsTimeout(err) {
		t.Errorf("%d bytes, error %v; want a closed connection", n, err)
	}
	if got := status(t, s, http.MethodGet, "/v1/healthz", ""); got != http.StatusOK {
		t.Errorf("root got %d after that, want 200", got)
	}
}

// A surge: two agents share a node for a while.
func TestAgentsTakeTurnsWithoutAClosedDoor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(folder(t), "run", "agent.sock")
	serve := func() (stop func()) {
		r := overSockets(t)
		s := listenAt(t, path)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() {
			ended <- NewServer(r.known(), r.events, prometheus.NewRegistry(), zap.NewNop()).
				Serve(ctx, s)
		}()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the server ended with %v", err)
			}
		}
	}
	stop := serve()
	quit, asking := make(chan struct{}), sync.WaitGroup{}
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
				}
				if got := status(t, path, http.MethodGet, "/v1/healthz", ""); got != http.StatusOK {
					t.Errorf("answered %d, want 200", got)
					return
				}
			}
		})
	}
	for range 20 {
		next := serve()
		stop()
		stop = next
	}
	close(quit)
	asking.Wait()
	if diff := cmp.Diff([]string{"agent.sock"}, names(t, filepath.Dir(path))); diff != "" {
		t.Errorf("files while one serves (-want +got):\n%s", diff)
	}
	stop()
	if left := names(t, filepath.Dir(path)); left != nil {
		t.Errorf("the last one left %q, want nothing", left)
	}
}

func TestWhoHasAskedIsStillAnswered(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	r.api.Put(meshed("web-0", "5d1c"))
	asked := make(chan struct{})
	slow := apiserver.Slow(300 * time.Millisecond)
	r.api.Break(func(next http.Handler) http.Handler {
		close(asked) // one request is expected
		return slow(next)
	})
	socket := listenAt(t, filepath.Join(folder(t), "run", "agent.sock"))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- NewServer(r.known(), r.events, r.reg, zap.NewNop()).Serve(ctx, socket) }()
	silent, err := net.Dial("unix", socket.path) // says nothing, and does not keep the agent
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	answered := make(chan int)
	go func() {
		answered <- status(t, socket.path, http.MethodGet, "/v2/pods/shop/web-0?uid=5d1c",
			"")
	}()
	<-asked
	cancel()
	if got := <-answered; got != http.StatusOK {
		t.Errorf("answered %d, want 200", got)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the server ended with %v", err)
		}
	case <-time.After(await.Limit):
		t.Error("the server does not end")
	}
}

// The next agent may be about to give its socket the name when the last one closes its own.
func TestClosingTouchesNoFile(t *testing.T) {
	t.Parallel()
	s := listenAt(t, filepath.Join(folder(t), "run", "agent.sock"))
	touch(t, s.path+".new")
	_ = s.Close()
	if diff := cmp.Diff([]string{"agent.sock", "agent.sock.new"},
		names(t, filepath.Dir(s.path))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestServerSaysThatItsSocketEnded(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	s := listenAt(t, filepath.Join(folder(t), "run", "agent.sock"))
	_ = s.Close()
	err := NewServer(r.known(), r.events, prometheus.NewRegistry(), zap.NewNop()).Serve(t.Context(),
		s)
	if err == nil || !strings.Contains(err.Error(), "serve "+s.path) {
		t.Errorf("error %v, want one about the socket", err)
	}
}
