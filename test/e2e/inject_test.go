//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/deployments/chart/injection"
	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/test/podgen"
)

// A webManifest has the API's defaults left out, so that what comes back from the API differs.
const webManifest = `# what a mesh is put around
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: injected
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
    spec:
      terminationGracePeriodSeconds: 1
      automountServiceAccountToken: false
      containers:
      - name: app # a comment
        image: ` + actorImage + `
        imagePullPolicy: Never
        args: [app]
        ports: [{containerPort: 8080}]
        securityContext:
          runAsUser: 1000
          runAsGroup: 1000
          runAsNonRoot: true
          allowPrivilegeEscalation: false
          capabilities: {drop: [ALL]}
          seccompProfile: {type: RuntimeDefault}
`

// injects has sidecarctl inject a Deployment by what the cluster's ConfigMaps say, under Pod
// Security restricted, and take the proxy out of it again.
func (r *toolRig) injects(t *testing.T) {
	r.loadHAProxy(t)
	r.namespace(t, "istio-system", "restricted")
	r.namespace(t, "injected", "restricted")
	r.configureInjection(t)
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(webManifest), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Kubectl(t, "apply", "-f", file)
	before := r.deployment(t)

	manifest, code := r.run(t, "inject", "-f", file)
	if code != 0 {
		t.Fatalf("inject: code %d: %s", code, manifest)
	}
	if back := r.tool(t, manifest, "uninject", "-f", "-"); back != webManifest {
		t.Errorf("uninject of the file (-want +got):\n%s", cmp.Diff(webManifest, back))
	}
	if _, err := r.TryKubectl(manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	r.expectProxied(t, r.webPod(t, "istio-proxy", "app"))

	r.Await(t, "uninject by way of the API", func(context.Context) error {
		current := r.Kubectl(t, "get", "deployment", "web", "--namespace=injected", "-o", "yaml")
		// The controller may write the status meanwhile, which is a conflict.
		_, err := r.TryKubectl(r.tool(t, current, "uninject", "-f", "-"), "apply", "-f", "-")
		return err
	})
	if diff := cmp.Diff(before.Spec, r.deployment(t).Spec); diff != "" {
		t.Errorf("the Deployment after inject and uninject (-before +after):\n%s", diff)
	}
	r.expectUntouched(t, r.webPod(t, "app"))
}

// configureInjection makes the ConfigMaps of a control plane, of our own template and haproxy.
func (r *toolRig) configureInjection(t *testing.T) {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal(injection.Values, &values); err != nil {
		t.Fatal(err)
	}
	podtree.Set(values, "Never", "global", "imagePullPolicy")
	podtree.Set(values, haproxyImage, "global", "proxy", "image")
	podtree.Set(values, []any{"proxy", "sidecar"}, "global", "proxy", "args")
	podtree.Set(values, "proxy", "global", "proxy", "configMap")
	podtree.Set(values, []any{podtree.Object{"name": "PROXY_PROGRAM",
		"value": "/usr/sbin/haproxy -db -f /etc/proxy/haproxy.cfg"}}, "global", "proxy", "env")
	written, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	haproxy, err := os.ReadFile("haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "istio-sidecar-injector"},
			Data: map[string]string{"config": string(injection.Config), "values": string(written)}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "istio"},
			Data: map[string]string{"mesh": string(injection.Mesh)}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "injected", Name: "proxy"},
			Data: map[string]string{"haproxy.cfg": string(haproxy)}},
	} {
		if _, err := r.Client().CoreV1().ConfigMaps(m.Namespace).Create(t.Context(), &m,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// tool runs sidecarctl on a text.
func (r *toolRig) tool(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := r.Try(stdin, program(t, "../../sidecarctl"), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *toolRig) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d, err := r.Client().AppsV1().Deployments("injected").Get(t.Context(), "web",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// webPod waits for the Deployment's pod to be the only one, ready, and of these containers.
func (r *toolRig) webPod(t *testing.T, containers ...string) *corev1.Pod {
	t.Helper()
	r.AwaitRollout(t, "injected", "deployment/web")
	var pod corev1.Pod
	r.Await(t, fmt.Sprintf("a pod of %v alone", containers), func(ctx context.Context) error {
		all, err := r.Client().CoreV1().Pods("injected").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(all.Items) != 1 {
			return fmt.Errorf("the pods are %s", podNames(all.Items))
		}
		pod = all.Items[0]
		names := []string{}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			names = append(names, c.Name)
		}
		if !slices.Equal(names, containers) {
			return fmt.Errorf("its containers are %v", names)
		}
		return nil
	})
	return r.ready(t, &pod)
}

// someBytes are sent by who calls through haproxy: it gives up on a caller that has nothing to send
// and says so before the call was passed on.
const someBytes = "1000"

// expectProxied holds that calls to and from a pod pass its proxy, which has no rights.
func (r *toolRig) expectProxied(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.SecurityContext.Capabilities.Add != nil {
			t.Errorf("container %s adds %v", c.Name, c.SecurityContext.Capabilities.Add)
		}
	}
	r.expectRedirected(t, pod)
	peer := r.pods["node0"]
	// The proxy is ready and answers for an app that does not listen yet: the pod has no probe.
	r.Await(t, "the app's answer", func(context.Context) error {
		_, err := tryLines[talk](r.rig, peer, "call", "tcp", app(pod.Status.PodIP), someBytes)
		return err
	})
	out := lines[talk](t, r.rig, pod, "call", "tcp", app(peer.Status.PodIP), someBytes)[0]
	r.expectSeen(t, pod, sighting{15001, out.Me, app(peer.Status.PodIP)})
	r.expectSeen(t, pod, sighting{15006, peer.Status.PodIP, app(pod.Status.PodIP)})
}

// manyPods is how many random pods each configuration injects.
const manyPods = 300

// accepted: what inject makes of pods that the API server accepts, it accepts, too.
func (r *toolRig) accepted(t *testing.T) {
	configurations := injectionConfigs(t)
	random := rand.New(rand.NewPCG(1, 7)) //nolint:gosec // the same pods each time
	pods := make([]podtree.Object, manyPods)
	for i := range pods {
		pods[i] = podgen.Pod(random)
		if i%2 == 0 { // without, init containers without a user of their own are a reason to refuse
			podtree.Set(pods[i], "", "metadata", "annotations", "sidecar-cni.io/initContainers")
		}
	}
	var mu sync.Mutex
	injected := map[string]int{}
	var workers sync.WaitGroup
	for first := range 4 {
		workers.Go(func() {
			for i := first; i < len(pods); i += 4 {
				if err := r.dryRun(t.Context(), pods[i]); err != nil {
					t.Errorf("the generator's pod %d: %v", i, err)
					continue
				}
				for name, cfg := range configurations {
					done, err := r.injectDry(t.Context(), cfg, pods[i])
					if err != nil {
						t.Errorf("pod %d by %s: %v", i, name, err)
					}
					if done {
						mu.Lock()
						injected[name]++
						mu.Unlock()
					}
				}
			}
		})
	}
	workers.Wait()
	for name := range configurations {
		t.Logf("%s: %d of %d pods injected", name, injected[name], manyPods)
		if injected[name] < manyPods/2 {
			t.Errorf("%s: %d of %d pods injected: this tests too little", name, injected[name],
				manyPods)
		}
	}
}

// injectionConfigs are Istio 1.1's template, today's, and ours.
func injectionConfigs(t *testing.T) map[string]*config.Config {
	t.Helper()
	const testdata = "../../injector/inject/render/testdata/"
	all := map[string]config.Sources{"ours": {
		Injector: config.Source{Name: "config.yaml", Data: injection.Config},
		Mesh:     config.Source{Name: "mesh.yaml", Data: injection.Mesh},
		Values:   config.Source{Name: "values.yaml", Data: injection.Values},
	}}
	read := func(name string) config.Source {
		text, err := os.ReadFile(testdata + name)
		if err != nil {
			t.Fatal(err)
		}
		return config.Source{Name: name, Data: text}
	}
	all["Istio 1.1's"] = config.Sources{Injector: read("istio-1.1.yaml")}
	all["today's"] = config.Sources{Injector: read("today.yaml"), Values: read("today-values.yaml")}
	loaded := map[string]*config.Config{}
	for name, sources := range all {
		cfg, err := config.Load(sources)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		loaded[name] = cfg
	}
	return loaded
}

// injectDry injects a pod and has the API server look at it. A pod that inject refuses is none.
func (r *toolRig) injectDry(ctx context.Context, cfg *config.Config,
	pod podtree.Object) (injected bool, err error) {
	result, err := inject.Inject(cfg, inject.Request{Pod: pod, Namespace: "open",
		Type: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}})
	if err != nil || !result.Decision.Inject {
		return false, nil //nolint:nilerr // to refuse is allowed, and counted
	}
	return true, r.dryRun(ctx, result.Pod)
}

// dryRun has the API server check a pod as if it were created. An unknown field is a mistake.
func (r *toolRig) dryRun(ctx context.Context, pod podtree.Object) error {
	body, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	err = r.Client().CoreV1().RESTClient().Post().Namespace("open").Resource("pods").
		Param("dryRun", "All").Param("fieldValidation", "Strict").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil {
		return errors.Join(err, fmt.Errorf("pod %s", strings.TrimSpace(string(body))))
	}
	return nil
}
