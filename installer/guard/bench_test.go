package guard_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/nriserver"
)

// BenchmarkSandbox is what a sandbox's start takes longer with the guard, as the runtime sees it:
// the median and the longest. Beside each, 249 other pods have records.
func BenchmarkSandbox(b *testing.B) {
	netns.RequireRoot(b)
	for _, kind := range []struct {
		name    string
		pod     func(name string) *corev1.Pod
		known   bool // by a record
		outcome string
	}{
		{"not ours", func(name string) *corev1.Pod {
			pod := meshed(name, nil)
			delete(pod.Annotations, statusKey)
			return pod
		}, false, "skipped"},
		{"recorded", func(name string) *corev1.Pod { return meshed(name, nil) }, true, "recorded"},
		{"looked into", func(name string) *corev1.Pod {
			pod := meshed(name, nil)
			pod.Spec.InitContainers = []corev1.Container{{Name: "istio-init"}}
			return pod
		}, false, "skipped"},
		{"redirected", func(name string) *corev1.Pod { return meshed(name, nil) }, false,
			"redirected"},
	} {
		b.Run(kind.name, func(b *testing.B) {
			n := newNode(b)
			n.listen(nriserver.Options{})
			n.guard()
			n.awaitConnected()
			write := func(container string, at record.Netns) {
				if err := n.config.Records.Write(record.Record{Attachment: record.Attachment{
					Container: container, Interface: record.MainInterface}, Netns: at,
					Backend: redirect.NFTables}); err != nil {
					b.Fatal(err)
				}
			}
			for i := range 249 {
				write(fmt.Sprint("other", i), record.Netns{Path: "/x", Inode: uint64(i)})
			}
			var all []time.Duration
			for b.Loop() {
				b.StopTimer()
				ns := netns.New(b)
				s := n.sandbox(kind.pod(fmt.Sprint("web-", len(all))), ns)
				if kind.known {
					write(s.ID, identify(b, ns))
				}
				b.StartTimer()
				took, err := n.runtime.RunPodSandbox(s)
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, took)
			}
			n.wantCounted("start", kind.outcome, len(all))
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs/median")
			b.ReportMetric(float64(all[len(all)-1].Microseconds()), "µs/longest")
		})
	}
}
