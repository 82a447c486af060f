package certify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/injector/certificate"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

const authorityLife = 10 * 365 * 24 * time.Hour

var settings = Settings{
	Secret:         types.NamespacedName{Namespace: "mesh", Name: "ca"},
	Configurations: []string{"inject", "strip"},
	Timeout:        2 * time.Minute,
}

// webhooks is a configuration of Helm's with two webhooks, the second of which is somebody's at a
// URL.
func webhooks(name string) *admissionv1.MutatingWebhookConfiguration {
	url := "https://example.com/inject"
	return &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "helm",
				Operation: metav1.ManagedFieldsOperationApply}}},
		Webhooks: []admissionv1.MutatingWebhook{
			{Name: "ours", ClientConfig: admissionv1.WebhookClientConfig{
				Service: &admissionv1.ServiceReference{Namespace: "mesh", Name: "injector"}}},
			{Name: "theirs", ClientConfig: admissionv1.WebhookClientConfig{URL: &url}},
		},
	}
}

func start(t *testing.T) *apiserver.Server {
	t.Helper()
	api := apiserver.InMemory(t)
	api.PutObject(webhooks("inject"))
	api.PutObject(webhooks("strip"))
	return api
}

func certify(t *testing.T, api *apiserver.Server) error {
	t.Helper()
	return Run(t.Context(), api.Config(), settings, zap.NewNop())
}

func found(t *testing.T, api *apiserver.Server) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: "ca"}}
	if !api.Find(s) {
		t.Fatal("there is no Secret")
	}
	return s
}

func configuration(t *testing.T, api *apiserver.Server,
	name string) *admissionv1.MutatingWebhookConfiguration {
	t.Helper()
	c := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !api.Find(c) {
		t.Fatalf("there is no configuration %s", name)
	}
	return c
}

// check holds that all is as it is to be at the end: an authority that signs, and so many
// authorities trusted, in the Secret and by the webhooks, of which nothing else has changed.
func check(t *testing.T, api *apiserver.Server, authorities int) *certificate.Authority {
	t.Helper()
	s := found(t, api)
	if len(s.Data) != 3 {
		t.Errorf("the Secret has %d keys, want 3", len(s.Data))
	}
	signer, err := certificate.ParseAuthority(s.Data["tls.crt"], s.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	trust, err := certificate.ParseBundle(s.Data["ca.crt"])
	if err != nil || len(trust) != authorities || !trust[0].Equal(signer.Certificate()) {
		t.Errorf("%d are trusted, %v; want %d, who signs first", len(trust), err, authorities)
	}
	for _, name := range settings.Configurations {
		want, got := webhooks(name), configuration(t, api, name)
		want.ResourceVersion = got.ResourceVersion
		want.Webhooks[0].ClientConfig.CABundle = s.Data["ca.crt"]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("configuration %s (-want +got):\n%s", name, diff)
		}
	}
	return signer
}

// put makes what an earlier version of the Secret was: authorities that are trusted, the first of
// which signs.
func put(t *testing.T, api *apiserver.Server, authorities ...*certificate.Authority) {
	t.Helper()
	key, err := authorities[0].Key()
	if err != nil {
		t.Fatal(err)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: "ca"}}
	s.Data = map[string][]byte{"tls.crt": certificate.Bundle(authorities[0].Certificate()),
		"tls.key": key}
	for _, a := range authorities {
		s.Data["ca.crt"] = append(s.Data["ca.crt"], certificate.Bundle(a.Certificate())...)
	}
	api.PutObject(s)
}

// authority was made so long ago.
func authority(t *testing.T, age time.Duration) *certificate.Authority {
	t.Helper()
	a, err := certificate.NewAuthority(time.Now().Add(-age))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnAuthorityIsMadeOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, began := start(t), time.Now()
		if err := certify(t, api); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took >= settle {
			t.Errorf("it took %v, though nobody was trusted before", took)
		}
		first := check(t, api, 1)
		before := found(t, api).ResourceVersion
		version := configuration(t, api, "inject").ResourceVersion
		if err := certify(t, api); err != nil {
			t.Fatal(err)
		}
		if again := check(t, api, 1); !again.Certificate().Equal(first.Certificate()) ||
			found(t, api).ResourceVersion != before ||
			configuration(t, api, "inject").ResourceVersion != version {
			t.Error("a second run changes something")
		}
		if s := found(t, api); s.Type != corev1.SecretTypeOpaque ||
			s.Labels["app.kubernetes.io/component"] != "injector" {
			t.Errorf("type %s, labels %v", s.Type, s.Labels)
		}
	})
}

func TestAConfigurationThatIsNotThereIsPassedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t)
		api.RemoveObject(webhooks("strip"))
		if err := certify(t, api); err != nil {
			t.Fatal(err)
		}
		bundle := found(t, api).Data["ca.crt"]
		inject := configuration(t, api, "inject")
		if !bytes.Equal(inject.Webhooks[0].ClientConfig.CABundle, bundle) {
			t.Error("the other one has not got it")
		}
	})
}

// Whoever serves by the old authority is trusted at each moment, and who serves by the new one is
// trusted before it signs.
func TestAnAuthorityIsReplacedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t)
		first := authority(t, 8*365*24*time.Hour-time.Minute)
		put(t, api, first)
		if err := certify(t, api); err != nil {
			t.Fatal(err)
		}
		if got := check(t, api, 1); !got.Certificate().Equal(first.Certificate()) {
			t.Error("it was replaced too early")
		}
		time.Sleep(2 * time.Minute)
		watching, began := watch(t, api, first), time.Now()
		if err := certify(t, api); err != nil {
			t.Fatal(err)
		}
		watching()
		if took := time.Since(began); took < settle {
			t.Errorf("after %v the new one signs: not every API server may have heard of it", took)
		}
		if second := check(t, api, 2); second.Certificate().Equal(first.Certificate()) {
			t.Error("it was not replaced")
		}
	})
}

// One that was made while a node's clock was ahead convinces no API server until then.
func TestAnAuthorityOfTheFutureIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t)
		put(t, api, authority(t, -365*24*time.Hour))
		if err := certify(t, api); err != nil {
			t.Fatal(err)
		}
		if now := check(t, api, 2).Certificate().NotBefore; now.After(time.Now()) {
			t.Errorf("who signs is valid from %v only", now)
		}
	})
}

// An authority that another has replaced is trusted for as long as what it signed may live.
func TestAnAuthorityThatWasReplacedIsDropped(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		newer, older time.Duration // their ages
		want         int
	}{
		"not at once":            {trustAfter - time.Hour, 9 * 365 * 24 * time.Hour, 2},
		"two days later":         {trustAfter, 9 * 365 * 24 * time.Hour, 1},
		"at once, if it expired": {0, authorityLife + time.Hour, 1},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api, newer := start(t), authority(t, test.newer)
				put(t, api, newer, authority(t, test.older))
				if err := certify(t, api); err != nil {
					t.Fatal(err)
				}
				if got := check(t, api, test.want); !got.Certificate().Equal(newer.Certificate()) {
					t.Error("the wrong one was left")
				}
			})
		})
	}
}

// watch looks at each request whether the webhooks trust the old authority and the one that signs.
func watch(t *testing.T, api *apiserver.Server, old *certificate.Authority) (end func()) {
	t.Helper()
	var mu sync.Mutex
	looks, again := 0, false
	api.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			looks++
			signer := found(t, api).Data["tls.crt"]
			again = again || !bytes.Equal(signer, certificate.Bundle(old.Certificate()))
			for _, name := range settings.Configurations {
				bundle := configuration(t, api, name).Webhooks[0].ClientConfig.CABundle
				if !bytes.Contains(bundle, signer) ||
					!bytes.Contains(bundle, certificate.Bundle(old.Certificate())) {
					t.Errorf("before %s %s: configuration %s does not trust who serves", r.Method,
						r.URL.Path, name)
				}
			}
			next.ServeHTTP(w, r)
		})
	})
	return func() {
		api.Break(nil)
		mu.Lock()
		defer mu.Unlock()
		if looks == 0 || !again {
			t.Errorf("in %d requests the authority that signs has not changed", looks)
		}
	}
}

// Who serves by an authority whose Secret was deleted is trusted until the new one is.
func TestASecretThatWasDeletedIsMadeAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t)
		if err := certify(t, api); err != nil {
			t.Fatal(err)
		}
		first := check(t, api, 1)
		api.RemoveObject(found(t, api))
		began := time.Now()
		if err := certify(t, api); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < settle {
			t.Errorf("after %v the new one signs: not every API server may have heard of it", took)
		}
		if second := check(t, api, 2); second.Certificate().Equal(first.Certificate()) {
			t.Error("it is the same")
		}
	})
}

// A run that is killed before any of its requests, and beside others: the next one ends well.
func TestRunsThatAreKilled(t *testing.T) {
	t.Parallel()
	for title, old := range map[string]bool{"at the first authority": false, "at the next": true} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for requests := range 12 {
					api := start(t)
					want := 1
					if old {
						want = 2
						put(t, api, authority(t, 9*365*24*time.Hour))
					}
					left := requests
					api.Break(func(next http.Handler) http.Handler {
						if left--; left >= 0 {
							return next
						}
						return apiserver.Cut(next)
					})
					ctx, cancel := context.WithTimeout(t.Context(), 2*settle)
					err := Run(ctx, api.Config(), settings, zap.NewNop())
					cancel()
					if err == nil && requests < 4 {
						t.Errorf("%d requests are enough", requests)
					}
					api.Break(nil)
					if err := certify(t, api); err != nil {
						t.Fatalf("after %d requests: %v", requests, err)
					}
					check(t, api, want)
				}
			})
		})
	}
}

func TestRunsBesideEachOther(t *testing.T) {
	t.Parallel()
	for title, old := range map[string]bool{"at the first authority": false, "at the next": true} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api, want := start(t), 1
				if old {
					want = 2
					put(t, api, authority(t, 9*365*24*time.Hour))
				}
				api.Break(apiserver.Slow(100 * time.Millisecond))
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						if err := certify(t, api); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				check(t, api, want)
			})
		})
	}
}

func TestRightsThatComeLate(t *testing.T) {
	t.Parallel()
	forbidden := apiserver.Say(apierrors.NewForbidden(corev1.Resource("secrets"), "ca",
		errors.New("no such right")))
	synctest.Test(t, func(t *testing.T) {
		api := start(t)
		api.Break(apiserver.First(5, forbidden))
		if err := certify(t, api); err != nil {
			t.Fatal(err)
		}
		check(t, api, 1)
		api.Break(forbidden)
		if err := certify(t, api); err == nil || !strings.Contains(err.Error(), "no such right") {
			t.Errorf("error %v, want the one of the API server", err)
		}
		api.Break(apiserver.Hang)
		if err := certify(t, api); err == nil {
			t.Error("no error of an API server that never answers")
		}
	})
}

func TestASecretThatIsSpoiled(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(map[string][]byte){
		"key ca.crt: it is empty": func(d map[string][]byte) { delete(d, "ca.crt") },
		"key ca.crt: want certificates": func(d map[string][]byte) {
			d["ca.crt"] = []byte("nonsense")
		},
		"keys tls.crt and tls.key": func(d map[string][]byte) { d["tls.key"] = nil },
		"keys ca.crt and next.key": func(d map[string][]byte) { d["next.key"] = []byte("x") },
		"has not the certificate of": func(d map[string][]byte) {
			a, err := certificate.NewAuthority(time.Now())
			if err != nil {
				panic(err)
			}
			d["ca.crt"] = certificate.Bundle(a.Certificate())
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := start(t)
				put(t, api, authority(t, 0))
				s := found(t, api)
				spoil(s.Data)
				api.PutObject(s)
				began := time.Now()
				err := certify(t, api)
				wantSpoiled(t, err, want)
				if took := time.Since(began); took > 0 {
					t.Errorf("it took %v: nothing gets better by waiting", took)
				}
				api.Break(apiserver.First(1, apiserver.Say(apierrors.NewForbidden(
					corev1.Resource("secrets"), "ca", errors.New("no such right")))))
				wantSpoiled(t, certify(t, api), want)
				if diff := cmp.Diff(s.Data, found(t, api).Data); diff != "" {
					t.Error("the Secret was changed")
				}
			})
		})
	}
}

// wantSpoiled wants an error to name the key, and to say what to do.
func wantSpoiled(t *testing.T, err error, key string) {
	t.Helper()
	for _, want := range []string{key, "secret mesh/ca", "delete it"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
