//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sidecar-cni/sidecar-cni/injector/certificate"
	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const mostMemory = 200 << 20 // of the injector while it is sent nonsense

// nonsense is posted to a replica by somebody else than the API server. It answers, says what is
// wrong, and goes on.
func (in *injecting) nonsense(t *testing.T) {
	replica := in.mustReplicas(t)[0]
	client := in.webhookClient(t)
	defer client.CloseIdleConnections()
	url := webhookURL(&replica)
	const asJSON = "application/json"
	for _, tt := range []struct {
		name, method, path, content, body string
		code                              int
	}{
		{"a question by GET", http.MethodGet, "/inject", "", "", http.StatusNotFound},
		{"another path", http.MethodPost, "/", asJSON, "{}", http.StatusNotFound},
		{"another content type", http.MethodPost, "/inject", "text/plain", "{}",
			http.StatusUnsupportedMediaType},
		{"nothing", http.MethodPost, "/inject", asJSON, "", http.StatusBadRequest},
		{"no JSON", http.MethodPost, "/strip", asJSON, "who goes there?", http.StatusBadRequest},
		{"no request", http.MethodPost, "/inject", asJSON,
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, http.StatusBadRequest},
		{"another version", http.MethodPost, "/inject", asJSON,
			`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1"}}`,
			http.StatusBadRequest},
		{"another kind", http.MethodPost, "/strip", asJSON,
			`{"apiVersion":"v1","kind":"Pod"}`, http.StatusBadRequest},
		{"64 MB that are announced", http.MethodPost, "/inject", asJSON,
			strings.Repeat(" ", 64<<20), http.StatusRequestEntityTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), tt.method, url+tt.path,
				strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", tt.content)
			said, code := post(t, client, request)
			if code != tt.code || strings.TrimSpace(said) == "" {
				t.Errorf("the answer is %d %q, want %d and a sentence", code, said, tt.code)
			}
		})
	}
	t.Run("64 MB that are not announced", func(t *testing.T) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/strip",
			io.LimitReader(spaces{}, 64<<20))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", asJSON)
		if said, code := post(t, client, request); code != http.StatusRequestEntityTooLarge {
			t.Errorf("the answer is %d %q", code, said)
		}
	})
	t.Run("a pod that is not one", func(t *testing.T) { notAPod(t, client, url) })
	t.Run("a pod of 1 MB", in.largePod)
	in.expectUnharmed(t, &replica)
}

// spaces are read for ever.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// webhookClient is one as the API server has it: it trusts the authority in our Secret, and knows
// the Service's name.
func (in *injecting) webhookClient(t *testing.T) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(in.secret(t).Data[certificate.BundleKey]) {
		t.Fatalf("ca.crt of %s has no certificate", caSecret)
	}
	return in.clientTrusting(roots)
}

func (in *injecting) clientTrusting(roots *x509.CertPool) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: in.Config().Dial,
		TLSClientConfig: &tls.Config{RootCAs: roots,
			ServerName: injectorName + "." + home + ".svc"},
	}}
}

// handshake says why a replica's certificate is none of an authority.
func (in *injecting) handshake(ctx context.Context, replica *corev1.Pod,
	roots *x509.CertPool) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, webhookURL(replica),
		http.NoBody)
	if err != nil {
		return err
	}
	client := in.clientTrusting(roots)
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func webhookURL(replica *corev1.Pod) string {
	return "https://" + net.JoinHostPort(replica.Status.PodIP, "9443")
}

func post(t *testing.T, client *http.Client, request *http.Request) (said string, code int) {
	t.Helper()
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), response.StatusCode
}

// notAPod: what is none of ours is allowed, as it is.
func notAPod(t *testing.T, client *http.Client, url string) {
	for name, object := range map[string]string{"a list": `[]`, "no object": `null`,
		"a Service": `{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}}`} {
		review := admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
			Request: &admissionv1.AdmissionRequest{UID: "it", Operation: admissionv1.Create,
				Resource: metav1.GroupVersionResource{Version: "v1", Resource: "services"},
				Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Service"},
				Object:   runtime.RawExtension{Raw: []byte(object)}},
		}
		body, err := json.Marshal(review)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/inject",
			bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		said, code := post(t, client, request)
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal([]byte(said), &answer); err != nil || code != http.StatusOK ||
			answer.Response == nil || !answer.Response.Allowed || answer.Response.UID != "it" ||
			len(answer.Response.Patch) > 0 {
			t.Errorf("%s: the answer is %d %s", name, code, said)
		}
	}
}

// largePod: as large a pod as is injected, and a larger one, which the API server would take.
func (in *injecting) largePod(t *testing.T) {
	large := func(size int) *corev1.Pod {
		p := newPod(injectedSpace, "large")
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LARGE",
			Value: strings.Repeat("x", size)}}
		return p
	}
	if p := in.mustAdmit(t, large(1000_000)); !isInjected(p) {
		t.Errorf("it has the containers %v", containers(p))
	}
	_, err := in.admit(t.Context(), large(1<<20))
	if err == nil || !strings.Contains(err.Error(), "want at most 1048576") {
		t.Errorf("of a larger one the API server says: %v", err)
	}
}

// expectUnharmed holds that a replica was not started again, and how much memory it took.
func (in *injecting) expectUnharmed(t *testing.T, replica *corev1.Pod) {
	t.Helper()
	now := in.AwaitPod(t, home, replica.Name, cluster.Ready)
	if restarts := now.Status.ContainerStatuses[0].RestartCount; restarts > 0 {
		t.Errorf("it was started again %d times", restarts)
	}
	for _, process := range in.injectorProcesses(t, now) {
		most := mostResident(t, in.node(t, now), process)
		t.Logf("the injector took at most %d MB", most>>20)
		if most > mostMemory {
			t.Errorf("the injector took %d MB, want at most %d", most>>20, mostMemory>>20)
		}
	}
}
