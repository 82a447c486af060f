//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const (
	pluginLog = "/var/log/sidecar-cni.log"
	podFiles  = "/run/sidecar-cni/pods"
)

// TestPodFiles takes away who answers the plugin. Sandboxes of meshed pods that are made meanwhile
// are redirected by what the agent has written down.
func TestPodFiles(t *testing.T) {
	r := start(t, cluster.Options{Nodes: bothRuntimes})
	r.install(t, "pluginConf.logFile="+pluginLog, "guard.mode=off", "repair.mode=off")
	r.namespace(t, "shop", "restricted")
	for _, tt := range []struct {
		name string
		f    func(*testing.T, []*corev1.Pod)
	}{
		{"everybody-is-there", r.fromFile},
		{"agent-killed-and-no-api-server", r.fromStaleFile},
		{"agents-away-and-no-api-server", r.withoutAgents},
		{"annotations-change-while-agents-are-away", r.changedMeanwhile},
		{"a-pod-is-gone", r.fileGone},
	} {
		// Pods of its own: a kubelet takes its time with one that ends often.
		if !t.Run(tt.name, func(t *testing.T) { tt.f(t, r.written(t, tt.name)) }) {
			return
		}
	}
	t.Run("uninstalled", r.filesGone)
}

// written returns a pod on each node, of which there is a file that is fresh.
func (r *rig) written(t *testing.T, name string) (pods []*corev1.Pod) {
	t.Helper()
	r.eachNode(func(n *cluster.Node) {
		p := on(n.Name, small("shop", name+"-"+n.Name))
		r.create(t, p)
		p = r.ready(t, p)
		r.awaitFile(t, p)
		pods = append(pods, p)
	})
	return pods
}

// awaitFile waits until a pod is written down, by an agent that vouches for it.
func (r *rig) awaitFile(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	n := r.node(t, pod)
	r.Await(t, "the file of "+pod.Name, func(context.Context) error {
		_, err := os.Stat(n.File(podFiles + "/" + string(pod.UID)))
		return err
	})
	r.awaitMetric(t, n, positive, "sidecar_cni_pod_files_refreshed_timestamp_seconds")
}

func (r *rig) fromFile(t *testing.T, pods []*corev1.Pod) {
	for _, p := range pods {
		r.expectPath(t, p, r.anew(t, p), "file")
	}
}

// fromStaleFile: an agent that starts without the API server does not know, and changes nothing.
func (r *rig) fromStaleFile(t *testing.T, pods []*corev1.Pod) {
	r.APIServer.Kill(t)
	for _, p := range pods {
		killAgent(t, r.node(t, p))
		r.expectPath(t, p, r.anew(t, p), "stale_file")
	}
	r.APIServer.Start(t)
	r.awaitProduct(t)
	for _, p := range pods {
		r.awaitFile(t, p)
	}
}

func (r *rig) withoutAgents(t *testing.T, pods []*corev1.Pod) {
	r.sendAgentsAway(t)
	r.APIServer.Kill(t)
	for _, p := range pods {
		r.expectPath(t, p, r.anew(t, p), "stale_file")
	}
	r.APIServer.Start(t)
	r.haveAgentsBack(t)
	r.awaitProduct(t)
}

// changedMeanwhile: what the file says is not believed as long as somebody knows better, also not
// as soon as the agent is dead.
func (r *rig) changedMeanwhile(t *testing.T, pods []*corev1.Pod) {
	for i, p := range pods {
		if i == 0 {
			killAgent(t, r.node(t, p))
		} else {
			r.sendAgentsAway(t)
		}
		r.exclude(t, p, "4711")
		since := r.anew(t, p)
		r.expectPort(t, p, "4711")
		for _, a := range r.additions(t, r.node(t, p), p)[since:] {
			if a.Path == "stale_file" {
				t.Errorf("pod %s was added by its stale file: %+v", p.Name, a)
			}
		}
	}
	r.expectPath(t, pods[1], len(r.additions(t, r.node(t, pods[1]), pods[1]))-1, "api")
	r.haveAgentsBack(t)
	r.awaitProduct(t)
}

// exclude has a pod exclude an outbound port, and waits until its kubelet, which tells the plugin
// of annotations, has heard of it.
func (r *rig) exclude(t *testing.T, pod *corev1.Pod, port string) {
	t.Helper()
	r.annotate(t, pod, `"`+excludePorts+`":"`+port+`"`)
	r.Await(t, "the kubelet to know "+port, func(ctx context.Context) error {
		var known corev1.PodList
		data, err := r.Client().CoreV1().RESTClient().Get().
			AbsPath("/api/v1/nodes/" + pod.Spec.NodeName + "/proxy/pods").Do(ctx).Raw()
		if err == nil {
			err = json.Unmarshal(data, &known)
		}
		if err == nil && !slices.ContainsFunc(known.Items, func(p corev1.Pod) bool {
			return p.UID == pod.UID && p.Annotations[excludePorts] == port
		}) {
			err = errors.New("it does not")
		}
		return err
	})
}

func (r *rig) annotate(t *testing.T, pod *corev1.Pod, annotation string) {
	t.Helper()
	patch := `{"metadata":{"annotations":{` + annotation + `}}}`
	if _, err := r.Client().CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name,
		types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) expectPort(t *testing.T, pod *corev1.Pod, port string) {
	t.Helper()
	if rules := r.rules(t, pod); !strings.Contains(rules, port) {
		t.Errorf("pod %s has no %s among its rules:\n%s", pod.Name, port, rules)
	}
}

func (r *rig) fileGone(t *testing.T, pods []*corev1.Pod) {
	for _, p := range pods {
		if err := r.Client().CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.Await(t, "the file of "+p.Name+" to go", func(context.Context) error {
			_, err := os.Stat(r.node(t, p).File(podFiles + "/" + string(p.UID)))
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return errors.Join(err, errors.New("it is there"))
		})
	}
}

func (r *rig) filesGone(t *testing.T) {
	r.helmRun(t, "uninstall")
	r.eachNode(func(n *cluster.Node) {
		if _, err := os.Stat(n.File(podFiles)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s of %s is still there: %v", podFiles, n.Name, err)
		}
	})
}

// anew kills the sandbox of a pod and waits until its next one runs the proxy, redirected. It does
// without the API server. It returns how many lines the plugin's log had before.
func (r *rig) anew(t *testing.T, pod *corev1.Pod) (logged int) {
	t.Helper()
	n := r.node(t, pod)
	logged = len(r.additions(t, n, pod))
	all, err := processes(n, pod)
	if err != nil {
		t.Fatal(err)
	}
	n.Try("", "kill", append([]string{"-KILL"}, all...)...) //nolint:errcheck // some end with others
	r.Await(t, "another sandbox of "+pod.Name, func(context.Context) error {
		switch {
		case len(r.additions(t, n, pod)) == logged:
			return errors.New("there was no ADD")
		case !runsProxy(n, pod):
			return errors.New("its proxy does not run yet")
		}
		return nil
	})
	r.expectRedirected(t, pod)
	return logged
}

// runsProxy reports whether the proxy of a pod runs, which is all that it has.
func runsProxy(n *cluster.Node, pod *corev1.Pod) bool {
	all, err := processes(n, pod)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(p string) bool {
		command, err := os.ReadFile(filepath.Join(n.File("/proc"), p, "cmdline"))
		return err == nil && strings.HasPrefix(string(command), "/actor\x00proxy")
	})
}

// An addition is a line of the plugin's log about ADD.
type addition struct{ Command, Pod, Path, Outcome string }

// additions are those of a pod, the latest last.
func (r *rig) additions(t *testing.T, n *cluster.Node, pod *corev1.Pod) []addition {
	t.Helper()
	f, err := os.Open(n.File(pluginLog))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []addition
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var one addition
		if err := json.Unmarshal(scan.Bytes(), &one); err != nil {
			t.Fatalf("%s: %v", scan.Text(), err)
		}
		if one.Command == "ADD" && one.Pod == pod.Namespace+"/"+pod.Name {
			all = append(all, one)
		}
	}
	return all
}

// expectPath wants the last ADD of a pod to have been decided by a source, and none to have failed
// since there were so many lines.
func (r *rig) expectPath(t *testing.T, pod *corev1.Pod, since int, path string) {
	t.Helper()
	all := r.additions(t, r.node(t, pod), pod)[since:]
	if len(all) == 0 || all[len(all)-1].Path != path ||
		slices.ContainsFunc(all, func(a addition) bool { return a.Outcome != "redirected" }) {
		t.Errorf("pod %s was added as %+v, want it redirected by %s", pod.Name, all, path)
	}
}
