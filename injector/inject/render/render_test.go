package render

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
)

// sample is the pod of the seeds' examples: sleep, with one port and one that is no TCP.
func sample(t testing.TB) Data {
	t.Helper()
	config, err := mesh.Parse([]byte("defaultConfig: {concurrency: 2, proxyMetadata: {A: b}}"))
	if err != nil {
		t.Fatal(err)
	}
	return Data{
		TypeMeta:       metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"},
		DeploymentMeta: metav1.ObjectMeta{Name: "sleep", Namespace: "shop"},
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"app": "sleep", "version": "v1"},
			Annotations: map[string]string{
				"a": "b", "networks": `[{"name":"one"}]`, "volumes": `{"v":{"mountPath":"/x"}}`,
			},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "sleeper",
			Containers: []corev1.Container{
				{Name: "app", Image: "docker.io/curl:8.1", Ports: []corev1.ContainerPort{
					{ContainerPort: 80}, {ContainerPort: 53, Protocol: "UDP"},
				}},
				{Name: "istio-proxy", Ports: []corev1.ContainerPort{{ContainerPort: 15090}}},
				{Name: "more", Ports: []corev1.ContainerPort{{ContainerPort: 8443, Protocol: "TCP"}}},
			},
		},
		ProxyConfig: config.DefaultConfig,
		MeshConfig:  config,
		Values:      chartValues(t),
		ProxyImage:  "docker.io/istio/proxyv2:1.28.0", ProxyInitImage: "docker.io/istio/init:1",
		ProxyUID: 1337, ProxyGID: 1338,
	}
}

func chartValues(t testing.TB) map[string]any {
	t.Helper()
	var tree map[string]any
	if err := yaml.Unmarshal(read(t, "today-values.yaml"), &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// configured are the templates of a file of testdata.
func configured(t testing.TB, name string) (old string, today map[string]string) {
	t.Helper()
	var config struct {
		Template  string            `json:"template"`
		Templates map[string]string `json:"templates"`
	}
	if err := yaml.Unmarshal(read(t, name), &config); err != nil {
		t.Fatal(err)
	}
	return config.Template, config.Templates
}

func execute(t testing.TB, text string, form Form, data Data) (string, error) {
	t.Helper()
	template, err := Parse("sidecar", text, form, map[string]string{"REGION": "north"})
	if err != nil {
		return "", err
	}
	out, err := template.Execute(data)
	return string(out), err
}

func mustExecute(t testing.TB, text string, form Form, data Data) string {
	t.Helper()
	out, err := execute(t, text, form, data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func BenchmarkExecute(b *testing.B) {
	data := sample(b)
	old, _ := configured(b, "istio-1.1.yaml")
	_, today := configured(b, "today.yaml")
	for _, test := range []struct {
		name, text string
		form       Form
	}{{"seeds", old, Seeds}, {"today", today["sidecar"], Today}} {
		b.Run(test.name, func(b *testing.B) {
			template, err := Parse("sidecar", test.text, test.form, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := template.Execute(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
