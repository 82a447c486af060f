//go:build e2e

package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const image = "cluster.local/echo:1"

func start(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	begin := time.Now()
	c := cluster.Start(t, o)
	t.Logf("the cluster started in %s", time.Since(begin).Round(10*time.Millisecond))
	return c
}

func pod(name, node string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 0
  containers: [{name: echo, image: %[3]s, imagePullPolicy: Never}]
---
`, name, node, image)
}

const service = `
apiVersion: v1
kind: Service
metadata: {name: b}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: b}
  ports: [{port: 80, targetPort: 8080}]
`

const daemonSet = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere}
spec:
  selector: {matchLabels: {app: everywhere}}
  template:
    metadata: {labels: {app: everywhere}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: echo, image: ` + image + `, imagePullPolicy: Never}]
`

// ready is the line by which TestKilled knows that there is something to be left behind.
const ready = "two pods are ready"

func TestTwoNodes(t *testing.T) {
	c := start(t, cluster.Options{Nodes: []cluster.NodeOptions{{Runtime: cluster.Containerd2},
		{Runtime: cluster.Containerd1}}})
	c.Load(t, cluster.Image{Name: image,
		Files:      map[string]string{"/echo": cluster.Program(t, "./testdata/echo")},
		Entrypoint: []string{"/echo"}})
	begin := time.Now()
	c.Apply(t, pod("a", "node0")+pod("b", "node1")+service)
	a := c.AwaitPod(t, "default", "a", cluster.Ready)
	b := c.AwaitPod(t, "default", "b", cluster.Ready)
	t.Logf("%s after %s", ready, time.Since(begin).Round(10*time.Millisecond))

	t.Run("a pod's log is readable", func(t *testing.T) {
		if diff := cmp.Diff("a listens\n", c.Kubectl(t, "logs", "a")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("runtimes are of both generations", func(t *testing.T) {
		versions := c.Kubectl(t, "get", "nodes", "-o",
			"jsonpath={.items[*].status.nodeInfo.containerRuntimeVersion}")
		if v := strings.Fields(versions); len(v) != 2 ||
			!strings.HasPrefix(v[0], "containerd://2.") ||
			!strings.HasPrefix(v[1], "containerd://1.6.") {
			t.Errorf("the nodes run %s", versions)
		}
	})
	t.Run("pods reach each other", func(t *testing.T) {
		for from, to := range map[string]*corev1.Pod{"a": b, "b": a} {
			if len(to.Status.PodIPs) != 2 {
				t.Fatalf("pod %s has the addresses %v, want one of each family", to.Name,
					to.Status.PodIPs)
			}
			for _, ip := range to.Status.PodIPs {
				expectHello(t, c, from, net.JoinHostPort(ip.IP, "8080"), to.Name)
			}
		}
	})
	t.Run("pods reach services", func(t *testing.T) {
		s, err := c.Client().CoreV1().Services("default").Get(t.Context(), "b", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, ip := range s.Spec.ClusterIPs {
			c.Await(t, "service at "+ip, func(context.Context) error {
				_, err := c.TryKubectl("", "exec", "a", "--", "/echo", "call",
					"http://"+net.JoinHostPort(ip, "80"))
				return err
			})
		}
	})
	t.Run("a DaemonSet rolls out", func(t *testing.T) {
		c.Apply(t, daemonSet)
		c.AwaitRollout(t, "default", "daemonset/everywhere")
	})
	t.Run("the test sees the node's files", func(t *testing.T) {
		for i := range 2 {
			if _, err := os.Stat(filepath.Join(c.Node(i).ConfDir(),
				"10-cluster.conflist")); err != nil {
				t.Error(err)
			}
		}
	})
	for i, name := range []string{"a", "b"} {
		t.Run("pod "+name+" survives a reboot", func(t *testing.T) { reboot(t, c, i, name) })
	}
	t.Run("a node joins with a taint", func(t *testing.T) {
		c.Apply(t, pod("waiting", "node2"))
		n := c.AddNode(t, cluster.NodeOptions{
			Taints: []corev1.Taint{{Key: "example.com/start-up",
				Effect: corev1.TaintEffectNoSchedule}}})
		if taints := c.Kubectl(t, "get", "node", n.Name, "-o",
			"jsonpath={.spec.taints[*].key}"); !strings.Contains(taints, "example.com/start-up") {
			t.Errorf("%s has the taints %q", n.Name, taints)
		}
		c.AwaitPod(t, "default", "waiting", cluster.Ready)
	})
	t.Run("an API server comes back", func(t *testing.T) {
		c.APIServer.Kill(t)
		if _, err := c.TryKubectl("", "get", "pods"); err == nil {
			t.Error("kubectl gets pods from an API server that is dead")
		}
		c.APIServer.Start(t)
		c.Kubectl(t, "get", "pods")
	})
	t.Run("a failure says why", func(t *testing.T) {
		c.Apply(t, strings.ReplaceAll(pod("broken", "node1"), image, "cluster.local/missing:1"))
		n := c.Node(0)
		n.Run(t, "", "rm", "/etc/kubernetes/kubelet.yaml")
		n.Kubelet.Kill(t)
		said := failure(t, func(t testing.TB) { n.Kubelet.Start(t) })
		for _, want := range []string{
			"for kubelet of node0 to be ready", "kubelet of node0 ended 40 times",
			"/etc/kubernetes/kubelet.yaml",
			"pod broken is Pending", "ErrImageNeverPull",
			`Container image "cluster.local/missing:1" is not present`,
		} {
			if !strings.Contains(said, want) {
				t.Errorf("no %q in:\n%s", want, said)
			}
		}
	})
}

// A witness is a test that is expected to fail.
type witness struct {
	testing.TB
	said strings.Builder
}

func (w *witness) Log(args ...any) { fmt.Fprintln(&w.said, args...) }

func (w *witness) Logf(format string, args ...any) { fmt.Fprintf(&w.said, format+"\n", args...) }

func (w *witness) Fatalf(format string, args ...any) {
	w.Logf(format, args...)
	runtime.Goexit()
}

// failure returns what f says when it fails.
func failure(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	w := &witness{TB: t}
	done := make(chan bool)
	go func() {
		defer close(done)
		f(w)
		t.Error("it did not fail")
	}()
	<-done
	return w.said.String()
}

func reboot(t *testing.T, c *cluster.Cluster, i int, name string) {
	n := c.Node(i)
	n.Run(t, "", "touch", "/run/volatile", "/var/lib/cni/durable")
	n.Reboot(t)
	if _, err := os.Stat(n.File("/run/volatile")); err == nil {
		t.Error("/run survived")
	}
	if _, err := os.Stat(n.File("/var/lib/cni/durable")); err != nil {
		t.Error(err)
	}
	p := c.AwaitPod(t, "default", name, func(p *corev1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) == 0 || s[0].RestartCount == 0 {
			return fmt.Errorf("pod %s was not restarted", p.Name)
		}
		return cluster.Ready(p)
	})
	other := map[string]string{"a": "b", "b": "a"}[name]
	for _, ip := range p.Status.PodIPs {
		expectHello(t, c, other, net.JoinHostPort(ip.IP, "8080"), name)
	}
}

func expectHello(t *testing.T, c *cluster.Cluster, from, address, who string) {
	t.Helper()
	got := c.Kubectl(t, "exec", from, "--", "/echo", "call", "http://"+address)
	if diff := cmp.Diff("hello from "+who+"\n", got); diff != "" {
		t.Errorf("%s calls %s: %s", from, address, diff)
	}
}

func TestOneFamily(t *testing.T) {
	for name, f := range map[string]cluster.Families{"IPv4": cluster.IPv4, "IPv6": cluster.IPv6} {
		t.Run(name, func(t *testing.T) {
			c := start(t, cluster.Options{Families: f,
				Nodes: []cluster.NodeOptions{{Runtime: cluster.Containerd2}}})
			c.Load(t, cluster.Image{Name: image,
				Files:      map[string]string{"/echo": cluster.Program(t, "./testdata/echo")},
				Entrypoint: []string{"/echo"}})
			c.Apply(t, pod("a", "node0")+pod("b", "node0"))
			c.AwaitPod(t, "default", "a", cluster.Ready)
			b := c.AwaitPod(t, "default", "b", cluster.Ready)
			if len(b.Status.PodIPs) != 1 ||
				strings.Contains(b.Status.PodIP, ":") != (f == cluster.IPv6) {
				t.Fatalf("the pod's addresses are %v", b.Status.PodIPs)
			}
			expectHello(t, c, "a", net.JoinHostPort(b.Status.PodIP, "8080"), "b")
		})
	}
}

func TestControlPlaneAlone(t *testing.T) {
	c := start(t, cluster.Options{})
	c.Kubectl(t, "create", "namespace", "strict")
	c.Kubectl(t, "label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
	c.Await(t, "the namespace's service account", func(ctx context.Context) error {
		_, err := c.Client().CoreV1().ServiceAccounts("strict").Get(ctx, "default",
			metav1.GetOptions{})
		return err
	})
	_, err := c.TryKubectl(pod("a", ""), "apply", "--namespace=strict", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("a pod that is not restricted, in a namespace that wants it: %v", err)
	}
	config := rest.AnonymousClientConfig(c.Config())
	config.Dial = c.Config().Dial
	config.BearerToken = strings.TrimSpace(c.Kubectl(t, "create", "token", "default",
		"--namespace=strict"))
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	me, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("system:serviceaccount:strict:default",
		me.Status.UserInfo.Username); diff != "" {
		t.Error(diff)
	}
}

// TestKilled kills another run of this test binary in the middle of TestTwoNodes.
func TestKilled(t *testing.T) {
	before := traces(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestTwoNodes$", "-test.v")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := []string{}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), ready) {
		said = append(said, lines.Text())
	}
	during := traces(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || lines.Err() != nil ||
		!strings.Contains(lines.Text(), ready) {
		t.Fatalf("the other run: %v\n%s", err, strings.Join(said, "\n"))
	}
	if len(during.Processes) < 10 || len(during.Cgroups) < 10 {
		t.Fatalf("a running cluster shows as %d processes and %d cgroups", len(during.Processes),
			len(during.Cgroups))
	}
	var left []string
	if !await.Within(2*time.Minute, func() bool {
		after := traces(t)
		left = after.left(before, during)
		for i, tunable := range after.Tunables {
			if tunable != before.Tunables[i] {
				left = append(left, tunable+" instead of "+before.Tunables[i])
			}
		}
		return len(left) == 0
	}) {
		t.Errorf("a cluster whose test was killed left behind:\n%s", strings.Join(left, "\n"))
	}
}

// Traces are what a cluster could leave on a machine.
type Traces struct {
	Processes []string // in other process namespaces than ours
	Mounts    string
	Links     []string
	Cgroups   []string
	Tunables  []string
}

// left is what came with a cluster and is still there. What came from elsewhere, meanwhile or
// since, is not the cluster's.
func (now Traces) left(before, during Traces) []string {
	all := func(tr Traces) []string {
		return slices.Concat(tr.Processes, strings.Split(tr.Mounts, "\n"), tr.Links, tr.Cgroups)
	}
	were, came := all(before), all(during)
	return slices.DeleteFunc(all(now), func(one string) bool {
		return slices.Contains(were, one) || !slices.Contains(came, one)
	})
}

func traces(t *testing.T) Traces {
	t.Helper()
	var found Traces
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if link, err := os.Readlink(p + "/ns/pid"); err == nil && link != own {
			command, _ := os.ReadFile(p + "/comm") // it may have ended
			found.Processes = append(found.Processes, p+" "+strings.TrimSpace(string(command)))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	found.Mounts = string(mounts)
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		found.Links = append(found.Links, l.Name)
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path, "sidecar-cni-cluster-") {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				found.Cgroups = append(found.Cgroups, path)
			}
		}
		return nil // what disappears meanwhile
	})
	for _, key := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic",
		"kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		value, err := os.ReadFile("/proc/sys/" + key)
		if err != nil {
			t.Fatal(err)
		}
		found.Tunables = append(found.Tunables, key+" "+strings.TrimSpace(string(value)))
	}
	return found
}
