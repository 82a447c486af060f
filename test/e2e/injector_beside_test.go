//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	never    = admissionregistrationv1.NeverReinvocationPolicy
	ifNeeded = admissionregistrationv1.IfNeededReinvocationPolicy
)

// A beside is how another webhook stands to ours.
type beside struct {
	configuration string // webhooks are called in the order of these names
	policy        admissionregistrationv1.ReinvocationPolicyType
}

var (
	sortsFirst = []beside{{"a-other", never}, {"a-other", ifNeeded}}
	sortsLast  = []beside{{"zzzz-other", never}, {"zzzz-other", ifNeeded}}
)

// initImage is of istio-init, with sidecarctl in place of Istio's program.
const initImage = "e2e.local/istio-init:1"

func istioInitThatRuns() corev1.Container {
	c := mesh{}.istioInit()
	c.Image = initImage
	return c
}

// fill does to a pod what an injector does that knows no CNI plugin, once.
func fill(p *corev1.Pod) {
	if isInjected(p) {
		return
	}
	mesh{init: true}.inject(&p.ObjectMeta, &p.Spec)
	p.Spec.InitContainers[0] = istioInitThatRuns()
}

// insist does it, and puts istio-init back wherever it is missing.
func insist(p *corev1.Pod) {
	fill(p)
	if !hasContainer(p, "istio-init") {
		p.Spec.InitContainers = append([]corev1.Container{istioInitThatRuns()},
			p.Spec.InitContainers...)
	}
}

// insistBehind does the same, but puts it behind the others.
func insistBehind(p *corev1.Pod) {
	fill(p)
	if !hasContainer(p, "istio-init") {
		p.Spec.InitContainers = append(p.Spec.InitContainers, istioInitThatRuns())
	}
}

// addContainers adds an init container before all others, and a container.
func addContainers(p *corev1.Pod) {
	if hasContainer(p, "early") {
		return
	}
	p.Spec.InitContainers = append([]corev1.Container{actor("early", initUser, "look")},
		p.Spec.InitContainers...)
	p.Spec.Containers = append(p.Spec.Containers, actor("beside", 2001, "app"))
}

// changeUsers gives the pod and its app other users.
func changeUsers(p *corev1.Pod) {
	if p.Spec.SecurityContext == nil {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	p.Spec.SecurityContext.RunAsUser = new(int64(3000))
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == "app" {
			c.SecurityContext.RunAsUser = new(int64(2000))
		}
	}
}

// filled is a pod that its author has filled, with istio-init.
func filled(space, name string) *corev1.Pod {
	p := newPod(space, name)
	fill(p)
	return p
}

// beside: /strip has the last word on istio-init whatever other webhooks do, but for one that is
// called after it and puts istio-init back when it is called again.
func (in *injecting) beside(t *testing.T) {
	o := in.otherWebhook(t)
	for _, space := range []string{strippedSpace, bothSpace} {
		for _, b := range slices.Concat(sortsFirst, sortsLast) {
			t.Run(fmt.Sprintf("%s, %s, in %s", b.configuration, b.policy, space),
				func(t *testing.T) { in.besideOne(t, o, space, b) })
		}
	}
	t.Run("a pod without istio-init starts", func(t *testing.T) { in.startsStripped(t, o) })
	t.Run("a pod with istio-init starts", func(t *testing.T) { in.startsRestored(t, o) })
	t.Run("istio-init that cannot leave", in.leaves)
}

// besideOne has the other webhook do one thing after the other.
func (in *injecting) besideOne(t *testing.T, o *otherWebhook, space string, b beside) {
	unregister := o.register(t, in, space, b)
	defer unregister()
	given := filled // where nobody fills pods, their author has
	if space == bothSpace {
		given = newPod
	}
	for _, tt := range []struct {
		name   string
		pod    *corev1.Pod
		change func(*corev1.Pod)
	}{
		{"fills pods once", newPod(space, "fills"), fill},
		{"insists on istio-init", newPod(space, "insists"), insist},
		{"adds containers", given(space, "adds"), addContainers},
		{"changes users", given(space, "changes"), changeUsers},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o.does(tt.change)
			p := in.mustAdmit(t, tt.pod)
			calls := o.called()
			if b.policy == never && calls != 1 || b == sortsFirst[1] && calls != 2 {
				t.Errorf("the other webhook was called %d times", calls)
			}
			in.expectStripped(t, p, b == sortsLast[1] && tt.name == "insists on istio-init")
		})
	}
}

// expectStripped holds that a pod has one proxy, ours in front, and istio-init only if it was
// restored.
func (in *injecting) expectStripped(t *testing.T, p *corev1.Pod, restored bool) {
	t.Helper()
	names := containers(p)
	if hasContainer(p, "istio-init") != restored {
		t.Errorf("the pod has the containers %v; istio-init: want %v", names, restored)
	}
	if restored {
		return
	}
	if names[0] != "istio-validation" || p.Spec.InitContainers[0].Image != in.image ||
		*p.Spec.InitContainers[0].SecurityContext.RunAsUser != proxyUser {
		t.Errorf("the first of %v is not our istio-validation as the proxy's user: %+v", names,
			p.Spec.InitContainers[0])
	}
	for _, name := range []string{"istio-proxy", "istio-validation", "app"} {
		all := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n != name })
		if len(all) != 1 {
			t.Errorf("of %s there are %d among %v", name, len(all), names)
		}
	}
}

// startsStripped: what another injector has filled starts without istio-init, and is redirected.
func (in *injecting) startsStripped(t *testing.T, o *otherWebhook) {
	unregister := o.register(t, in, strippedSpace, sortsFirst[0])
	defer unregister()
	o.does(fill)
	p := on("node1", newPod(strippedSpace, "stripped"))
	in.create(t, p)
	p = in.ready(t, p)
	in.expectStripped(t, p, false)
	if p.Annotations["sidecar-cni.io/stripped"] != "true" {
		t.Errorf("its annotations are %v", p.Annotations)
	}
	in.expectProxied(t, p)
}

// startsRestored: the pod is redirected by istio-init, wherever that stands, is counted, and has an
// Event.
func (in *injecting) startsRestored(t *testing.T, o *otherWebhook) {
	unregister := o.register(t, in, strippedSpace, sortsLast[1])
	defer unregister()
	for i, change := range []func(*corev1.Pod){insist, insistBehind} {
		n := in.Node(i)
		o.does(change)
		p := on(n.Name, newPod(strippedSpace, "restored-"+n.Name))
		in.create(t, p)
		p = in.ready(t, p)
		in.expectStripped(t, p, true)
		if inits := p.Spec.InitContainers; inits[i*(len(inits)-1)].Name != "istio-init" {
			t.Errorf("its containers are %v", containers(p))
		}
		in.expectCalled(t, p)
		in.awaitMetric(t, n, positive, "sidecar_cni_commands_total",
			`reason="init_container_restored"`)
		in.awaitEvent(t, p, "SidecarInitRestored", stripWith)
	}
}

// expectCalled holds that a call of a pod's app goes through its proxy.
func (in *injecting) expectCalled(t *testing.T, p *corev1.Pod) {
	t.Helper()
	to := app(in.outside.Status.PodIP)
	var out talk
	in.Await(t, "the app of "+p.Name+" to call", func(context.Context) error {
		all, err := tryLines[talk](in.rig, p, "call", "tcp", to, someBytes)
		if err == nil {
			out = all[0]
		}
		return err
	})
	in.expectSeen(t, p, sighting{15001, out.Me, to})
}

// A hearer has what the API server warns of.
type hearer struct {
	mu    sync.Mutex
	heard []string
}

func (h *hearer) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = append(h.heard, text)
}

// leaves: where the plugin could not do what istio-init is told, it stays, and who creates the pod
// is told why.
func (in *injecting) leaves(t *testing.T) {
	h := &hearer{}
	config := in.Config()
	config.WarningHandler = h
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	p := filled(strippedSpace, "odd")
	p.Spec.InitContainers[0].Args = append(p.Spec.InitContainers[0].Args, "--no-such-flag")
	p, err = client.CoreV1().Pods(strippedSpace).Create(t.Context(), p,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if !hasContainer(p, "istio-init") {
		t.Errorf("the pod has the containers %v", containers(p))
	}
	if !containsAll(strings.Join(h.heard, "\n"), []string{"istio-init", "--no-such-flag"}) {
		t.Errorf("the API server warns of %q", h.heard)
	}
	all := in.mustReplicas(t)
	in.expectSum(t, all, positive, "sidecar_cni_injector_requests_total", `webhook="strip"`,
		`outcome="left"`, `reason="refused"`)
}

// expectSum adds up a metric of pods.
func (in *injecting) expectSum(t *testing.T, all []corev1.Pod, wanted func(float64) bool,
	name string, words ...string) {
	t.Helper()
	sum := 0.0
	for i := range all {
		text, err := in.metricsOf(t.Context(), &all[i])
		if err != nil {
			t.Fatal(err)
		}
		v, err := sumOf(text, name, words...)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	if !wanted(sum) {
		t.Errorf("%s%v of the replicas is %v", name, words, sum)
	}
}
