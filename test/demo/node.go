package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
)

// build makes the programs of the chain. The reference plugins are built where their module lies,
// with what it asks for.
func build(ctx context.Context, bin string) error {
	if _, err := command(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(bin, "sidecar-cni"), "./plugin"); err != nil {
		return fmt.Errorf("build the plugin: %w: run this within the repository, with Go 1.26 or later", err)
	}
	plugins, err := command(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/containernetworking/plugins")
	if err == nil {
		_, err = command(ctx, "go", "build", "-C", plugins, "-trimpath", "-o", bin+"/", "./plugins/main/bridge", "./plugins/ipam/host-local")
	}
	if err != nil {
		return fmt.Errorf("build the reference plugins: %w", err)
	}
	return nil
}

func command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// node is a network namespace that plays a node: it has the bridge, and the runtime works in it.
type node struct {
	dir  string
	ns   *os.File
	api  *api
	last map[string]time.Duration // of each plugin of the chain, in the last ADD
	said bytes.Buffer             // what the plugins wrote to standard error
}

func newNode(dir string) (*node, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	n := &node{dir: dir, ns: ns, last: map[string]time.Duration{}}
	err = within(ns, func() error { n.api, err = serveAPI(dir); return err })
	return n, err
}

// self is this program where the pods' users may run it.
func (n *node) self() string { return filepath.Join(n.dir, "bin", "demo") }

func (n *node) copySelf() error {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := os.WriteFile(n.self(), program, 0o755); err != nil { //nolint:gosec // for others to run
		return err
	}
	return os.Chmod(n.dir, 0o755) //nolint:gosec // for others to pass
}

func (n *node) close() {
	n.api.close()
	_ = n.ns.Close()
}

// newNamespace makes an anonymous network namespace: it is gone when the last descriptor and
// process are.
func newNamespace() (*os.File, error) {
	var ns *os.File
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w: this needs CAP_SYS_ADMIN", err)
		}
		var err error
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, err
	}
	return ns, within(ns, raiseLoopback)
}

// raiseLoopback does with an ioctl what a runtime's loopback plugin does.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// onThread runs f on a thread of its own, which ends with it, and so does whatever f did to the
// thread.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// within runs f in a network namespace; programs that it starts are there too.
func within(ns *os.File, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace: %w", err)
		}
		return f()
	})
}

// chain is the network's configuration, as the runtime would find it, with or without us.
func (n *node) chain(withUs bool) (*libcni.NetworkConfigList, error) {
	plugins := []map[string]any{{
		"type": "bridge", "bridge": "cni0", "isGateway": true,
		"ipam": map[string]any{"type": "host-local", "dataDir": filepath.Join(n.dir, "ipam"),
			"ranges": [][]map[string]string{{{"subnet": "10.88.0.0/24"}}}},
	}}
	if withUs {
		plugins = append(plugins, map[string]any{
			"type": "sidecar-cni", "kubeconfig": n.api.kubeconfig,
			"agentSocket": filepath.Join(n.dir, "agent.sock"), "stateDir": filepath.Join(n.dir, "state"),
			"capabilities": map[string]bool{annotationsCapability: true},
		})
	}
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "demo", "plugins": plugins})
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromBytes(conf)
}

const annotationsCapability = "io.kubernetes.cri.pod-annotations"

// add runs the chain for a pod, as the runtime does, and returns the pod's address.
func (n *node) add(ctx context.Context, p *pod, withUs bool) (string, error) {
	var result types.Result
	err := n.call(withUs, func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		var err error
		result, err = cni.AddNetworkList(ctx, list, p.attachment())
		return err
	})
	if err != nil {
		return "", fmt.Errorf("add pod %s to the network: %w", p.name, err)
	}
	have, err := current.GetResult(result)
	if err != nil || len(have.IPs) == 0 {
		return "", fmt.Errorf("pod %s got no address: %w", p.name, err)
	}
	return have.IPs[0].Address.IP.String(), nil
}

func (n *node) del(ctx context.Context, p *pod, withUs bool) error {
	return n.call(withUs, func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return cni.DelNetworkList(ctx, list, p.attachment())
	})
}

func (n *node) call(withUs bool, f func(*libcni.CNIConfig, *libcni.NetworkConfigList) error) error {
	list, err := n.chain(withUs)
	if err != nil {
		return err
	}
	n.said.Reset()
	cni := libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(n.dir, "bin")}, filepath.Join(n.dir, "cache"), &timed{
		DefaultExec: &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: &n.said}}, took: n.last,
	})
	return within(n.ns, func() error { return f(cni, list) })
}

// timed notes how long each plugin takes, its start included.
type timed struct {
	*invoke.DefaultExec
	version.PluginDecoder
	took map[string]time.Duration
}

func (t *timed) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	began := time.Now()
	out, err := t.DefaultExec.ExecPlugin(ctx, path, stdin, environ)
	t.took[filepath.Base(path)] = time.Since(began)
	return out, err
}

func (t *timed) Decode(data []byte) (version.PluginInfo, error) { return t.PluginDecoder.Decode(data) }

// outcome is the line that the plugin leaves for each call.
type outcome struct {
	Msg, Outcome, Reason, Path, Backend string
}

func (n *node) outcome() outcome {
	var o outcome
	_ = json.Unmarshal(bytes.TrimSpace(n.said.Bytes()), &o) // an empty outcome shows as such
	return o
}
