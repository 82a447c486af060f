package follow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

var name = types.NamespacedName{Namespace: "mesh", Name: "injector"}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: name},
		Data: map[string]string{"config": value}}
}

// follow runs something until the test ends, and returns how often it said that it has changed.
func follow(t *testing.T, run func(context.Context, func())) func() int {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	count := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			count++
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

func look(o *Object) string {
	switch data, err := o.Data(); {
	case errors.Is(err, ErrPending):
		return "pending"
	case errors.Is(err, ErrNotFound):
		return "not found"
	case err != nil:
		return err.Error()
	default:
		return string(data["config"])
	}
}

func TestAConfigMapIsFollowed(t *testing.T) {
	t.Parallel()
	for title, older := range map[string]bool{"by a list that is streamed": false,
		"by a list, as older servers want it": true} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apiserver.InMemory(t)
				if older {
					api.WithoutWatchLists()
				}
				api.PutObject(configMap("other", "other"))
				o, err := ConfigMap(api.Config(), name, zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				got := []string{look(o)}
				changes := follow(t, o.Run)
				for _, do := range []func(){
					func() {},
					func() { api.PutObject(configMap("injector", "first")) },
					func() { api.PutObject(configMap("injector", "second")) },
					func() { api.RemoveObject(configMap("injector", "")) },
				} {
					before := changes()
					do()
					synctest.Wait()
					if changes() == before {
						t.Errorf("nobody was told, it is %s now", look(o))
					}
					got = append(got, look(o))
				}
				api.PutObject(configMap("other", "changed"))
				want := []string{"pending", "not found", "first", "second", "not found"}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("data (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestASecretIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apiserver.InMemory(t)
		api.PutObject(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: "injector"},
			Data:       map[string][]byte{"config": []byte("secret")}})
		o, err := Secret(api.Config(), name, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		follow(t, o.Run)
		synctest.Wait()
		if got := look(o); got != "secret" {
			t.Errorf("data %q, want the secret", got)
		}
	})
}

// What was known stays while the API server is away; what was not is asked for again.
func TestAnAPIServerThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apiserver.InMemory(t)
		api.PutObject(configMap("injector", "first"))
		api.Break(apiserver.Say(apierrors.NewForbidden(corev1.Resource("configmaps"), "injector",
			errors.New("no such right"))))
		o, err := ConfigMap(api.Config(), name, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		follow(t, o.Run)
		synctest.Wait()
		_, err = o.Data()
		if !errors.Is(err, ErrPending) || !strings.Contains(fmt.Sprint(err),
			"read ConfigMap mesh/injector: not known yet: ") ||
			!strings.Contains(err.Error(), "no such right") {
			t.Errorf("error %v, want the name and the cause", err)
		}
		api.Break(nil)
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		got := []string{look(o)}

		api.Refuse(true)
		api.Break(apiserver.Cut)
		api.DropWatches()
		api.PutObject(configMap("injector", "second"))
		time.Sleep(time.Minute)
		got = append(got, look(o))
		api.Refuse(false)
		api.Break(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		got = append(got, look(o))
		if diff := cmp.Diff([]string{"first", "first", "second"}, got); diff != "" {
			t.Errorf("data (-want +got):\n%s", diff)
		}
	})
}

func TestChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		changes := NewChanges()
		began := time.Now()
		var reads []time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			changes.Handle(ctx, func() time.Duration {
				reads = append(reads, time.Since(began))
				if len(reads) == 2 {
					return time.Minute
				}
				return 0
			})
		}()
		time.Sleep(time.Second)
		changes.Note() // one read stands for all of these
		changes.Note()
		time.Sleep(settle / 2)
		changes.Note()
		time.Sleep(time.Hour)
		cancel()
		<-done
		want := []time.Duration{0, time.Second + settle, time.Minute + time.Second + settle}
		if diff := cmp.Diff(want, reads); diff != "" {
			t.Errorf("reads (-want +got):\n%s", diff)
		}
	})
}
