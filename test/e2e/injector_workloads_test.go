//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const (
	probePort = 8081
	cronSpace = "cron"
)

// probed is a pod with an app and probes, which its author knows no mesh by.
func probed(namespace, name string) *corev1.Pod {
	p := newPod(namespace, name)
	c := &p.Spec.Containers[0]
	c.Ports = []corev1.ContainerPort{{ContainerPort: appPort}, {ContainerPort: probePort}}
	c.StartupProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 60, TimeoutSeconds: 5,
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{"/actor", "call", "tcp", app("127.0.0.1")}}}}
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/",
			Port: intstr.FromInt32(probePort)}}}
	c.LivenessProbe = &corev1.Probe{PeriodSeconds: 5, TimeoutSeconds: 5,
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{
			Port: intstr.FromInt32(appPort)}}}
	return p
}

func templateOf(p *corev1.Pod) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
}

// workloads: each kind's pod is injected and redirected, under Pod Security restricted, its probes
// succeed, and a Job ends.
func (in *injecting) workloads(t *testing.T) {
	in.createJob(t, "job")
	in.createSets(t)
	bare := []*corev1.Pod{}
	in.eachNode(func(n *cluster.Node) {
		bare = append(bare, on(n.Name, probed(injectedSpace, "bare-"+n.Name)))
		in.create(t, bare[len(bare)-1])
	})
	for _, p := range bare {
		t.Run("a pod on "+p.Spec.NodeName,
			func(t *testing.T) { in.expectProbed(t, in.ready(t, p)) })
	}
	t.Run("a Deployment's pods", func(t *testing.T) {
		in.AwaitRollout(t, injectedSpace, "deployment/deployment")
		for _, p := range in.podsOf(t, injectedSpace, "deployment", 2) {
			in.expectProbed(t, in.ready(t, &p))
		}
	})
	t.Run("a StatefulSet's pod", func(t *testing.T) {
		in.expectProbed(t, in.AwaitPod(t, injectedSpace, "set-0", cluster.Ready))
	})
	t.Run("a Job's pod", func(t *testing.T) { in.expectDone(t, injectedSpace, "job") })
}

// createSets makes a Deployment and a StatefulSet.
func (in *injecting) createSets(t *testing.T) {
	t.Helper()
	_, err := in.Client().AppsV1().Deployments(injectedSpace).Create(t.Context(),
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "deployment"},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(2)),
				Selector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"app": "deployment"}},
				Template: templateOf(probed(injectedSpace, "deployment")),
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = in.Client().AppsV1().StatefulSets(injectedSpace).Create(t.Context(),
		&appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "set"},
			Spec: appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "set"}},
				Template: templateOf(probed(injectedSpace, "set")),
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// jobSpec is of a Job whose pod makes one call.
func (in *injecting) jobSpec(space, name string) batchv1.JobSpec {
	p := newPod(space, name)
	p.Spec.Containers[0] = actor("app", appUser, "call", "tcp", app(in.outside.Status.PodIP),
		someBytes)
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: templateOf(p)}
}

func (in *injecting) createJob(t *testing.T, name string) {
	t.Helper()
	_, err := in.Client().BatchV1().Jobs(injectedSpace).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: in.jobSpec(injectedSpace, name)},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (in *injecting) createCronJob(t *testing.T) {
	t.Helper()
	in.labelled(t, cronSpace, "restricted", "istio-injection=enabled")
	in.awaitInjection(t, cronSpace, true)
	_, err := in.Client().BatchV1().CronJobs(cronSpace).Create(t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "cron"},
		Spec: batchv1.CronJobSpec{Schedule: "* * * * *",
			ConcurrencyPolicy: batchv1.ForbidConcurrent,
			JobTemplate:       batchv1.JobTemplateSpec{Spec: in.jobSpec(cronSpace, "cron")}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// cronJob waits for the next minute, if it did not come meanwhile.
func (in *injecting) cronJob(t *testing.T) {
	in.expectDone(t, cronSpace, "cron")
	in.Kubectl(t, "--namespace="+cronSpace, "delete", "cronjob", "cron")
}

// podsOf waits until there are so many pods of a name that are not about to go.
func (in *injecting) podsOf(t *testing.T, space, name string, count int) (all []corev1.Pod) {
	t.Helper()
	in.Await(t, fmt.Sprintf("%d pods of %s", count, name), func(ctx context.Context) error {
		list, err := in.Client().CoreV1().Pods(space).List(ctx,
			metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(list.Items,
			func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if len(all) != count {
			return fmt.Errorf("there are %s", podNames(all))
		}
		return nil
	})
	return all
}

// expectDone waits until a pod of a Job has ended well, and holds that its call went through the
// proxy.
func (in *injecting) expectDone(t *testing.T, space, name string) {
	t.Helper()
	var pod corev1.Pod
	in.Await(t, "the job "+name+" to be done", func(ctx context.Context) error {
		all, err := in.Client().CoreV1().Pods(space).List(ctx,
			metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		for _, p := range all.Items {
			if p.Status.Phase == corev1.PodSucceeded {
				pod = p
				return nil
			}
		}
		return fmt.Errorf("its pods are %s", podNames(all.Items))
	})
	log, err := in.Client().CoreV1().Pods(space).GetLogs(pod.Name,
		&corev1.PodLogOptions{Container: "app"}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := decode[talk](string(log))
	if err != nil || len(all) != 1 {
		t.Fatalf("the job said %q", log)
	}
	in.expectSeen(t, &pod, sighting{15001, all[0].Me, app(in.outside.Status.PodIP)})
}

// expectProbed holds that a pod is redirected, and its probes go through the proxy and succeed.
func (in *injecting) expectProbed(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if got := containers(pod); !slices.Equal(got,
		[]string{"istio-validation", "istio-proxy", "app"}) {
		t.Errorf("the containers of %s are %v", pod.Name, got)
	}
	in.expectProxied(t, pod)
	asked := fmt.Sprintf("%s:%d", pod.Status.PodIP, probePort)
	in.Await(t, "the proxy to see a probe", func(ctx context.Context) error {
		all, err := in.sightings(ctx, pod)
		if err == nil && !slices.ContainsFunc(all,
			func(s sighting) bool { return s.Port == 15006 && s.Wanted == asked }) {
			err = errors.New("it has seen none")
		}
		return err
	})
	pod = in.ready(t, pod)
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses) {
		if s.RestartCount > 0 {
			t.Errorf("container %s of %s was started again %d times", s.Name, pod.Name,
				s.RestartCount)
		}
	}
}

const sleepManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: sleep, namespace: default}
spec:
  selector: {matchLabels: {app: sleep}}
  template:
    metadata: {labels: {app: sleep}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: sleep, image: ` + actorImage + `, imagePullPolicy: Never, args: [app]}
`

// walk is that of Istio's documentation for its own webhook, with its commands and what it says of
// their output.
func (in *injecting) walk(t *testing.T) {
	in.Apply(t, sleepManifest)
	before := in.awaitSleep(t, "1/1")
	in.Kubectl(t, "label", "namespace", "default", "istio-injection=enabled")
	in.expectListed(t, map[string]string{"default": "enabled", injectedSpace: "enabled",
		plainSpace: "", "kube-system": ""})
	in.awaitInjection(t, "default", true)
	in.Kubectl(t, "delete", "pod", before)
	with := in.awaitSleep(t, "2/2")
	if said := in.Kubectl(t, "describe", "pod", with); !containsAll(said,
		[]string{"istio-proxy:", haproxyImage, "proxy-tmp:"}) {
		t.Errorf("kubectl describe pod says\n%s", said)
	}
	in.Kubectl(t, "label", "namespace", "default", "istio-injection-")
	in.awaitInjection(t, "default", false)
	in.Kubectl(t, "delete", "pod", with)
	in.awaitSleep(t, "1/1")
	in.Kubectl(t, "delete", "deployment", "sleep")
}

// awaitSleep waits until kubectl shows one pod, running, with so many containers that are ready.
func (in *injecting) awaitSleep(t *testing.T, containers string) (name string) {
	t.Helper()
	in.Await(t, "one pod with "+containers, func(context.Context) error {
		out, err := in.TryKubectl("", "get", "pod", "--no-headers", "--selector=app=sleep")
		if err != nil {
			return err
		}
		fields := strings.Fields(out) // NAME READY STATUS RESTARTS AGE
		if len(fields) != 5 || fields[1] != containers || fields[2] != "Running" {
			return fmt.Errorf("there are\n%s", out)
		}
		name = fields[0]
		return nil
	})
	return name
}

// expectListed holds what the column of `kubectl get namespace -L istio-injection` says.
func (in *injecting) expectListed(t *testing.T, want map[string]string) {
	t.Helper()
	out := in.Kubectl(t, "get", "namespace", "-L", "istio-injection")
	got := map[string]string{}
	for line := range strings.Lines(out) {
		fields := append(strings.Fields(line), "") // NAME STATUS AGE ISTIO-INJECTION
		got[fields[0]] = fields[3]
	}
	for name, label := range want {
		if got[name] != label {
			t.Errorf("namespace %s is listed with %q, want %q:\n%s", name, got[name], label, out)
		}
	}
}
