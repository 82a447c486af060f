package validate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
	"github.com/sidecar-cni/sidecar-cni/injector/validate"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// asContainer is the variable by which this test binary runs as the init container does: what it
// holds are its options.
const asContainer = "SIDECAR_CNI_TEST_VALIDATE"

// container is what decides about the init container of a pod.
type container struct {
	As      netns.Identity
	Options validate.Options
}

// containerOf returns the container that Add puts into the pod of a request.
func containerOf(t testing.TB, r matrix.Request) container {
	t.Helper()
	annotations := podtree.Object{}
	for key, value := range r.Pod.Annotations {
		annotations[key] = value
	}
	pod := podtree.Object{"metadata": podtree.Object{"annotations": annotations}}
	inits, ordinary := []any{}, []any{}
	for _, c := range r.Pod.Spec.Containers {
		if c.Init {
			inits = append(inits, tree(c))
		} else {
			ordinary = append(ordinary, tree(c))
		}
	}
	pod["spec"] = podtree.Object{"initContainers": inits, "containers": ordinary}
	if err := validation.Add(pod, validation.Container{Image: "example.com/sidecar-cni:1"}); err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	first := podtree.List(pod, "spec", "initContainers")[0].(podtree.Object)
	user := func(key string) uint32 {
		return uint32(podtree.Get(first, "securityContext", key).(int64))
	}
	made := container{As: netns.Identity{UID: user("runAsUser"), GID: user("runAsGroup")}}
	args := podtree.List(first, "args")
	if _, err := fmt.Sscanf(args[1].(string), "--inbound-port=%d", &made.Options.Inbound); err != nil {
		t.Fatalf("%s: %v: %v", r.Name, args, err)
	}
	words := strings.Split(strings.TrimPrefix(args[2].(string), "--call="), ",")
	var err error
	if made.Options.Calls, err = validate.ParseCalls(words); err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	return made
}

// tree writes down what of a container decides.
func tree(c redirect.Container) podtree.Object {
	context, env := podtree.Object{}, []any{}
	if c.RunAsUser != nil {
		context["runAsUser"] = *c.RunAsUser
	}
	if c.RunAsGroup != nil {
		context["runAsGroup"] = *c.RunAsGroup
	}
	for name, value := range c.Env {
		env = append(env, podtree.Object{"name": name, "value": value})
	}
	return podtree.Object{"name": c.Name, "securityContext": context, "env": env}
}

// ended is how the container ended.
type ended struct {
	code           int
	stdout, stderr string
}

// The exit codes of its errors, as the program has them.
const notRedirected, otherwise = 126, 1

func (e ended) String() string {
	return fmt.Sprintf("exit code %d, %q, %q", e.code, e.stdout, e.stderr)
}

// run runs the container in a process of its own, without any capability. Its file is handed over
// opened, since its user may not see the folder that it is in.
func (c container) run(t testing.TB, ns *netns.NS) ended {
	t.Helper()
	cmd, stdout, stderr := c.command(t)
	var err error
	ns.Do(t, func() { err = cmd.Start() })
	if err == nil {
		err = cmd.Wait()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func (c container) command(t testing.TB) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	options, err := json.Marshal(c.Options)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), "setpriv", fmt.Sprintf("--reuid=%d", c.As.UID),
		fmt.Sprintf("--regid=%d", c.As.GID), "--clear-groups", "--inh-caps=-all",
		"--bounding-set=-all", "--no-new-privs", "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{program}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), asContainer + "=" + string(options)}
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// TestMain is the init container, or a process that forwards, where a test runs it in a process of
// its own.
func TestMain(m *testing.M) {
	var code int
	if line, ok := os.LookupEnv(asContainer); ok {
		code = validateAsMain(line)
	} else if line, ok := os.LookupEnv(asForwarder); ok {
		code = forwardAsMain(line)
	} else {
		code = m.Run()
	}
	os.Exit(code)
}

func validateAsMain(line string) (code int) {
	var options validate.Options
	err := json.Unmarshal([]byte(line), &options)
	if err == nil {
		options.Out = os.Stdout
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		defer stop()
		err = validate.Run(ctx, options)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, validate.ErrNotRedirected) {
		return notRedirected
	}
	return otherwise
}

// apply writes a policy's rules and waits until the kernel has the address ::6.
func apply(t testing.TB, ns *netns.NS, name string, rs redirect.Ruleset) {
	t.Helper()
	rules, err := backend.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	ns.Do(t, func() {
		if _, _, err := rules.Apply(context.Background(), rs); err != nil {
			t.Fatalf("apply: %v", err)
		}
		addresses, err := netlink.AddrList(nil, netlink.FAMILY_V6)
		if err != nil || len(addresses) == 0 {
			return // no IPv6
		}
		for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
			routes, err := netlink.RouteGet(net.ParseIP("::6"))
			if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the kernel has no local route to ::6")
			}
		}
	})
}

func policyOf(t testing.TB, r matrix.Request) redirect.Policy {
	t.Helper()
	d, err := redirect.Decide(r.Pod, r.Config)
	if err != nil || d.Skip != "" || d.AskMore {
		t.Fatalf("%s: not ours: %+v, %v", r.Name, d, err)
	}
	return d.Policy
}

// listen has a process in the way.
func listen(t testing.TB, pod *netns.Pod, at netip.Addr, port uint16) {
	t.Helper()
	pod.Listen(t, netns.Listener{Who: "another", As: netns.Identity{UID: 1000, GID: 1000},
		TCP: []uint16{port}, Addr: at})
}

// forward starts a process that forwards connections.
func forward(t testing.TB, ns *netns.NS, from, to string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{asForwarder + "=" + from + ">" + to}
	stdin, inErr := cmd.StdinPipe() // it ends with it
	stdout, outErr := cmd.StdoutPipe()
	err := errors.Join(inErr, outErr)
	if err == nil {
		ns.Do(t, func() { err = cmd.Start() })
	}
	if err == nil {
		_, err = stdout.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatalf("start forwarder: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
			t.Errorf("end forwarder: %v", err)
		}
	})
}

const asForwarder = "SIDECAR_CNI_TEST_FORWARD"

// forwardAsMain forwards until its standard input ends.
func forwardAsMain(line string) (code int) {
	from, to, _ := strings.Cut(line, ">")
	l, err := net.Listen("tcp", from)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go pass(client, to)
		}
	}()
	fmt.Print(".")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// pass passes on what either side says, until one of them ends it.
func pass(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, client) }()
	_, _ = io.Copy(client, server)
}
