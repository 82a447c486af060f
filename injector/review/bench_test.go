package review_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// A review of a pod of 4 KB, and what of it injection does not take: a pod that stays as it is.
func BenchmarkReview(b *testing.B) {
	template, err := os.ReadFile("../inject/render/testdata/istio-1.1.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"injected", "unchanged"} {
		pod := app()
		podtree.Set(pod, strings.Repeat("x", 4000), "metadata", "annotations", "example.com/note")
		if name == "unchanged" {
			podtree.Set(pod, "false", "metadata", "annotations", "sidecar.istio.io/inject")
		}
		body := marshal(b, reviewOf(pod))
		r := newRig(b, string(template))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				post(r.inject, body)
			}
			r.logged.TakeAll()
		})
	}
}
