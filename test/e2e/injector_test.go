//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const (
	injectorName = "sidecar-cni-injector"
	injectWith   = "sidecar-cni-inject"    // the webhook configuration of /inject
	stripWith    = "zzz-sidecar-cni-strip" // and of /strip
	injectHook   = "inject.sidecar-cni.io" // its webhook
	stripHook    = "strip.sidecar-cni.io"
)

// The namespaces of TestInjector.
const (
	injectedSpace = "shop"  // injection is asked for, and Pod Security enforced
	plainSpace    = "plain" // nothing is asked for
	strippedSpace = "old"   // istio-init is to leave
	bothSpace     = "both"  // injection is asked for, and istio-init is to leave
)

// An injecting is a cluster with our webhooks, which put haproxy into pods.
type injecting struct {
	*toolRig
	image   string      // the product's
	outside *corev1.Pod // on node0, without a proxy
}

// unplugged is a node without an agent, which pods are not scheduled to.
var unplugged = cluster.NodeOptions{Taints: []corev1.Taint{{Key: "example.com/no-plugin",
	Effect: corev1.TaintEffectNoSchedule}}}

// haproxied are the chart's values: the webhooks, and agents on the nodes that are labelled.
var haproxied = []string{
	"injector.enabled=true", "injector.strip.enabled=true", "nodeSelector.mesh=yes",
	"injector.values.global.imagePullPolicy=Never",
	"injector.values.global.proxy.image=" + haproxyImage,
	"injector.values.global.proxy.args={proxy,sidecar}",
	"injector.values.global.proxy.env[0].name=PROXY_PROGRAM",
	"injector.values.global.proxy.env[0].value=/usr/sbin/haproxy -db -f /etc/haproxy.cfg",
}

// TestInjector installs the webhooks by the chart, on a cluster that has nothing else, and looks at
// what the API server makes of pods, and at those that run.
func TestInjector(t *testing.T) {
	in := &injecting{toolRig: &toolRig{
		rig:  start(t, cluster.Options{Nodes: append(slices.Clip(bothRuntimes), unplugged)}),
		pods: map[string]*corev1.Pod{}}, image: "sidecar-cni/sidecar-cni:" + version(t)}
	in.setUp(t)
	for _, tt := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"helm test passes", in.passesHelmTest},
		{"workloads of every kind are injected", in.workloads},
		{"a namespace is labelled, and the label goes", in.walk},
		{"beside another webhook", in.beside},
		{"nonsense is answered", in.nonsense},
		{"a CronJob's pod is injected", in.cronJob},
		{"annotation, selectors and policy decide", in.decides},
		{"a selector is edited", in.selectorEdited},
		{"a bad configuration", in.badConfiguration},
		{"no replica is alive", in.noReplica},
		{"a node without the plugin", in.withoutPlugin},
		{"under load", in.underLoad}, // last: it ends with helm uninstall
	} {
		t.Run(tt.name, tt.f)
	}
}

// setUp installs the product and makes the namespaces.
func (in *injecting) setUp(t *testing.T) {
	t.Helper()
	in.eachNode(func(n *cluster.Node) { loadProduct(t, n) })
	in.nodes = len(bothRuntimes) // what follows is about these
	in.eachNode(func(n *cluster.Node) { in.Kubectl(t, "label", "node", n.Name, "mesh=yes") })
	in.loadHAProxy(t)
	in.Load(t, cluster.Image{Name: initImage, Entrypoint: []string{"/sidecarctl"},
		Files: map[string]string{"/sidecarctl": program(t, "../../sidecarctl")}})
	in.tellAtTheEnd(t)
	in.helmRun(t, "install", append(chart(t, haproxied...), "--wait", "--timeout=10m")...)
	in.namespace(t, plainSpace, "restricted")
	in.labelled(t, injectedSpace, "restricted", "istio-injection=enabled")
	in.labelled(t, strippedSpace, "privileged", "sidecar-cni.io/strip=enabled")
	in.labelled(t, bothSpace, "privileged", "istio-injection=enabled",
		"sidecar-cni.io/strip=enabled")
	in.outside = on("node0", newPod(plainSpace, "outside"))
	in.create(t, in.outside)
	in.outside = in.ready(t, in.outside)
	in.pods["node0"] = in.outside // which is whom expectProxied calls
	in.awaitInjection(t, injectedSpace, true)
	in.awaitInjection(t, bothSpace, true)
	in.awaitStrip(t)
	in.createCronJob(t) // early, since a minute goes by until it has a pod
}

// upgrade sets values of the chart, beside those that all have here. What kubectl has changed is
// Helm's again.
func (in *injecting) upgrade(t *testing.T, values ...string) {
	t.Helper()
	in.helmRun(t, "upgrade", append(chart(t, slices.Concat(haproxied, values)...), "--wait",
		"--timeout=10m", "--force-conflicts")...)
}

// labelled makes a namespace that enforces a level of Pod Security, with labels.
func (in *injecting) labelled(t *testing.T, name, level string, labels ...string) {
	t.Helper()
	in.namespace(t, name, level)
	in.Kubectl(t, append([]string{"label", "namespace", name}, labels...)...)
}

// admit returns what the API server would make of a pod.
func (in *injecting) admit(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return in.Client().CoreV1().Pods(pod.Namespace).Create(ctx, pod,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func (in *injecting) mustAdmit(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	admitted, err := in.admit(t.Context(), pod)
	if err != nil {
		t.Fatalf("create pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	return admitted
}

// isInjected reports whether a pod has a proxy, and the annotation that says so.
func isInjected(pod *corev1.Pod) bool {
	return hasContainer(pod, "istio-proxy") && pod.Annotations["sidecar.istio.io/status"] != ""
}

// containers are the names of a pod's containers, init containers first.
func containers(pod *corev1.Pod) []string {
	names := []string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		names = append(names, c.Name)
	}
	return names
}

func hasContainer(pod *corev1.Pod, name string) bool {
	return slices.Contains(containers(pod), name)
}

// awaitInjection waits until the API server has pods of a namespace injected, or has not. What it
// knows of namespaces and webhooks it learns a little after they have changed.
func (in *injecting) awaitInjection(t *testing.T, space string, wanted bool) {
	t.Helper()
	in.Await(t, fmt.Sprintf("injection in %s to be %v", space, wanted),
		func(ctx context.Context) error {
			admitted, err := in.admit(ctx, newPod(space, "asks"))
			if err == nil && isInjected(admitted) != wanted {
				err = fmt.Errorf("a pod has the containers %v", containers(admitted))
			}
			return err
		})
}

// awaitStrip waits until the API server has istio-init taken out.
func (in *injecting) awaitStrip(t *testing.T) {
	t.Helper()
	in.Await(t, "istio-init to be taken out", func(ctx context.Context) error {
		admitted, err := in.admit(ctx, filled(strippedSpace, "asks"))
		if err == nil && hasContainer(admitted, "istio-init") {
			err = errors.New("it stays")
		}
		return err
	})
}

// replicas are the injector's pods that are not about to go.
func (in *injecting) replicas(ctx context.Context) ([]corev1.Pod, error) {
	all, err := in.injectors(ctx)
	return slices.DeleteFunc(all, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }),
		err
}

// injectors are the injector's pods.
func (in *injecting) injectors(ctx context.Context) ([]corev1.Pod, error) {
	all, err := in.Client().CoreV1().Pods(home).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=injector"})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// mustReplicas are two.
func (in *injecting) mustReplicas(t *testing.T) []corev1.Pod {
	t.Helper()
	all, err := in.replicas(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("the replicas are %s, %v", podNames(all), err)
	}
	return all
}

// awaitReplicas waits until a metric of every replica is as wanted.
func (in *injecting) awaitReplicas(t *testing.T, wanted func(float64) bool, name string,
	words ...string) {
	t.Helper()
	in.Await(t, fmt.Sprintf("%s%v of the replicas", name, words), func(ctx context.Context) error {
		all, err := in.replicas(ctx)
		if err == nil && len(all) == 0 {
			err = errors.New("there are none")
		}
		for i := range all {
			text, scraped := in.metricsOf(ctx, &all[i])
			v, read := sumOf(text, name, words...)
			if err = errors.Join(err, scraped, read); err == nil && !wanted(v) {
				err = fmt.Errorf("that of %s is %v", all[i].Name, v)
			}
		}
		return err
	})
}
