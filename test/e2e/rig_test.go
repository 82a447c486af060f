//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// rig is a cluster with the pods' programs on its nodes.
type rig struct {
	*cluster.Cluster
	nodes int
}

var (
	bothRuntimes = []cluster.NodeOptions{{Runtime: cluster.Containerd2},
		{Runtime: cluster.Containerd1}}
	oneNode = bothRuntimes[:1]
)

func start(t *testing.T, o cluster.Options) *rig {
	t.Helper()
	r := &rig{Cluster: cluster.Start(t, o), nodes: len(o.Nodes)}
	r.Load(t, cluster.Image{Name: actorImage,
		Files: map[string]string{"/actor": program(t, "./actor")}, Entrypoint: []string{"/actor"}})
	return r
}

// programs are built once for all tests.
var programs sync.Map

func program(t *testing.T, pkg string) string {
	t.Helper()
	build, _ := programs.LoadOrStore(pkg, sync.OnceValues(func() (string, error) {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("sidecar-cni-e2e-%d", os.Getpid()),
			filepath.Base(pkg))
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
		return path, nil
	}))
	path, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(filepath.Join(os.TempDir(), fmt.Sprintf("sidecar-cni-e2e-%d", os.Getpid())))
	os.Exit(code)
}

// loadHAProxy packs Debian's haproxy with the libraries that the linker says it needs.
func (r *rig) loadHAProxy(t *testing.T) {
	t.Helper()
	const haproxy = "/usr/sbin/haproxy"
	out, err := exec.Command("ldd", haproxy).Output()
	if err != nil {
		t.Fatalf("ldd %s (apt-get install -y --no-install-recommends haproxy): %v", haproxy, err)
	}
	files := map[string]string{haproxy: haproxy, "/etc/haproxy.cfg": "haproxy.cfg",
		"/actor": program(t, "./actor")}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			files[word] = word
		}
	}
	r.Load(t, cluster.Image{Name: haproxyImage, Files: files, Entrypoint: []string{"/actor"}})
}

// namespace makes a namespace that enforces a level of Pod Security, and waits until pods can be
// made in it.
func (r *rig) namespace(t *testing.T, name, level string) {
	t.Helper()
	labels := map[string]string{"pod-security.kubernetes.io/enforce": level}
	_, err := r.Client().CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Await(t, "the service account of namespace "+name, func(ctx context.Context) error {
		_, err := r.Client().CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// ready waits for a pod.
func (r *rig) ready(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	return r.AwaitPod(t, pod.Namespace, pod.Name, cluster.Ready)
}

// lines runs the actor in a pod's app, and reads what it prints.
func lines[T any](t *testing.T, r *rig, pod *corev1.Pod, args ...string) []T {
	t.Helper()
	all, err := tryLines[T](r, pod, args...)
	if err != nil {
		t.Fatalf("pod %s: %v", pod.Name, err)
	}
	return all
}

func tryLines[T any](r *rig, pod *corev1.Pod, args ...string) ([]T, error) {
	out, err := r.TryKubectl("",
		append([]string{"--namespace=" + pod.Namespace, "exec", pod.Name, "--container=app", "--",
			"/actor"}, args...)...)
	if err != nil {
		return nil, err
	}
	return decode[T](out)
}

func decode[T any](text string) ([]T, error) {
	all := []T{}
	for scan := bufio.NewScanner(strings.NewReader(text)); scan.Scan(); {
		var one T
		if err := json.Unmarshal(scan.Bytes(), &one); err != nil {
			continue // what a program says about itself
		}
		all = append(all, one)
	}
	return all, nil
}

// A talk is a call as caller and app have seen it, a question as asker and server have.
type talk struct{ Me, Who, Caller, Called string }

// A sighting is a connection as a proxy has seen it.
type sighting struct {
	Port           int
	Caller, Wanted string
}

func app(address string) string { return net.JoinHostPort(address, fmt.Sprint(appPort)) }

func host(address string) string {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return h
}

// sightings returns what a pod's proxy has seen.
func (r *rig) sightings(ctx context.Context, pod *corev1.Pod) ([]sighting, error) {
	out, err := r.Client().CoreV1().Pods(pod.Namespace).GetLogs(pod.Name,
		&corev1.PodLogOptions{Container: "istio-proxy"}).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return decode[sighting](string(out))
}

// expectSeen waits until a pod's proxy has seen a connection. Logs are read a little later than
// they are written.
func (r *rig) expectSeen(t *testing.T, pod *corev1.Pod, want sighting) {
	t.Helper()
	var all []sighting
	r.Await(t, fmt.Sprintf("the proxy of %s to see %+v", pod.Name, want),
		func(ctx context.Context) (err error) {
			all, err = r.sightings(ctx, pod)
			switch {
			case err != nil:
				return err
			case !slices.ContainsFunc(all, func(s sighting) bool { return matches(s, want) }):
				return fmt.Errorf("it has seen %d connections, the last: %+v", len(all),
					all[max(0, len(all)-3):])
			}
			return nil
		})
}

// matches compares; a wanted caller without a port is any port.
func matches(s, want sighting) bool {
	caller := s.Caller == want.Caller ||
		!strings.Contains(want.Caller, "]:") && net.ParseIP(want.Caller) != nil &&
			host(s.Caller) == want.Caller
	return s.Port == want.Port && s.Wanted == want.Wanted && caller
}

// expectUnseen reports a connection that the proxy has seen all the same.
func (r *rig) expectUnseen(t *testing.T, pod *corev1.Pod, caller, wanted string) {
	t.Helper()
	all, err := r.sightings(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Caller == caller && s.Wanted == wanted {
			t.Errorf("the proxy of %s has seen %+v", pod.Name, s)
		}
	}
}

// node returns the node that a pod runs on.
func (r *rig) node(t *testing.T, pod *corev1.Pod) *cluster.Node {
	t.Helper()
	for i := range r.nodes {
		if n := r.Node(i); n.Name == pod.Spec.NodeName {
			return n
		}
	}
	t.Fatalf("pod %s is on node %q", pod.Name, pod.Spec.NodeName)
	return nil
}

// processes returns those of a pod, by their cgroups.
func processes(n *cluster.Node, pod *corev1.Pod) ([]string, error) {
	all, err := filepath.Glob(n.File("/proc") + "/[0-9]*")
	if err != nil {
		return nil, err
	}
	found := []string{}
	for _, p := range all {
		cgroups, err := os.ReadFile(p + "/cgroup")
		if err == nil && strings.Contains(string(cgroups), "pod"+string(pod.UID)+"/") {
			found = append(found, filepath.Base(p))
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("pod %s: %w", pod.Name, errNoProcess)
	}
	return found, nil
}

var errNoProcess = errors.New("no process of it runs")

// inNetwork runs a program of the node in a pod's network.
func (r *rig) inNetwork(t *testing.T, pod *corev1.Pod, name string, args ...string) string {
	t.Helper()
	return inNetworkOf(t, r.node(t, pod), pod, append([]string{name}, args...)...)
}

// inNetworkOf runs a program of a node in a pod's network, as that of a process of the pod, of
// which some end.
func inNetworkOf(t *testing.T, n *cluster.Node, pod *corev1.Pod, command ...string) string {
	t.Helper()
	for range 20 {
		all, err := processes(n, pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, process := range all {
			network := "/proc/" + process + "/ns/net"
			_, ended := os.Readlink(n.File(network))
			if ended == nil {
				var out string
				if out, err = n.Try("", "nsenter",
					append([]string{"--net=" + network}, command...)...); err == nil {
					return out
				}
				_, ended = os.Readlink(n.File(network))
			}
			if ended == nil {
				t.Fatalf("%s: %v", n.Name, err)
			}
			t.Logf("process %s of %s has ended: %v", process, pod.Name, ended)
		}
		<-time.After(100 * time.Millisecond)
	}
	t.Fatalf("the network of pod %s cannot be entered", pod.Name)
	return ""
}

// rules lists what the kernel has for a pod.
func (r *rig) rules(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	return r.inNetwork(t, pod, "nft", "list", "ruleset")
}

// expectRedirected looks at the kernel: the app's connections go to the proxy, and so do callers'.
func (r *rig) expectRedirected(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	rules := r.rules(t, pod)
	for _, want := range []string{"table inet sidecar-cni", "15001", "15006"} {
		if !strings.Contains(rules, want) {
			t.Errorf("pod %s has no %q among its rules:\n%s", pod.Name, want, rules)
		}
	}
}

func (r *rig) expectUntouched(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if rules := r.rules(t, pod); strings.TrimSpace(rules) != "" {
		t.Errorf("pod %s, which is not meshed, has rules:\n%s", pod.Name, rules)
	}
}

// awaitSaid waits until a container has said something, the one that runs or the one before it: the
// kubelet starts again at once what has failed, and that has said nothing yet.
func (r *rig) awaitSaid(t *testing.T, pod *corev1.Pod, container, words string) {
	t.Helper()
	r.Await(t, fmt.Sprintf("%s of %s to say %q", container, pod.Name, words),
		func(ctx context.Context) error {
			var all []string
			for _, previous := range []bool{false, true} {
				log, err := r.Client().CoreV1().Pods(pod.Namespace).GetLogs(pod.Name,
					&corev1.PodLogOptions{Container: container, Previous: previous}).DoRaw(ctx)
				if strings.Contains(string(log), words) {
					return nil
				}
				all = append(all, fmt.Sprintf("%q, %v", log, err))
			}
			return fmt.Errorf("it says %s", strings.Join(all, "; before: "))
		})
}

// eachNode calls f once for each node.
func (r *rig) eachNode(f func(*cluster.Node)) {
	for i := range r.nodes {
		f(r.Node(i))
	}
}
