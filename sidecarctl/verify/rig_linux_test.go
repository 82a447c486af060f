package verify_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verify"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
	"github.com/sidecar-cni/sidecar-cni/test/hostproc"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// server is set where this program is a process of a pod, which listens.
const server = "SIDECAR_CNI_TEST_SERVER"

func TestMain(m *testing.M) {
	if given, ok := os.LookupEnv(server); ok {
		if err := serve(given); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A process is one of a pod's.
type process struct {
	Name      string   // as ps shows it
	UID, GID  uint32   //
	Container string   // its id; "" for none
	Listen    []string // network and address, such as tcp4 0.0.0.0:15001

	// What it listens on takes connections to any address.
	Transparent bool
}

// The usual proxy, and an app.
var (
	proxy = process{Name: "envoy", UID: 1337, GID: 1337,
		Listen: []string{"tcp :15001", "tcp :15006"}}
	app = process{Name: "web", UID: 1000, GID: 1000, Container: "0c1d", Listen: []string{"tcp :8080"}}
)

func serve(given string) error {
	var p process
	if err := json.Unmarshal([]byte(given), &p); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/self/comm", []byte(p.Name), 0); err != nil {
		return err
	}
	config := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) (err error) {
		if !p.Transparent {
			return nil
		}
		err2 := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
			if !strings.HasSuffix(network, "4") && err == nil {
				err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
			}
		})
		if err != nil {
			return err
		}
		return err2
	}}
	for _, at := range p.Listen {
		network, addr, _ := strings.Cut(at, " ")
		var err error
		if strings.HasPrefix(network, "udp") {
			_, err = config.ListenPacket(context.Background(), network, addr)
		} else {
			_, err = config.Listen(context.Background(), network, addr)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stdout, "ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// pod is one that runs, redirected and recorded.
type pod struct {
	*netns.Pod
	t      *testing.T
	policy redirect.Policy
	ask    verify.Question
}

func newPod(t *testing.T, annotations map[string]string, env map[string]string) *pod {
	t.Helper()
	return newPodWith(t, netns.Options{}, annotations, env)
}

func newPodWith(t *testing.T, o netns.Options, annotations, env map[string]string) *pod {
	t.Helper()
	all := map[string]string{"sidecar.istio.io/status": "{}"}
	maps.Copy(all, annotations)
	facts := redirect.Pod{Namespace: "shop", Name: "web-0", Annotations: all,
		Spec: &redirect.Spec{Containers: []redirect.Container{{Name: "app"},
			{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, Env: env}}}}
	expected, ours := audit.Expect(facts, redirect.Defaults())
	if !ours || expected.Mistake != nil || expected.Judged != nil {
		t.Fatalf("expected %+v of a pod of ours: %v", expected, ours)
	}
	p := &pod{Pod: netns.NewPod(t, o), t: t, policy: expected.Policy}
	p.ask = verify.Question{Name: "shop/web-0", Place: p.open(), Proc: "/proc",
		Pod: audit.Pod{UID: "0f6f3c1e", Policy: expected.Policy},
		Auditor: audit.Auditor{Records: record.Dir(t.TempDir()), Backend: redirect.NFTables,
			Ports: redirect.Defaults().Ports}}
	p.ask.Pod.Addrs = append(p.ask.Pod.Addrs, netns.PodIPv4, netns.PodIPv6)
	p.program()
	return p
}

func (p *pod) open() *audit.Place {
	p.t.Helper()
	host, err := podns.FindHost("/proc", "the test")
	if err != nil {
		p.t.Fatal(err)
	}
	n, err := host.Open(p.Path())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(n.Close)
	return &audit.Place{NS: n}
}

// program does what ADD does.
func (p *pod) program() {
	p.t.Helper()
	rules := redirect.Compile(p.policy)
	nft, err := backend.Find(redirect.NFTables)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Do(p.t, func() { _, _, err = nft.Apply(p.t.Context(), rules) })
	if err != nil {
		p.t.Fatal(err)
	}
	id := p.ask.Place.NS.ID
	err = p.ask.Auditor.Records.Write(record.Record{
		Attachment: record.Attachment{Container: "0a1b", Interface: "eth0"},
		Netns:      record.Netns{Path: p.Path(), Device: id.Device, Inode: id.Inode},
		Pod:        record.Pod{Namespace: "shop", Name: "web-0", UID: p.ask.Pod.UID},
		Backend:    redirect.NFTables, Revision: record.Revision(rules), Policy: p.policy,
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// run starts processes in the pod, which listen when it returns.
func (p *pod) run(all ...process) {
	p.t.Helper()
	for _, one := range all {
		p.start(one)
	}
}

func (p *pod) start(one process) int {
	p.t.Helper()
	cgroup := ""
	if one.Container != "" {
		for _, hierarchy := range hostproc.Hierarchies(p.t) { // any will do
			cgroup = hostproc.Cgroup(p.t, hierarchy, "kubepods/pod"+p.ask.Pod.UID+"/"+one.Container)
			break
		}
	}
	given, err := json.Marshal(one)
	if err != nil {
		p.t.Fatal(err)
	}
	self, err := os.Open("/proc/self/exe") // where it is, others may not go
	if err != nil {
		p.t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = append(os.Environ(), server+"="+string(given))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: one.UID, Gid: one.GID, NoSetGroups: true}}
	if one.Transparent {
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.Do(p.t, func() { err = cmd.Start() })
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		p.t.Fatalf("process %s: %q, %v", one.Name, line, err)
	}
	if cgroup != "" {
		err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0)
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return cmd.Process.Pid
}

func (p *pod) look() verify.Answer {
	p.t.Helper()
	return verify.Look(p.t.Context(), p.ask)
}

// text is what people see, of answers that have gone through JSON as an agent's do.
func text(t *testing.T, all ...verify.Answer) string {
	t.Helper()
	var b strings.Builder
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var read verify.Answers
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	if err := view.Show(&b, view.Text, false, read); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func in(container string) func(*process) {
	return func(p *process) { p.Container = container }
}

func as(uid, gid uint32) func(*process) {
	return func(p *process) { p.UID, p.GID = uid, gid }
}

func hears(more ...string) func(*process) {
	return func(p *process) { p.Listen = append(p.Listen, more...) }
}

func addrs(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }
