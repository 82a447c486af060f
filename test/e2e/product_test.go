//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const (
	release = "sidecar-cni"
	home    = "kube-system" // where it is installed

	otherImage   = "e2e.local/sidecar-cni"
	otherVersion = "other"
)

// helm builds Helm and returns its path.
var helm = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-modfile=../../tools/helm/go.mod", "-n", "helm").
		Output()
	return strings.TrimSpace(string(out)), err
})

// image builds the product's image and returns the archive.
var image = sync.OnceValues(func() (string, error) {
	if out, err := exec.Command("make", "-C", "../..", "image").CombinedOutput(); err != nil {
		return "", fmt.Errorf("make image: %w\n%s", err, out)
	}
	archive, err := os.ReadFile("../../bin/sidecar-cni.oci.tar")
	return string(archive), err
})

// loadProduct gives a node the product's image, under the name that the chart has for it: as if it
// had been pulled.
func loadProduct(t *testing.T, n *cluster.Node) {
	t.Helper()
	archive, err := image()
	if err != nil {
		t.Fatal(err)
	}
	n.Run(t, archive, "ctr", "--namespace=k8s.io", "images", "import",
		"--index-name=docker.io/sidecar-cni/sidecar-cni:"+version(t), "-")
}

// loadOther gives the nodes another version of the product, whose plugin has a byte more, which no
// program misses.
func (r *rig) loadOther(t *testing.T) (plugin string) {
	t.Helper()
	content, err := os.ReadFile(program(t, "../../plugin"))
	if err != nil {
		t.Fatal(err)
	}
	plugin = filepath.Join(t.TempDir(), "sidecar-cni")
	if err := os.WriteFile(plugin, append(content, '\n'), 0o755); err != nil {
		t.Fatal(err)
	}
	r.Load(t, cluster.Image{
		Name: otherImage + ":" + otherVersion,
		Files: map[string]string{"/sidecar-cni": plugin,
			"/sidecar-cni-installer": program(t, "../../installer"),
			"/sidecarctl":            program(t, "../../sidecarctl")},
		Entrypoint: []string{"/sidecar-cni-installer"},
	})
	return plugin
}

// other are the chart's values for that.
var other = []string{"image.repository=" + otherImage, "image.tag=" + otherVersion}

// helmRun runs Helm on the chart, as the administrator of the cluster.
func (r *rig) helmRun(t *testing.T, verb string, args ...string) string {
	t.Helper()
	out, err := r.tryHelm(verb, args...)
	if err != nil {
		r.tellProduct(t)
		t.Fatal(err)
	}
	return out
}

func (r *rig) tryHelm(verb string, args ...string) (string, error) {
	program, err := helm()
	if err != nil {
		return "", fmt.Errorf("build helm: %w", err)
	}
	all := []string{verb, release, "--kubeconfig=" + r.Kubeconfig(), "--namespace=" + home}
	return r.Try("", program, append(all, args...)...)
}

// chart returns the chart's folder, and the values that are not the default ones.
func chart(t *testing.T, values ...string) []string {
	t.Helper()
	folder, err := filepath.Abs("../../deployments/chart")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{folder, "--set", "image.repository=sidecar-cni/sidecar-cni"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return args
}

// install installs the product and waits until it is ready on every node.
func (r *rig) install(t *testing.T, values ...string) {
	t.Helper()
	r.eachNode(func(n *cluster.Node) { loadProduct(t, n) })
	r.tellAtTheEnd(t)
	r.helmRun(t, "install", chart(t, values...)...)
	r.awaitProduct(t)
}

func (r *rig) awaitProduct(t *testing.T) {
	t.Helper()
	r.AwaitRollout(t, home, "daemonset/"+release)
}

// tellAtTheEnd has a failed test tell what the product says.
func (r *rig) tellAtTheEnd(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			r.tellProduct(t)
		}
	})
}

func (r *rig) tellProduct(t *testing.T) {
	t.Helper()
	// In a cleanup the test's context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	pods, err := r.Client().CoreV1().Pods(home).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + release})
	if err != nil {
		t.Logf("the product's pods: %v", err)
		return
	}
	for _, p := range pods.Items {
		log, err := r.Client().CoreV1().Pods(home).GetLogs(p.Name,
			&corev1.PodLogOptions{TailLines: new(int64(25))}).DoRaw(ctx)
		if err != nil {
			log = []byte(err.Error())
		}
		counted, err := r.metricsOf(ctx, &p)
		if err != nil {
			counted = err.Error()
		}
		t.Logf("%s on %s: %s\n%s\n%s", p.Name, p.Spec.NodeName, p.Status.Phase, log, ours(counted))
	}
}

// ours picks the product's own metrics that are not zero.
func ours(metrics string) string {
	var b strings.Builder
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "sidecar_cni_") && !strings.Contains(line, "_bucket{") &&
			!strings.HasSuffix(line, " 0\n") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// agent returns the agent of a node, the youngest if there are two.
func (r *rig) agent(ctx context.Context, n *cluster.Node) (*corev1.Pod, error) {
	pods, err := r.Client().CoreV1().Pods(home).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=" + release + ",app.kubernetes.io/component=agent",
		FieldSelector: "spec.nodeName=" + n.Name,
	})
	if err != nil {
		return nil, err
	}
	var found *corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp == nil &&
			(found == nil || found.CreationTimestamp.Before(&p.CreationTimestamp)) {
			found = p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%s has no agent", n.Name)
	}
	return found, nil
}

// metricsOf are those of an agent's pod, or of an injector's.
func (r *rig) metricsOf(ctx context.Context, pod *corev1.Pod) (string, error) {
	port := "9466"
	if pod.Labels["app.kubernetes.io/component"] == "injector" {
		port = "9467"
	}
	out, err := r.Client().CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, port,
		"metrics", nil).DoRaw(ctx)
	return string(out), err
}

// readyz is what a node's agent says when it is asked whether it is ready.
func (r *rig) readyz(ctx context.Context, n *cluster.Node) (string, error) {
	pod, err := r.agent(ctx, n)
	if err != nil {
		return "", err
	}
	said, err := r.Client().CoreV1().Pods(home).ProxyGet("http", pod.Name, "9466", "readyz", nil).
		DoRaw(ctx)
	return string(said), err
}

// metric returns the sum of a node's samples whose name and labels contain all words.
func (r *rig) metric(ctx context.Context, n *cluster.Node, name string,
	words ...string) (float64, error) {
	pod, err := r.agent(ctx, n)
	if err != nil {
		return 0, err
	}
	text, err := r.metricsOf(ctx, pod)
	if err != nil {
		return 0, err
	}
	return sumOf(text, name, words...)
}

// sumOf adds up the samples of a name in a text of Prometheus' format whose labels contain all
// words.
func sumOf(text, name string, words ...string) (float64, error) {
	sum := 0.0
next:
	for line := range strings.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if before, _, _ := strings.Cut(series, "{"); !ok || before != name {
			continue
		}
		for _, w := range words {
			if !strings.Contains(series, w) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %q: %w", line, err)
		}
		sum += v
	}
	return sum, nil
}

// awaitMetric waits until a node's metric is as wanted.
func (r *rig) awaitMetric(t *testing.T, n *cluster.Node, wanted func(float64) bool, name string,
	words ...string) {
	t.Helper()
	r.Await(t, fmt.Sprintf("%s%v of %s", name, words, n.Name), func(ctx context.Context) error {
		v, err := r.metric(ctx, n, name, words...)
		if err == nil && !wanted(v) {
			err = fmt.Errorf("it is %v", v)
		}
		return err
	})
}

func positive(v float64) bool { return v > 0 }

// killAgent ends the process of a node's agent, as the kernel does when memory runs out. There may
// be none.
func killAgent(t *testing.T, n *cluster.Node) {
	t.Helper()
	signalAgent(t, n, "KILL")
}

// signalAgent sends a signal to the processes of a node's agents, and returns how many there are.
func signalAgent(t *testing.T, n *cluster.Node, signal string) int {
	t.Helper()
	all, err := filepath.Glob(n.File("/proc") + "/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for _, p := range all {
		command, _ := os.ReadFile(p + "/cmdline") // it may have ended
		if strings.HasPrefix(string(command), "/sidecar-cni-installer\x00run\x00") {
			if _, err := n.Try("", "kill", "-"+signal, filepath.Base(p)); err == nil {
				sent++
			} // else it has ended
		}
	}
	return sent
}

// readFile reads a file of a node.
func readFile(t *testing.T, n *cluster.Node, path string) string {
	t.Helper()
	content, err := os.ReadFile(n.File(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
