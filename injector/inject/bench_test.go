package inject_test

import (
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
)

// A pod of 4 KB through each form of template.
func BenchmarkInject(b *testing.B) {
	pod := app()
	podtree.Set(pod, strings.Repeat("x", 1000), "metadata", "annotations", "example.com/note")
	env := []any{}
	for range 40 {
		env = append(env, podtree.Object{"name": "VARIABLE", "value": strings.Repeat("x", 40)})
	}
	container(pod, "app")["env"] = env
	if size := len(marshal(b, pod)); size < 4000 || size > 5000 {
		b.Fatalf("%d bytes", size)
	}
	run := func(name string, cfg *config.Config, req inject.Request) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := inject.Inject(cfg, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, cfg := range forms(b) {
		run(name, cfg, request(pod))
	}
	req := request(pod)
	req.Validation = &validation.Container{Image: validationImage}
	run("istio 1.1, validation", istio11(b), req)
}
