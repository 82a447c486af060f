package apiserver

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestSecretsAreCreatedAndUpdated(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := client(t, s, jsonType)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: "ca"},
		Data: map[string][]byte{"a": []byte("1")}}
	create := func() int32 {
		return code(c.Post().Namespace("mesh").Resource("secrets").Body(secret).Do(t.Context()).
			Into(secret))
	}
	update := func(version string) int32 {
		changed := secret.DeepCopy()
		changed.ResourceVersion, changed.Data["a"] = version, []byte("2")
		return code(c.Put().Namespace("mesh").Resource("secrets").Name("ca").Body(changed).
			Do(t.Context()).Error())
	}
	got := []int32{update("1"), create(), create(), update("99"), update(secret.ResourceVersion),
		update(secret.ResourceVersion)}
	want := []int32{http.StatusNotFound, 0, http.StatusConflict, http.StatusConflict, 0,
		http.StatusConflict}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
	if !s.Find(secret) || string(secret.Data["a"]) != "2" {
		t.Errorf("it is %v, want what it was updated to", secret.Data)
	}
	s.RemoveObject(secret)
	if s.Find(secret) {
		t.Error("it is still there")
	}
}

// Who patches owns it, unless that is what he patches; it can be deleted once.
func TestWebhookConfigurations(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := client(t, s, jsonType)
	kept := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "inject"}}
	s.PutObject(kept)
	const path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/inject"
	patch := func(manager, body string) int32 {
		return code(c.Patch(types.MergePatchType).AbsPath(path).Param("fieldManager", manager).
			Body([]byte(body)).Do(t.Context()).Error())
	}
	remove := func() int32 { return code(c.Delete().AbsPath(path).Do(t.Context()).Error()) }
	got := []int32{patch("me", `{"metadata":{"labels":{"a":"b"}}}`),
		patch("you", `{"metadata":{"labels":{"a":"c"}}}`)}
	var managers []string
	s.Find(kept)
	for _, entry := range kept.ManagedFields {
		managers = append(managers, entry.Manager)
	}
	if diff := cmp.Diff([]string{"me", "you"}, managers); diff != "" {
		t.Errorf("managers (-want +got):\n%s", diff)
	}
	got = append(got, patch("you", `{"metadata":{"managedFields":[{"manager":"me"}]}}`))
	if s.Find(kept); len(kept.ManagedFields) != 1 {
		t.Errorf("managers %v, want me", kept.ManagedFields)
	}
	got = append(got, remove(), remove())
	if diff := cmp.Diff([]int32{0, 0, 0, 0, http.StatusNotFound}, got); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
}
