//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An otherWebhook changes pods, too. It is a server of this process in the control plane's network.
type otherWebhook struct {
	server *httptest.Server

	mu     sync.Mutex
	change func(*corev1.Pod)
	calls  int
}

func (in *injecting) otherWebhook(t *testing.T) *otherWebhook {
	t.Helper()
	o := &otherWebhook{}
	o.server = httptest.NewUnstartedServer(o)
	o.server.Listener.Close()
	o.server.Listener = in.Listen(t, "127.0.0.1:0")
	o.server.StartTLS()
	t.Cleanup(o.server.Close)
	return o
}

// does says what it does from now on.
func (o *otherWebhook) does(change func(*corev1.Pod)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.change, o.calls = change, 0
}

// called tells how often, since it was last asked.
func (o *otherWebhook) called() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.calls = 0 }()
	return o.calls
}

func (o *otherWebhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	var review admissionv1.AdmissionReview
	err := json.NewDecoder(r.Body).Decode(&review)
	if err == nil {
		review.Response, err = o.answer(review.Request)
		review.Request = nil
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest) // the API server passes it on
		return
	}
	_ = json.NewEncoder(w).Encode(review) // the API server notices
}

func (o *otherWebhook) answer(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse,
	error) {
	var pod corev1.Pod
	if err := json.Unmarshal(r.Object.Raw, &pod); err != nil {
		return nil, err
	}
	o.change(&pod)
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch, err := json.Marshal([]operation{{"replace", "/spec", pod.Spec},
		{"replace", "/metadata", pod.ObjectMeta}})
	return &admissionv1.AdmissionResponse{UID: r.UID, Allowed: true, Patch: patch,
		PatchType: new(admissionv1.PatchTypeJSONPatch)}, err
}

// register has the API server call it about the pods of a namespace, until the function that it
// returns is called.
func (o *otherWebhook) register(t *testing.T, in *injecting, space string,
	b beside) (unregister func()) {
	t.Helper()
	all := in.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := all.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: b.configuration},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "other.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &o.server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
					Bytes: o.server.Certificate().Raw})},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": space}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{
					admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""},
					APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			ReinvocationPolicy:      &b.policy,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.await(t, in, space, true)
	return func() {
		in.Kubectl(t, "delete", "mutatingwebhookconfiguration", b.configuration)
		o.await(t, in, space, false)
	}
}

// await waits until the API server calls it, or does so no longer.
func (o *otherWebhook) await(t *testing.T, in *injecting, space string, wanted bool) {
	t.Helper()
	o.does(func(*corev1.Pod) {})
	in.Await(t, fmt.Sprintf("the other webhook's part in pods to be %v", wanted),
		func(ctx context.Context) error {
			o.called()
			_, err := in.admit(ctx, newPod(space, "asks"))
			if calls := o.called(); err == nil && (calls > 0) != wanted {
				err = fmt.Errorf("it was called %d times", calls)
			}
			return err
		})
}
