package verify_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verify"
	"github.com/sidecar-cni/sidecar-cni/test/hostproc"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// Which pods bypass the mesh (istio/istio#55913): those that are redirected are only counted.
func TestWhichPodsBypassTheMesh(t *testing.T) {
	t.Parallel()
	fine, open := newPod(t, nil, nil), newPod(t, nil, nil)
	for _, p := range []*pod{fine, open} {
		p.run(proxy)
	}
	open.ask.Name = "shop/web-1"
	open.Run(t, "", "nft", "flush", "ruleset")
	left := verify.Look(t.Context(), verify.Question{Name: "shop/web-2",
		Judged: &audit.Judgement{Finding: audit.Excluded, Why: "its namespace is excluded"}})
	all := verify.Answers{fine.look(), open.look(), left, verify.NotOurs("shop/db-0", "no sidecar"),
		verify.NotReached("shop/web-3", errors.New("by cgroup: the pod has no process"), nil)}
	const want = `shop/web-1   missing
  no rule in its network namespace redirects to the sidecar: its traffic goes
  past the sidecar; remedy: delete the pod to have it created anew; with
  repair.mode=repair the agent redirects such pods itself

shop/web-2   excluded
  its namespace is excluded; remedy: move the pod, or take the namespace off the
  list of excluded ones, if this is not meant

shop/web-3   unreachable
  by cgroup: the pod has no process

1 of 5 pods redirected as they should be; not in the mesh: 1
`
	if diff := cmp.Diff(want, text(t, all...)); diff != "" || !all.Amiss() {
		t.Errorf("amiss: %v, (-want +got):\n%s", all.Amiss(), diff)
	}
	if rest := (verify.Answers{all[0], all[2], all[3]}); rest.Amiss() {
		t.Error("what somebody wanted is amiss")
	}
}

func TestAPodThatIsNotInTheMesh(t *testing.T) {
	t.Parallel()
	answer := verify.NotOurs("shop/db-0", "no sidecar was injected")
	const want = "shop/db-0   not in the mesh: no sidecar was injected\n"
	if got := text(t, answer); got != want || answer.Amiss() {
		t.Errorf("amiss: %v, %q, want %q", answer.Amiss(), got, want)
	}
}

// Who only has a network namespace has no more than what is in it.
func TestANamespaceWithoutARecord(t *testing.T) {
	t.Parallel()
	p := newPod(t, nil, nil)
	p.run(proxy)
	p.ask.Auditor.Records, p.ask.Pod.UID, p.ask.Pod.Addrs = "/nowhere", "", nil
	if got := text(t, p.look()); !strings.Contains(got,
		"redirected, all rules as the pod asks for, without a record\n") {
		t.Errorf("got\n%s", got)
	}
	p.ask.Pod.Mistake = errors.New("nobody knows what it asks for")
	answer := p.look()
	if answer.Rules.Finding != audit.Foreign || len(answer.Ports) > 0 || answer.Amiss() {
		t.Errorf("got %+v", answer)
	}
	const want = `shop/web-0   foreign
  rules of sidecar-cni redirect it, the first in chain ISTIO_REDIRECT of table
  inet sidecar-cni
  not looked at: whether the rules are what they should be, who listens on the
  proxy's ports, and which processes count as the proxy: nobody knows what it
  asks for
`
	if diff := cmp.Diff(want, text(t, answer)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Rules that nobody has recorded are compared with what the pod asks for.
func TestRulesWithoutARecordThatDiffer(t *testing.T) {
	t.Parallel()
	p := newPod(t, nil, nil)
	p.run(proxy)
	p.ask.Auditor.Records, p.ask.Auditor.Backend = "/nowhere", ""
	p.Run(t, "", "nft", "flush", "chain", "inet", "sidecar-cni", "ISTIO_INBOUND")
	answer := p.look()
	got := text(t, answer)
	for _, want := range []string{"shop/web-0   foreign\n", "differ: ISTIO_INBOUND: rule 1: missing:",
		"remedy: "} {
		if !strings.Contains(got, want) || !answer.Amiss() {
			t.Errorf("amiss: %v, it lacks %q:\n%s", answer.Amiss(), want, got)
		}
	}
}

// Where all processes of the node are seen, a namespace may have none.
func TestANamespaceWithoutAProcess(t *testing.T) {
	t.Parallel()
	p := newPod(t, nil, nil)
	p.ask.Proc = string(hostproc.New(t, netns.New(t)))
	got := text(t, p.look())
	if !strings.Contains(got, "  no process is in its network namespace; remedy: ") ||
		strings.Contains(got, "not looked at") {
		t.Errorf("got\n%s", got)
	}
}

func TestProcessesThatAreNotSeen(t *testing.T) {
	t.Parallel()
	p := newPod(t, nil, nil)
	p.run(proxy)
	for proc, want := range map[string]string{"": "hostPID", t.TempDir(): "hostPID",
		"/nowhere": "no such file"} {
		p.ask.Proc = proc
		answer := p.look()
		if len(answer.Lacks) != 1 || !strings.Contains(answer.Lacks[0], want) || answer.Amiss() ||
			len(answer.Ports) != 2 || answer.Ports[0].Listeners[0].UID != 1337 {
			t.Errorf("with %q: %+v", proc, answer)
		}
		if shown := text(t, answer, verify.NotOurs("shop/db-0", "no sidecar")); !strings.Contains(shown, "not looked at: its processes: ") {
			t.Errorf("with %q:\n%s", proc, shown)
		}
	}
}

// An agent with repair.mode=off has neither the rights nor the host's processes, and says so.
func TestWhatAnAgentWithoutRightsLacks(t *testing.T) {
	t.Parallel()
	if os.Getenv("SIDECAR_CNI_TEST_LACKS") != "" {
		fmt.Println(strings.Join(verify.Lacks("/proc"), "\n"))
		return
	}
	netns.RequireRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--mount-proc",
		"setpriv", "--bounding-set=-sys_admin,-sys_ptrace",
		self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "SIDECAR_CNI_TEST_LACKS=yes")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"the capabilities SYS_ADMIN, SYS_PTRACE\n", "they take hostPID\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "NET_ADMIN") {
		t.Errorf("it has that:\n%s", out)
	}
	// Here nothing is missing but what this machine may not have mounted.
	for _, lack := range verify.Lacks("/proc") {
		if strings.Contains(lack, "capabilities") {
			t.Errorf("here: %s", lack)
		}
	}
}

// What is lacked is said beside what was not reached, with what to do.
func TestAPodThatIsNotReached(t *testing.T) {
	t.Parallel()
	answer := verify.NotReached("shop/web-0", errors.New("shop/web-0: it was not found:\nno file"),
		[]string{"the node's processes: they take hostPID"})
	const want = `shop/web-0   unreachable
  it was not found:; no file; remedy: run this as root on the node, or in an
  agent, which has what is lacked here with any repair.mode but off: set it to
  report
  not looked at: the node's processes: they take hostPID
`
	if diff := cmp.Diff(want, text(t, answer)); diff != "" || !answer.Amiss() {
		t.Errorf("amiss: %v, (-want +got):\n%s", answer.Amiss(), diff)
	}
}

// A pod with a user namespace of its own has other numbers for its users than the node.
func TestAPodWithAUserNamespace(t *testing.T) {
	t.Parallel()
	p := newPodWith(t, netns.Options{UserNamespace: true}, nil, nil)
	p.run(with(proxy, as(101337, 101337)), process{Name: "nginx", UID: 101337, GID: 100007})
	if answer := p.look(); answer.Amiss() || len(answer.Lacks) != 1 ||
		!strings.Contains(answer.Lacks[0], "none is seen in the user namespace") {
		t.Errorf("with nobody in it: %+v", answer)
	}
	p.enterUserNamespace()
	answer := p.look()
	if got := text(t, answer); !strings.Contains(got, ":15001     uid 1337\n") {
		t.Errorf("got\n%s", got)
	}
	if len(answer.Findings) != 1 || answer.Findings[0].Kind != verify.AboutProcess ||
		answer.Findings[0].Process.UID != 1337 || answer.Findings[0].Process.GID != 7 {
		t.Errorf("findings %+v", answer.Findings)
	}
}

// Who makes a user namespace for himself is as much the proxy to the rules as before, whichever of
// the pod's processes is found first.
func TestAProcessWithAUserNamespace(t *testing.T) {
	t.Parallel()
	p := newPod(t, nil, nil)
	played := t.TempDir()
	p.ask.Proc = played
	for name, one := range map[string]process{"10000": {Name: "nginx", UID: 1337, GID: 7}, "9999": proxy} {
		dir, its := filepath.Join(played, name), fmt.Sprintf("/proc/%d", p.start(one))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"ns", "fd", "status", "cgroup"} {
			if err := os.Symlink(filepath.Join(its, file), filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{"uid_map", "gid_map"} { // as unshare -r has it
			if err := os.WriteFile(filepath.Join(dir, file), []byte("0 1337 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	answer := p.look()
	if len(answer.Findings) != 1 || answer.Findings[0].Kind != verify.AboutProcess ||
		answer.Findings[0].Process.Name != "nginx" || answer.Findings[0].Process.UID != 1337 {
		t.Errorf("findings %+v", answer.Findings)
	}
}

// enterUserNamespace keeps a process in the user namespace of the pod, as every pod has one.
func (p *pod) enterUserNamespace() {
	p.t.Helper()
	owner, err := unix.IoctlRetInt(p.Fd(), unix.NS_GET_USERNS)
	if err != nil {
		p.t.Fatal(err)
	}
	file := os.NewFile(uintptr(owner), "user namespace")
	defer file.Close()
	cmd := exec.Command("nsenter", "--user=/proc/self/fd/3", "cat")
	cmd.ExtraFiles = []*os.File{file}
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	// An echo means that nsenter has become cat.
	_, writeErr := in.Write([]byte{'.'})
	_, readErr := out.Read(make([]byte, 1))
	if err := errors.Join(writeErr, readErr); err != nil {
		p.t.Fatal(err)
	}
}

// A process may call itself anything.
func TestNamesOfProcessesAreHarmless(t *testing.T) {
	t.Parallel()
	p := newPod(t, nil, nil)
	p.run(proxy, process{Name: "\x1b[31mx\ny", UID: 1337, GID: 1337})
	answer := p.look()
	if len(answer.Findings) != 1 || answer.Findings[0].Kind != verify.AboutProcess {
		t.Fatalf("findings %+v", answer.Findings)
	}
	if got := text(t, answer); strings.Contains(got, "\x1b") || strings.Contains(got, "\ny") {
		t.Errorf("got %q", got)
	}
}

func TestManyProcesses(t *testing.T) {
	t.Parallel()
	p := newPod(t, nil, nil)
	p.run(proxy)
	for range 10 {
		p.run(process{Name: "worker", UID: 1337, GID: 1337})
	}
	answer := p.look()
	last := answer.Findings[len(answer.Findings)-1]
	if len(answer.Findings) != 9 || last.What != "and 2 processes more" {
		t.Errorf("findings %+v", answer.Findings)
	}
}

// Ports that are excluded, and groups that are not captured, leave fewer places to listen at.
func TestOnlyPortsThatRulesLeadToAreAskedFor(t *testing.T) {
	t.Parallel()
	p := newPod(t, map[string]string{
		"traffic.sidecar.istio.io/includeOutboundIPRanges": "",
		"traffic.sidecar.istio.io/includeInboundPorts":     "",
	}, nil)
	for _, port := range p.look().Ports {
		if port.Number == redirect.Defaults().Ports.Outbound {
			t.Errorf("asked for %+v", port)
		}
	}
}
