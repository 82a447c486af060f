package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/cgroup"
)

const (
	// fullNode is how many pods a node may have, largestPod what etcd takes, and
	// largestAnnotations what the API server takes of them together.
	fullNode           = 250
	largestPod         = 3 << 19
	largestAnnotations = 256 << 10
)

// chartLimit is the limit of the agent's memory that the chart sets.
func chartLimit(t *testing.T) int64 {
	t.Helper()
	values, err := os.ReadFile("../deployments/chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^  limits: \{memory: (\d+)Mi\}$`).FindSubmatch(values)
	if found == nil {
		t.Fatal("values.yaml has no limit of memory")
	}
	limit, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return limit << 20
}

// cidrs is a list of networks of so many bytes at most, and no more than a pod may have: of a list
// that is refused nothing is kept.
func cidrs(size int) string {
	var b strings.Builder
	for i := 0; i < redirect.MaxRules-100 && b.Len() < size-20; i++ {
		fmt.Fprintf(&b, "10.%d.%d.%d/32,", i>>16&255, i>>8&255, i&255)
	}
	return strings.TrimSuffix(b.String(), ",")
}

const excluded = "traffic.sidecar.istio.io/excludeOutboundIPRanges"

// largest fills a pod up with what add returns, as much as the API server takes.
func largest(t *testing.T, pod *corev1.Pod, add func(*corev1.Pod, int)) *corev1.Pod {
	t.Helper()
	status := pod.Annotations["sidecar.istio.io/status"]
	if _, ok := pod.Annotations["sidecar.istio.io/status"]; ok {
		pod.Annotations[excluded] = cidrs(largestAnnotations - len(excluded) - len(status) - 100)
	}
	for pod.Size() < largestPod-4<<10 {
		add(pod, largestPod-2<<10-pod.Size())
	}
	if pod.Size() > largestPod {
		t.Fatalf("the pod has %d bytes, which etcd does not take", pod.Size())
	}
	return pod
}

func proxyOf(pod *corev1.Pod) *corev1.Container { return &pod.Spec.Containers[1] }

// Pods may be as large as the API server takes them, and it is not the administrator who writes
// them.
func TestANodeFullOfTheLargestPods(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct {
		pods, answer int
		add          func(*corev1.Pod, int)
	}{
		"variables of the proxy": {fullNode, http.StatusOK, func(p *corev1.Pod, n int) {
			one := corev1.EnvVar{Name: "A", Value: strings.Repeat("x", n-100)}
			proxyOf(p).Env = append(proxyOf(p).Env, one)
		}},
		"decisive variables": {fullNode, http.StatusServiceUnavailable, func(p *corev1.Pod, n int) {
			proxyOf(p).Env = append(proxyOf(p).Env, corev1.EnvVar{
				Name: "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", Value: strings.Repeat("1", n-100),
			})
		}},
		"many small variables": {fullNode / 16, http.StatusOK, func(p *corev1.Pod, _ int) {
			for i := range 50 {
				app := &p.Spec.Containers[0]
				app.Env = append(app.Env, corev1.EnvVar{Name: fmt.Sprint("A", i)})
			}
		}},
		"many containers": {fullNode / 16, http.StatusServiceUnavailable,
			func(p *corev1.Pod, _ int) {
				for range 20 {
					name := fmt.Sprint("c", len(p.Spec.Containers))
					p.Spec.Containers = append(p.Spec.Containers,
						corev1.Container{Name: name, Image: "a"})
				}
			}},
		"large files": {fullNode, http.StatusOK, func(p *corev1.Pod, n int) {
			p.Annotations[excluded] = cidrs(60 << 10)
			one := corev1.EnvVar{Name: "A", Value: strings.Repeat("x", n-100)}
			proxyOf(p).Env = append(proxyOf(p).Env, one)
		}},
		"arguments, and no sidecar": {fullNode, http.StatusOK, func(p *corev1.Pod, n int) {
			delete(p.Annotations, "sidecar.istio.io/status")
			p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args,
				strings.Repeat("x", n-100))
		}},
	}
	for name, kind := range kinds {
		for _, streamed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streamed: %v", name, streamed), func(t *testing.T) {
				r := newRig(t, map[string]string{"10-pods.conflist": bridge})
				if !streamed {
					r.api.WithoutWatchLists()
				}
				pod := largest(t, meshed("web"), kind.add)
				pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.22.0.9"}
				for i := range kind.pods {
					one := *pod
					one.ObjectMeta = metav1.ObjectMeta{
						Namespace: "shop", Name: fmt.Sprint("web-", i),
						UID:         types.UID(fmt.Sprint(i)),
						Annotations: pod.Annotations,
					}
					r.api.Put(&one)
				}
				group := cgroup.New(t, chartLimit(t))
				run := onTmpfs(t)
				d := r.startBy(group.Command, "--repair", "report", "--run-dir", run)
				defer d.kill() // before the cgroup goes
				await.Until(t, "all pods are cached", func() bool {
					return d.metric("sidecar_cni_cached_pods") == strconv.Itoa(kind.pods)
				})
				await.Until(t, "they were looked at", func() bool {
					return d.metric(`sidecar_cni_repair_passes_total{result="complete"}`) != "0"
				})
				r.askForAll(filepath.Join(run, "agent.sock"), kind.pods, kind.answer)
				await.Until(t, "the files are fresh", func() bool {
					return freshness(podfile.Dir(run)) == "fresh"
				})
				if kills := group.Kills(t); kills > 0 {
					t.Errorf("the kernel ended %d processes", kills)
				}
				written := d.metric(`sidecar_cni_pod_files{state="written"}`)
				if name == "large files" && (len(written) != 2 ||
					d.metric(`sidecar_cni_pod_files{state="no_room"}`) == "0") {
					t.Errorf("%s files: want so many that there is no room", written)
				}
				t.Logf("at most %d MiB, with %s files of pods", group.Most(t)>>20, written)
			})
		}
	}
}

// onTmpfs makes a directory whose files count as their writer's memory, as those in /run do.
func onTmpfs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "run-") //nolint:usetesting // /tmp may be on a disk
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// askForAll asks the agent for the pods of a full node, as many at a time as start together.
func (r *rig) askForAll(socket string, pods, answer int) {
	r.t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	await.Until(r.t, "the socket is there", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	var all errgroup.Group
	all.SetLimit(32)
	for i := range pods {
		all.Go(func() error {
			resp, err := client.Get(fmt.Sprintf("http://agent/v2/pods/shop/web-%d?uid=%d", i, i))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				return err
			}
			if resp.StatusCode != answer {
				return fmt.Errorf("pod %d: %s", i, resp.Status)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		r.t.Error(err)
	}
}
