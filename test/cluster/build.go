package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// A kit is a folder of programs that are built together. Its key changes with whatever it is built
// from.
type kit struct {
	name  string
	key   string
	build func(ctx context.Context, folder string) *exec.Cmd
	also  func(folder string) error
}

// A release is programs of one module, which go install fetches and builds.
type release struct {
	kit      string
	module   string
	version  string
	programs []string
	stamp    string // the variable that has the version
	cgo      bool   // runc speaks to libseccomp, without which the kubelet's sandboxes do not start
}

var releases = []release{
	{"containerd", "github.com/containerd/containerd/v2", "v2.4.2",
		[]string{"cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"},
		"github.com/containerd/containerd/v2/version.Version", false},
	{"runc", "github.com/opencontainers/runc", "v1.5.2", []string{"."}, "main.version", true},
	{"cni", "github.com/containernetworking/plugins", "v1.9.1",
		[]string{"plugins/main/bridge", "plugins/main/loopback", "plugins/ipam/host-local",
			"plugins/meta/portmap"},
		"github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion", false},
}

// kubeNames has the names that the program in kube/ answers to.
var kubeNames = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy",
	"kube-scheduler", "kubectl", "kubelet"}

const stripped = "-s -w"

// Build builds what is not in the cache yet, the first time 12 minutes of two cores, and says so on
// w. A second builder waits for the first. Start calls it; before that it is a way to do the
// waiting elsewhere.
func Build(ctx context.Context, w io.Writer) error {
	_, err := build(ctx, w)
	return err
}

// build returns the folders of the kits, by name.
func build(ctx context.Context, w io.Writer) (map[string]string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "sidecar-cni", "cluster")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	kits, err := kitsToHave(ctx)
	if err != nil {
		return nil, err
	}
	folders := map[string]string{}
	for _, k := range kits {
		folders[k.name] = filepath.Join(cache, k.name+"-"+k.key)
		if err := k.provide(ctx, folders[k.name], w); err != nil {
			return nil, err
		}
	}
	return folders, nil
}

func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

func kitsToHave(ctx context.Context) ([]kit, error) {
	source, err := sourceFolder(ctx)
	if err != nil {
		return nil, err
	}
	kube, err := kubeKit(filepath.Join(source, "kube"))
	if err != nil {
		return nil, err
	}
	pause, err := pauseKit(filepath.Join(source, "pause"))
	if err != nil {
		return nil, err
	}
	certManager, err := certManagerKit(filepath.Join(source, "certmanager"))
	if err != nil {
		return nil, err
	}
	kits := []kit{kube, pause, certManager}
	for _, r := range releases {
		kits = append(kits, r.asKit())
	}
	return kits, nil
}

// provide builds in a folder beside and renames it: what is in the cache is whole. Older versions
// of the kit go.
func (k kit) provide(ctx context.Context, folder string, w io.Writer) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	old, err := filepath.Glob(filepath.Join(filepath.Dir(folder), k.name+"-*"))
	if err != nil {
		return err
	}
	for _, o := range old {
		os.RemoveAll(o)
	}
	fmt.Fprintf(w, "building %s\n", k.name)
	draft := folder + ".draft"
	if out, err := k.build(ctx, draft).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", k.name, err, lastLines(string(out), 30))
	}
	if k.also != nil {
		if err := k.also(draft); err != nil {
			return err
		}
	}
	return os.Rename(draft, folder)
}

func (r release) asKit() kit {
	packages := []string{}
	for _, p := range r.programs {
		packages = append(packages, strings.TrimSuffix(r.module+"/"+p, "/.")+"@"+r.version)
	}
	return kit{name: r.kit, key: keyOf(fmt.Sprint(r)),
		build: func(ctx context.Context, folder string) *exec.Cmd {
			flags := fmt.Sprintf("%s -X %s=%s", stripped, r.stamp,
				strings.TrimPrefix(r.version, "v"))
			args := []string{"install", "-p", "2", "-trimpath", "-ldflags", flags}
			cgo := "CGO_ENABLED=0"
			if r.cgo {
				args, cgo = append(args, "-tags", "seccomp"), "CGO_ENABLED=1"
			}
			cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
			cmd.Env = append(os.Environ(), cgo, "GOFLAGS=", "GOWORK=off", "GOBIN="+folder)
			return cmd
		}}
}

// kubeKit is all of Kubernetes in one program, and links to it under the names that it answers to.
func kubeKit(source string) (kit, error) {
	parts, err := contents(source, "go.mod", "go.sum", "main.go")
	if err != nil {
		return kit{}, err
	}
	version := regexp.MustCompile(`k8s.io/kubernetes (v(\d+)\.(\d+)\.\d+)`).
		FindStringSubmatch(parts[0])
	if version == nil {
		return kit{}, errors.New("read version of Kubernetes: none in test/cluster/kube/go.mod")
	}
	flags := stripped
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X "+
			"%[1]s.gitMinor=%[4]s", p, version[1], version[2], version[3])
	}
	return kit{name: "kube", key: keyOf(parts...),
		build: func(ctx context.Context, folder string) *exec.Cmd {
			return compile(ctx, source, flags, filepath.Join(folder, "kube"))
		}, also: func(folder string) error {
			for _, name := range kubeNames {
				if err := os.Symlink("kube", filepath.Join(folder, name)); err != nil {
					return err
				}
			}
			return nil
		}}, nil
}

func pauseKit(source string) (kit, error) {
	parts, err := contents(source, "main.go")
	return kit{name: "pause", key: keyOf(parts...),
		build: func(ctx context.Context, folder string) *exec.Cmd {
			return compile(ctx, source, stripped, filepath.Join(folder, "pause"))
		}}, err
}

// compile builds the static program whose source is in a folder.
func compile(ctx context.Context, source, flags, to string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", "build", "-p", "2", "-trimpath", "-ldflags", flags, "-o",
		to, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	return cmd
}

func contents(folder string, names ...string) ([]string, error) {
	parts := []string{}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		parts = append(parts, string(content))
	}
	return parts, nil
}

func keyOf(parts ...string) string {
	sum := sha256.Sum256([]byte(runtime.Version() + "\x00" + strings.Join(parts, "\x00")))
	return fmt.Sprintf("%x", sum[:6])
}

// sourceFolder returns the folder of this package: tests run in those of their own packages.
func sourceFolder(ctx context.Context) (string, error) {
	const module = "github.com/sidecar-cni/sidecar-cni"
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "test", "cluster"), nil
}

// checkRequirements says what make e2e needs of the machine and does not find.
func checkRequirements(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root")
	}
	source, err := sourceFolder(ctx)
	if err != nil {
		return err
	}
	needs := filepath.Join(filepath.Dir(source), "needs", "needs.sh")
	out, err := exec.CommandContext(ctx, needs, "e2e").CombinedOutput()
	if err != nil {
		return fmt.Errorf("start a cluster: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
