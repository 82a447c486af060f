package withdraw

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

func configuration(name string) *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestWebhooksAreWithdrawn(t *testing.T) {
	t.Parallel()
	forbidden := apiserver.Say(apierrors.NewForbidden(corev1.Resource("webhooks"), "inject",
		errors.New("no such right")))
	tests := map[string]struct {
		fault   apiserver.Fault
		timeout time.Duration
		took    time.Duration // at least
		err     string        // part of it
		left    bool          // they are still there
	}{
		"and all API servers hear of it": {timeout: time.Minute, took: 5 * time.Second},
		"when the right is there": {fault: apiserver.First(3, forbidden), timeout: time.Minute,
			took: 8 * time.Second},
		"when the API server is": {fault: apiserver.First(2, apiserver.Hang),
			timeout: time.Minute, took: 25 * time.Second},
		"but not without the right": {fault: forbidden, timeout: time.Minute, took: time.Minute,
			err: "no such right", left: true},
		"but nobody knows in time who has heard of it": {timeout: 2 * time.Second,
			took: 2 * time.Second, err: "hear of it"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apiserver.InMemory(t)
				for _, name := range []string{"inject", "strip", "other"} {
					api.PutObject(configuration(name))
				}
				api.Break(test.fault)
				began := time.Now()
				s := Settings{Configurations: []string{"inject", "missing", "strip"},
					Settle: 5 * time.Second, Timeout: test.timeout}
				core, logs := observer.New(zap.InfoLevel)
				err := Run(t.Context(), api.Config(), s, zap.New(core))
				if (err == nil) != (test.err == "") ||
					err != nil && !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				if took := time.Since(began).Truncate(time.Second); took != test.took {
					t.Errorf("it took %v, want %v", took, test.took)
				}
				for name, want := range map[string]bool{"inject": test.left, "strip": test.left,
					"other": true} {
					if got := api.Find(configuration(name)); got != want {
						t.Errorf("configuration %s is there: %v, want %v", name, got, want)
					}
				}
				if got := logs.FilterMessage("withdrew webhooks").Len(); (got == 1) != (err == nil) {
					t.Errorf("%d lines that it is done, error %v", got, err)
				}
			})
		})
	}
}

func TestAgainChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apiserver.InMemory(t)
		core, logs := observer.New(zap.InfoLevel)
		s := Settings{Configurations: []string{"inject"}, Settle: time.Second, Timeout: time.Minute}
		for range 2 {
			if err := Run(t.Context(), api.Config(), s, zap.New(core)); err != nil {
				t.Error(err)
			}
		}
		if got := logs.FilterMessage("found no webhook configuration").Len(); got != 2 {
			t.Errorf("%d lines that there was none, want 2", got)
		}
	})
}
