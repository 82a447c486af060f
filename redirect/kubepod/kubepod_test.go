package kubepod_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func id(n int64) *int64 { return new(n) }

// read returns a pod as the API server has it.
func read(t *testing.T, file string) *corev1.Pod {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return &pod
}

// facts are those of a pod as the API server writes it.
func facts(t *testing.T, pod *corev1.Pod) redirect.Pod {
	t.Helper()
	data, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := kubepod.Parse(data)
	if err != nil {
		t.Fatalf("%v\nin %s", err, data)
	}
	return parsed.Facts()
}

func decide(t *testing.T, pod redirect.Pod) redirect.Decision {
	t.Helper()
	d, err := redirect.Decide(pod, redirect.Defaults())
	if err != nil || d.Skip != "" || d.AskMore {
		t.Fatalf("not ours: skip %q, ask more %t, error %v", d.Skip, d.AskMore, err)
	}
	return d
}

func TestInjectedPod(t *testing.T) {
	t.Parallel()
	pod := read(t, "testdata/sidecar.yaml")
	got := facts(t, pod)
	want := redirect.Pod{
		Namespace:   "bookinfo",
		Name:        "reviews-v1-5b5d6494f4-9xk2c",
		Annotations: pod.Annotations,
		Spec: &redirect.Spec{
			Labels:     pod.Labels,
			RunAsUser:  id(1001),
			RunAsGroup: id(1002),
			Containers: []redirect.Container{
				{
					Name: "istio-validation", Init: true, RunAsUser: id(1337), RunAsGroup: id(1337),
					Env:  map[string]string{},
					Args: pod.Spec.InitContainers[0].Args,
				},
				{Name: "reviews", Env: map[string]string{}}, // whose variables decide nothing
				{
					Name: "istio-proxy", RunAsUser: id(1337), RunAsGroup: id(1337),
					Args: []string{"proxy", "sidecar", "--domain",
						"$(POD_NAMESPACE).svc.cluster.local", "--proxyLogLevel=warning",
						"--log_output_level=default:info"},
					Env: map[string]string{
						"PILOT_CERT_PROVIDER": "istiod", "ISTIO_META_DNS_CAPTURE": "true",
						"ISTIO_META_INTERCEPTION_MODE": "REDIRECT",
					},
					EnvFrom: []string{"INVALID_DROP", "POD_NAME"},
				},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
	if len(got.Annotations) != 10 || len(got.Spec.Labels) != 5 {
		t.Errorf("%d annotations and %d labels, want 10 and 5", len(got.Annotations),
			len(got.Spec.Labels))
	}

	got.Nameservers = []netip.Addr{netip.MustParseAddr("10.96.0.10")}
	d := decide(t, got)
	if diff := cmp.Diff(redirect.DNS{Capture: true, Servers: got.Nameservers}, d.Policy.DNS,
		byValue); diff != "" {
		t.Errorf("DNS (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		`INVALID_DROP: its value comes from elsewhere and cannot be read: taken as "false"`},
		d.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestNativeSidecar(t *testing.T) {
	t.Parallel()
	got := facts(t, read(t, "testdata/native.yaml"))
	want := []redirect.Container{
		{Name: "schema", Init: true, RunAsUser: id(2000), Env: map[string]string{}},
		{Name: "istio-validation", Init: true, RunAsUser: id(1337), RunAsGroup: id(1337),
			Env: map[string]string{}},
		{Name: "istio-proxy", Init: true, Stays: true, RunAsUser: id(0), RunAsGroup: id(1337),
			Args: []string{"proxy", "sidecar"}, Env: map[string]string{}},
		{Name: "warm-up", Init: true, RunAsUser: id(2001), Env: map[string]string{}},
		{Name: "reviews", RunAsUser: id(1001), Env: map[string]string{}},
	}
	if diff := cmp.Diff(want, got.Spec.Containers); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	p := decide(t, got).Policy
	if diff := cmp.Diff(redirect.Identity{UIDs: []uint32{1337}, GIDs: []uint32{1337}},
		p.Proxy); diff != "" {
		t.Errorf("proxy (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(redirect.IDs{{First: 2000, Last: 2000}},
		p.Outbound.ExcludeUIDs); diff != "" || p.Mode != redirect.ModeTProxy {
		t.Errorf("mode %s, excluded uids (-want +got):\n%s", p.Mode, diff)
	}
}

// A pod that says nothing has said so: the annotations are known, and none.
func TestPodThatSaysNothing(t *testing.T) {
	t.Parallel()
	got := facts(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}})
	want := redirect.Pod{Namespace: "a", Name: "b", Annotations: map[string]string{},
		Spec: &redirect.Spec{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
	got = facts(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "istio-proxy"}}},
	})
	if d, err := redirect.Decide(got, redirect.Defaults()); d.Skip != redirect.NotInjected ||
		err != nil {
		t.Errorf("decision %+v, error %v; want %q", d, err, redirect.NotInjected)
	}
}

func TestContainers(t *testing.T) {
	t.Parallel()
	always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicy("Never")
	elsewhere := &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
	none := map[string]string{}
	rows := []struct {
		name string
		pod  corev1.PodSpec
		want redirect.Spec
	}{
		{"security context of the pod",
			corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{RunAsUser: id(0),
				RunAsGroup: id(7)}},
			redirect.Spec{RunAsUser: id(0), RunAsGroup: id(7)}},
		{"empty security contexts", corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{},
			Containers: []corev1.Container{{Name: "a",
				SecurityContext: &corev1.SecurityContext{}}},
		}, redirect.Spec{Containers: []redirect.Container{{Name: "a", Env: none}}}},
		{"security contexts are told apart", corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: id(1)},
			Containers: []corev1.Container{{Name: "a",
				SecurityContext: &corev1.SecurityContext{RunAsGroup: id(2)}}},
		}, redirect.Spec{RunAsUser: id(1),
			Containers: []redirect.Container{{Name: "a", RunAsGroup: id(2), Env: none}}}},
		{"init containers first", corev1.PodSpec{
			Containers:     []corev1.Container{{Name: "c"}, {Name: "d"}},
			InitContainers: []corev1.Container{{Name: "a"}, {Name: "b"}},
		}, redirect.Spec{Containers: []redirect.Container{{Name: "a", Init: true, Env: none},
			{Name: "b", Init: true, Env: none}, {Name: "c", Env: none}, {Name: "d", Env: none}}}},
		{"restart policies", corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "a", RestartPolicy: &always},
				{Name: "b", RestartPolicy: &never}}},
			redirect.Spec{Containers: []redirect.Container{{Name: "a", Init: true, Stays: true,
				Env: none}, {Name: "b", Init: true, Env: none}}}},
		{"variables from elsewhere",
			corev1.PodSpec{Containers: []corev1.Container{{Name: "istio-proxy",
				Env: []corev1.EnvVar{
					{Name: "HERE", Value: "1"}, {Name: "THERE", ValueFrom: elsewhere},
					{Name: "EMPTY"},
				}}}}, redirect.Spec{Containers: []redirect.Container{{Name: "istio-proxy",
				Env: map[string]string{"HERE": "1", "EMPTY": ""}, EnvFrom: []string{"THERE"}}}}},
		{"variables that are set twice",
			corev1.PodSpec{Containers: []corev1.Container{{Name: "istio-proxy",
				Env: []corev1.EnvVar{
					{Name: "A", Value: "1"}, {Name: "A", Value: "2"}, {Name: "B", Value: "1"},
					{Name: "B", ValueFrom: elsewhere},
					{Name: "C", ValueFrom: elsewhere}, {Name: "C", Value: "2"},
					{Name: "D", ValueFrom: elsewhere}, {Name: "D", ValueFrom: elsewhere},
				}}}}, redirect.Spec{Containers: []redirect.Container{{Name: "istio-proxy",
				Env: map[string]string{"A": "2", "C": "2"}, EnvFrom: []string{"B", "D"}}}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := facts(t, &corev1.Pod{Spec: row.pod})
			if diff := cmp.Diff(&row.want, got.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}
