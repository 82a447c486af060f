package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/chain"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// appUser runs what no manifest describes.
const appUser = 1000

// demo is a node and what is shown of it.
type demo struct {
	t            testing.TB
	out          io.Writer
	node         *chain.Node
	api          *apiserver.Server
	self         string       // this program where the pods' users may run it
	tool         string       // sidecarctl
	bridge, ours chain.Object // the plugins
}

func newDemo(t testing.TB, out io.Writer) *demo {
	bin := t.TempDir()
	tool := filepath.Join(bin, "sidecarctl")
	err := errors.Join(chain.Build(t.Context(), bin),
		chain.BuildOurs(t.Context(), tool, "sidecarctl"))
	if err != nil {
		t.Fatalf("build the programs: %v: run this within the repository, with Go 1.26 or later",
			err)
	}
	d := &demo{t: t, out: out, node: chain.NewNode(t, bin), tool: tool,
		self: filepath.Join(bin, "demo")}
	d.api = apiserver.StartIn(t, d.node.Host)
	d.bridge = d.node.Bridge()
	d.ours = d.node.Entry(chain.Object{ // nobody has started an agent
		"agentSocket": filepath.Join(d.node.Dir, "agent.sock"), "kubeconfig": d.api.Kubeconfig(),
	})
	d.copySelf(bin)
	return d
}

func (d *demo) copySelf(bin string) {
	program, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(d.self, program, 0o755) //nolint:gosec // for others to run
	}
	if err == nil {
		err = os.Chmod(bin, 0o755) //nolint:gosec // for others to pass
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// pod is a network namespace that the chain has attached to the network.
type pod struct {
	name, address string
	ns            *netns.NS
	at            *libcni.RuntimeConf
}

// attach makes a pod and runs these plugins for it, as the runtime does.
func (d *demo) attach(object *corev1.Pod, plugins ...chain.Object) *pod {
	object.Namespace = "demo"
	d.api.Put(object)
	p := &pod{name: object.Name, ns: netns.New(d.t)}
	p.ns.RaiseLoopback(d.t)
	p.at = chain.Attachment(object, p.ns)
	result, err := d.node.Add(d.node.Network("1.0.0", plugins...), p.at)
	if err != nil {
		d.t.Fatalf("add pod %s to the network: %v", p.name, err)
	}
	have, err := current.GetResult(result)
	if err != nil || len(have.IPs) == 0 {
		d.t.Fatalf("pod %s got no address: %v", p.name, err)
	}
	p.address = have.IPs[0].Address.IP.String()
	return p
}

// start runs a role as a user of its own, without capabilities, in a pod. It dies with us.
func (d *demo) start(p *pod, uid uint32, role string) *exec.Cmd {
	cmd := d.command(uid, role)
	out, err := cmd.StdoutPipe()
	if err == nil {
		_, err = cmd.StdinPipe()
	}
	if err == nil {
		p.ns.Do(d.t, func() { err = cmd.Start() })
	}
	if err == nil {
		d.t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		_, err = out.Read(make([]byte, 16))
	}
	if err != nil {
		d.t.Fatalf("start %s in pod %s: %v", role, p.name, err)
	}
	return cmd
}

func (d *demo) command(uid uint32, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.t.Context(), d.self, args...)
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// call makes a call from a pod and returns whom it came through.
func (d *demo) call(p *pod, to string) []hop {
	cmd := d.command(appUser, "call", net.JoinHostPort(to, strconv.Itoa(appPort)))
	var hops []hop
	var out []byte
	var err error
	p.ns.Do(d.t, func() { out, err = cmd.Output() })
	if err == nil {
		err = json.Unmarshal(out, &hops)
	}
	if err != nil {
		d.t.Fatalf("call from pod %s: %v", p.name, err)
	}
	return hops
}
