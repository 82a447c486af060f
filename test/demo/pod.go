package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

const (
	appUser   = 1000
	proxyUser = 1337
)

// pod is a network namespace and what the API server knows of it.
type pod struct {
	name   string
	ns     *os.File
	object corev1.Pod
}

// newPod makes a pod that an injector has been at, without istio-init, or one that it has left
// alone.
func newPod(name string, injected bool) (*pod, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	p := &pod{name: name, ns: ns, object: corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name, UID: types.UID(name + "-uid"), Annotations: map[string]string{"kubernetes.io/config.seen": "now"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", SecurityContext: user(appUser)}}},
	}}
	if injected {
		p.object.Annotations["sidecar.istio.io/status"] = `{"containers":["istio-proxy"]}`
		p.object.Spec.Containers = append(p.object.Spec.Containers, corev1.Container{
			Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, SecurityContext: user(proxyUser),
		})
	}
	return p, nil
}

func user(uid int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: &uid} }

// attachment is what the runtime tells the plugins about the pod.
func (p *pod) attachment() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: p.name, IfName: "eth0", NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.ns.Fd()),
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", p.object.Namespace}, {"K8S_POD_NAME", p.name},
			{"K8S_POD_UID", string(p.object.UID)}, {"K8S_POD_INFRA_CONTAINER_ID", p.name},
		},
		CapabilityArgs: map[string]any{annotationsCapability: p.object.Annotations},
	}
}

// api is an API server that knows pods and nothing else.
type api struct {
	*httptest.Server
	kubeconfig string
	pods       map[string]*pod
	asked      int
}

const token = "demo"

// serveAPI listens on the loopback of the calling thread's namespace and writes the kubeconfig for
// it.
func serveAPI(dir string) (*api, error) {
	a := &api{kubeconfig: filepath.Join(dir, "kubeconfig"), pods: map[string]*pod{}}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.get))
	a.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	config := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "demo",
		"contexts": []any{map[string]any{"name": "demo", "context": map[string]string{"cluster": "demo", "user": "demo"}}},
		"clusters": []any{map[string]any{"name": "demo", "cluster": map[string]any{"server": a.URL, "certificate-authority-data": ca}}},
		"users":    []any{map[string]any{"name": "demo", "user": map[string]string{"token": token}}},
	}
	data, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.kubeconfig, data, 0o600)
}

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	a.asked++
	p, ok := a.pods[r.URL.Path]
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("Authorization") != "Bearer "+token:
		w.WriteHeader(http.StatusUnauthorized)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	default:
		_ = json.NewEncoder(w).Encode(p.object) // who hangs up needs no answer
	}
}

func (a *api) put(p *pod) { a.pods["/api/v1/namespaces/"+p.object.Namespace+"/pods/"+p.name] = p }

func (a *api) close() { a.Close() }

// decide tells what the plugin makes of the pod.
func (p *pod) decide() (redirect.Decision, error) {
	data, err := json.Marshal(&p.object)
	if err != nil {
		return redirect.Decision{}, err
	}
	read, err := kubepod.Parse(data)
	if err != nil {
		return redirect.Decision{}, err
	}
	return redirect.Decide(read.Facts(), redirect.Defaults())
}
