package podfiles

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// meshed returns a pod as the agent's cache has it.
func meshed(name, uid string) *corev1.Pod {
	user := int64(1337)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(uid),
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "web"},
			{Name: "istio-proxy", SecurityContext: &corev1.SecurityContext{RunAsUser: &user}},
		}},
	}
}

// sized returns a pod that takes about so many bytes.
func sized(uid string, bytes int) *corev1.Pod {
	pod := meshed(uid, uid)
	const key = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
	pod.Annotations[key] = strings.Repeat("x", bytes)
	return pod
}

// world is what an agent knows.
type world struct {
	pods    map[string]*corev1.Pod
	classes map[string]string
	synced  bool
	follows bool
}

func newWorld(pods ...*corev1.Pod) *world {
	w := &world{pods: map[string]*corev1.Pod{}, synced: true, follows: true}
	w.put(pods...)
	return w
}

func (w *world) put(pods ...*corev1.Pod) {
	for _, pod := range pods {
		w.pods[pod.Namespace+"/"+pod.Name] = pod
	}
}

func (w *world) cache() cache {
	return cache{
		pods:    func() []*corev1.Pod { return slices.Collect(maps.Values(w.pods)) },
		handler: func(class string) string { return w.classes[class] },
		synced:  func() bool { return w.synced },
		follows: func() bool { return w.follows },
	}
}

// rig is an agent of a node.
type rig struct {
	t      testing.TB
	run    string
	world  *world
	files  *Files
	member *node.Membership
	reg    *prometheus.Registry
	logs   *observer.ObservedLogs
}

// newAgent starts an agent that takes charge of a node.
func newAgent(t testing.TB, run string, w *world) *rig {
	t.Helper()
	member, err := node.RunDir{Path: run}.Join()
	must(t, err)
	r := &rig{t: t, run: run, world: w, member: member, reg: prometheus.NewPedanticRegistry()}
	core, logs := observer.New(zap.InfoLevel)
	r.logs = logs
	r.files = &Files{
		cache: w.cache(), dir: podfile.Dir(run), page: 4 << 10, counts: newCounts(r.reg),
		log:    zap.New(core),
		member: func() *node.Membership { return r.member },
	}
	t.Cleanup(r.files.release)
	t.Cleanup(r.files.unmark)
	return r
}

func (r *rig) pass(due bool) {
	r.t.Helper()
	must(r.t, r.files.pass(due))
}

// end is the agent's end, however it came: the kernel closes its files.
func (r *rig) end() {
	r.files.release()
	r.member.Leave()
}

// pods returns the pods of the files by their uids, and everything else that is there by what it
// is.
func pods(t testing.TB, run string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(podfile.Dir(run))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	must(t, err)
	for _, entry := range entries {
		name := entry.Name()
		if name == podfile.FreshFile || name == markName {
			continue
		}
		data, err := os.ReadFile(filepath.Join(podfile.Dir(run), name))
		if err != nil {
			found[name] = "no file"
			continue
		}
		body, err := podfile.Decode(data)
		if err != nil {
			found[name] = err.Error()
			continue
		}
		pod, err := kubepod.Parse(body)
		must(t, err)
		found[name] = pod.Metadata.Name
		if pod.Metadata.UID != name {
			found[name] += ", of the uid " + pod.Metadata.UID
		}
		if more := len(pod.Metadata.Annotations) - 1; more > 0 {
			found[name] += fmt.Sprintf(", %d more annotations", more)
		}
		if pod.RuntimeHandler != "" {
			found[name] += ", handler " + pod.RuntimeHandler
		}
	}
	return found
}

func (r *rig) wantPods(want map[string]string) {
	r.t.Helper()
	if diff := cmp.Diff(want, pods(r.t, r.run)); diff != "" {
		r.t.Errorf("files (-want +got):\n%s", diff)
	}
}

// freshness is what the plugin makes of FreshFile.
func freshness(t testing.TB, run string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(podfile.Dir(run), podfile.FreshFile))
	if errors.Is(err, os.ErrNotExist) {
		return "none"
	}
	must(t, err)
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return "nobody holds it"
	case !errors.Is(err, unix.EWOULDBLOCK):
		t.Fatal(err)
	}
	var data bytes.Buffer
	_, err = data.ReadFrom(f)
	must(t, err)
	then, err := podfile.DecodeTime(data.Bytes())
	must(t, err)
	if age := sinceBoot() - then; age < 0 || age > podfile.FreshFor {
		return fmt.Sprint("of another time: ", age.Round(time.Second))
	}
	return "fresh"
}

func (r *rig) wantFresh(want string) {
	r.t.Helper()
	if got := freshness(r.t, r.run); got != want {
		r.t.Errorf("fresh: %s, want %s", got, want)
	}
}

// count returns how many pods are in a state.
func (r *rig) count(s state) int {
	return int(testutil.ToFloat64(r.files.counts.files.WithLabelValues(string(s))))
}
