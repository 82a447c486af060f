//go:build e2e

package e2e_test

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	actorImage   = "e2e.local/actor:1"
	haproxyImage = "e2e.local/haproxy:1"

	appPort   = 8080
	proxyUser = 1337
	appUser   = 1000
)

// mesh says how a pod takes part in the mesh.
type mesh struct {
	native  bool // the sidecar is an init container that goes on
	tproxy  bool
	dns     bool // DNS capture
	init    bool // with istio-init, as the injector does without CNI
	haproxy bool

	annotations map[string]string
}

// newPod is a pod with an app, as its author writes it for a namespace that enforces Pod Security
// "restricted".
func newPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{"app": name}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken:  new(false),
			Containers:                    []corev1.Container{actor("app", appUser, "app")},
		},
	}
}

// actor is a container that needs no rights.
func actor(name string, user int64, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: actorImage, ImagePullPolicy: corev1.PullNever, Args: args,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			RunAsNonRoot:             new(true),
			RunAsUser:                &user,
			RunAsGroup:               &user,
			SeccompProfile: &corev1.SeccompProfile{
				Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// on pins a pod to a node, past the scheduler.
func on(node string, pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeName = node
	return pod
}

// inject does to a pod, or to a workload's template, what Istio's injector does where a CNI plugin
// is in charge.
func (m mesh) inject(meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	mode := "REDIRECT"
	if m.tproxy {
		mode = "TPROXY"
	}
	set(&meta.Labels, map[string]string{
		"security.istio.io/tlsMode":           "istio",
		"service.istio.io/canonical-name":     meta.Labels["app"],
		"service.istio.io/canonical-revision": "latest",
	})
	set(&meta.Annotations, map[string]string{
		"istio.io/rev": "default",
		"kubectl.kubernetes.io/default-container":          "app",
		"kubectl.kubernetes.io/default-logs-container":     "app",
		"sidecar.istio.io/status":                          m.status(),
		"sidecar.istio.io/interceptionMode":                mode,
		"traffic.sidecar.istio.io/includeOutboundIPRanges": "*",
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": "",
		"traffic.sidecar.istio.io/includeInboundPorts":     "*",
		"traffic.sidecar.istio.io/excludeInboundPorts":     "15090,15021,15020",
		"prometheus.io/path":                               "/stats/prometheus",
		"prometheus.io/port":                               "15020",
		"prometheus.io/scrape":                             "true",
	})
	set(&meta.Annotations, m.annotations)
	first := m.validation()
	if m.init {
		first = m.istioInit()
	}
	added := []corev1.Container{first}
	if m.native {
		added = append(added, m.sidecar(mode))
	} else {
		spec.Containers = append([]corev1.Container{m.sidecar(mode)}, spec.Containers...)
	}
	spec.InitContainers = append(added, spec.InitContainers...)
}

func set(to *map[string]string, more map[string]string) {
	if *to == nil {
		*to = map[string]string{}
	}
	maps.Copy(*to, more)
}

// status is what the injector writes down about its work.
func (m mesh) status() string {
	first := "istio-validation"
	if m.init {
		first = "istio-init"
	}
	inits, containers := `"`+first+`"`, `"istio-proxy"`
	if m.native {
		inits, containers = inits+`,"istio-proxy"`, ""
	}
	return `{"initContainers":[` + inits + `],"containers":[` + containers +
		`],"volumes":["workload-socket","credential-socket",` +
		`"workload-certs","istio-envoy","istio-data","istio-podinfo","istio-token","istiod-ca-cert"],"imagePullSecrets":null,"revision":"default"}`
}

var iptablesArgs = []string{
	"istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x",
	"", "-b", "*",
	"-d", "15090,15021,15020", "--log_output_level=default:info",
}

func (m mesh) validation() corev1.Container {
	return actor("istio-validation", proxyUser,
		append(slices.Clip(iptablesArgs), "--run-validation", "--skip-rule-apply")...)
}

// istioInit is what the product makes superfluous.
func (m mesh) istioInit() corev1.Container {
	c := actor("istio-init", 0, iptablesArgs...)
	c.SecurityContext.RunAsNonRoot = new(false)
	c.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN", "NET_RAW"}
	return c
}

func (m mesh) sidecar(mode string) corev1.Container {
	c := actor("istio-proxy", proxyUser, "proxy", "sidecar", "--domain",
		"$(POD_NAMESPACE).svc.cluster.local",
		"--proxyLogLevel=warning", "--proxyComponentLogLevel=misc:error",
		"--log_output_level=default:info")
	if m.haproxy {
		c.Image = haproxyImage
		c.Env = append(c.Env, corev1.EnvVar{Name: "PROXY_PROGRAM", Value: "/usr/sbin/haproxy -db " +
			"-f /etc/haproxy.cfg"})
	}
	c.Ports = []corev1.ContainerPort{{Name: "http-envoy-prom", ContainerPort: 15090,
		Protocol: corev1.ProtocolTCP}}
	c.Env = append(c.Env,
		corev1.EnvVar{Name: "PILOT_CERT_PROVIDER", Value: "istiod"},
		field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"),
		field("INSTANCE_IP", "status.podIP"),
		corev1.EnvVar{Name: "ISTIO_META_INTERCEPTION_MODE", Value: mode},
		corev1.EnvVar{Name: "ISTIO_META_APP_CONTAINERS", Value: "app"},
	)
	if m.dns {
		c.Env = append(c.Env, corev1.EnvVar{Name: "ISTIO_META_DNS_CAPTURE", Value: "true"})
	}
	ready := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready",
		Port: intstr.FromInt32(15021)}}
	c.StartupProbe = &corev1.Probe{ProbeHandler: ready, PeriodSeconds: 1, TimeoutSeconds: 3,
		FailureThreshold: 600}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: ready, PeriodSeconds: 15, TimeoutSeconds: 3,
		FailureThreshold: 4}
	if m.native {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
	if m.tproxy { // to use addresses of others, and marks
		c.SecurityContext.RunAsUser, c.SecurityContext.RunAsNonRoot = new(int64(0)), new(false)
		c.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	}
	return c
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1",
			FieldPath: path}}}
}

// meshed is a pod of the mesh.
func meshed(namespace, name string, m mesh) *corev1.Pod {
	p := newPod(namespace, name)
	m.inject(&p.ObjectMeta, &p.Spec)
	return p
}

var ordinary = mesh{}

// create has the API server take a pod.
func (r *rig) create(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	if _, err := r.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
