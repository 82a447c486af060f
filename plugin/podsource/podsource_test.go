package podsource

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/agent"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

// inWorlds runs tests where time passes only while everybody waits.
func inWorlds(t *testing.T, tests map[string]func(*testing.T, *world)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
		})
	}
}

func checkFound(t *testing.T, found Found, err error, from string) {
	t.Helper()
	if err != nil || found.From != from {
		t.Errorf("found in %q, error %v; want it in %q", found.From, err, from)
	}
}

func checkClass(t *testing.T, err error, want Class) {
	t.Helper()
	var failure *Error
	if !errors.As(err, &failure) || failure.Class != want {
		t.Errorf("error %v; want one of class %q", err, want)
	}
}

func TestPatience(t *testing.T) {
	t.Parallel()
	inWorlds(t, map[string]func(*testing.T, *world){
		"the agent's pod comes without the API server": func(t *testing.T, w *world) {
			w.agent.Put(meshed("5d1c"))
			found, took, err := w.find(t, web)
			checkFound(t, found, err, FromAgent)
			if took != 0 || w.api.Requests() != 0 {
				t.Errorf("it took %v and %d requests to the API server, want none", took,
					w.api.Requests())
			}
		},
		"a refusal ends it at once": func(t *testing.T, w *world) {
			w.away(agentAddress)
			apiBehaviours["403"].set(t, w)
			_, took, err := w.find(t, web)
			checkClass(t, err, Denied)
			if took != 0 || w.api.Requests() != 1 {
				t.Errorf("it took %v and %d requests, want one", took, w.api.Requests())
			}
			want := "API server: https://" + apiAddress + ": "
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %v: want %q in it", err, want)
			}
		},
		"an unknown token ends it at once if the agent is there": func(t *testing.T, w *world) {
			w.agent.Break(agent.Unsynced)
			apiBehaviours["401"].set(t, w)
			_, took, err := w.find(t, web)
			checkClass(t, err, Denied)
			if took != 0 || w.api.Requests() != 1 {
				t.Errorf("it took %v and %d requests, want one", took, w.api.Requests())
			}
		},
		"a missing pod is waited for, but not until the deadline": func(t *testing.T, w *world) {
			w.away(agentAddress)
			_, took, err := w.find(t, web)
			checkClass(t, err, Gone)
			if took < goneGrace || took > goneGrace+longestPause {
				t.Errorf("it took %v, want %v and at most %v more", took, goneGrace, longestPause)
			}
		},
		"a deadline before goneGrace ends is Gone too": func(t *testing.T, w *world) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := w.sources().Find(ctx, web)
			checkClass(t, err, Gone)
		},
		"a pod that the agent sees after two seconds is found": func(t *testing.T, w *world) {
			w.away(apiAddress)
			time.AfterFunc(2*time.Second, func() { w.agent.Put(meshed("5d1c")) })
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAgent)
		},
		"an agent that comes back is asked": func(t *testing.T, w *world) {
			w.api.Break(apiserver.Hang)
			w.agent.Put(meshed("5d1c"))
			w.agent.Break(agent.Hang)
			time.AfterFunc(6*time.Second, func() { w.agent.Break(nil) })
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAgent)
		},
		"Retry-After is kept to, while the agent is still asked": func(t *testing.T, w *world) {
			w.agent.Break(agent.Unsynced)
			w.agent.Put(meshed("5d1c"))
			w.api.Break(apiserver.SayText(429, 60, "Too many requests, please try again later."))
			time.AfterFunc(4*time.Second, func() { w.agent.Break(nil) })
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAgent)
			if w.api.Requests() != 1 {
				t.Errorf("%d requests to an API server that wants to be left alone, want one",
					w.api.Requests())
			}
		},
		"Retry-After in a Status is kept to": func(t *testing.T, w *world) {
			w.away(agentAddress)
			w.api.Put(meshed("5d1c"))
			w.api.Break(apiserver.First(1, apiserver.Say(apierrors.NewTooManyRequests("busy", 3))))
			found, took, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
			if took < 3*time.Second || w.api.Requests() != 2 {
				t.Errorf("found after %v and %d requests, want two, three seconds apart", took,
					w.api.Requests())
			}
		},
		"what was heard before is not forgotten in the hurry of the end": func(t *testing.T,
			w *world) {
			w.away(agentAddress)
			expiredToken(t, w)
			w.api.Break(apiserver.Slow(400 * time.Millisecond))
			_, _, err := w.find(t, web)
			checkClass(t, err, Denied)
			checkWords(t, err, "401 Unauthorized")
		},
		"a caller that gives up is heard": func(t *testing.T, w *world) {
			w.agent.Break(agent.Hang)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(500*time.Millisecond, cancel)
			started := time.Now()
			_, err := w.sources().Find(ctx, web)
			checkClass(t, err, Unreachable)
			if took := time.Since(started); took != 500*time.Millisecond {
				t.Errorf("it ended after %v, want 500ms", took)
			}
		},
	})
}

func TestWhichPodCounts(t *testing.T) {
	t.Parallel()
	mirror := meshed("a1da")
	mirror.Annotations = map[string]string{
		corev1.MirrorPodAnnotationKey: "5d1c", "kubernetes.io/config.source": "file",
		"sidecar.istio.io/status": "{}",
	}
	noContainers := meshed("5d1c")
	noContainers.Spec.Containers = nil
	inWorlds(t, map[string]func(*testing.T, *world){
		"without a uid, any": func(t *testing.T, w *world) {
			w.api.Put(meshed("a1da"))
			found, _, err := w.find(t, Ref{Namespace: web.Namespace, Name: web.Name})
			checkFound(t, found, err, FromAPI)
			if found.UID != "a1da" {
				t.Errorf("uid %q, want that of the pod", found.UID)
			}
		},
		"a mirror pod, which the core then skips": func(t *testing.T, w *world) {
			w.api.Put(mirror)
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
			decision, err := redirect.Decide(found.Pod, redirect.Defaults())
			if decision.Skip != redirect.StaticPod || err != nil {
				t.Errorf("decided %+v, error %v; want %s", decision, err, redirect.StaticPod)
			}
		},
		"a mirror pod from the agent": func(t *testing.T, w *world) {
			w.agent.Put(mirror)
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAgent)
		},
		"not one without containers, which would pass for unmeshed": func(t *testing.T, w *world) {
			w.agent.Put(noContainers)
			w.api.Put(meshed("5d1c"))
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"not another one that an agent confuses with it": func(t *testing.T, w *world) {
			w.agent.Break(agent.Say(200,
				`{"metadata":{"namespace":"shop","name":"web-1","uid":"5d1c"},"spec":{"containers":[{}]}}`))
			w.api.Put(meshed("5d1c"))
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"not another uid that an agent does not compare": func(t *testing.T, w *world) {
			w.agent.Break(agent.Say(200,
				`{"metadata":{"namespace":"shop","name":"web-0","uid":"a1da"},"spec":{"containers":[{}]}}`))
			_, _, err := w.find(t, web)
			checkClass(t, err, Gone)
			checkWords(t, err, `uid "a1da"`)
		},
	})
}

func TestNamesThatLeadElsewhereAreRejected(t *testing.T) {
	t.Parallel()
	for _, ref := range []Ref{{}, {Namespace: "shop"}, {Namespace: "..", Name: "web-0"},
		{Namespace: "shop", Name: "a/b"}, {Namespace: "shop", Name: "a%2fb"}} {
		_, err := Sources{}.Find(t.Context(), ref)
		checkClass(t, err, Rejected)
		checkWords(t, err, "not asked", "CNI_ARGS")
	}
}

// A 404 that does not speak of pods comes from something else: a proxy, another program on that
// port.
func TestForeignServersAreToldFromTheAPIServer(t *testing.T) {
	t.Parallel()
	inWorlds(t, map[string]func(*testing.T, *world){
		"a bare 404 does not mean that the pod is gone": func(t *testing.T, w *world) {
			w.api.Break(apiserver.SayText(404, 0, "404 page not found"))
			w.away(agentAddress)
			_, _, err := w.find(t, web)
			checkClass(t, err, Rejected)
			checkWords(t, err, "is the Kubernetes API server")
		},
		"nor one of the agent": func(t *testing.T, w *world) {
			w.agent.Break(agent.Say(404, "404 page not found"))
			w.api.Put(meshed("5d1c"))
			found, took, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
			if took != 0 {
				t.Errorf("it took %v, want no pause", took)
			}
		},
		"a redirect is not followed": func(t *testing.T, w *world) {
			w.away(agentAddress)
			w.api.Break(func(http.Handler) http.Handler {
				return http.RedirectHandler("/elsewhere",
					http.StatusFound)
			})
			_, _, err := w.find(t, web)
			checkClass(t, err, Rejected)
			if w.api.Requests() != 1 {
				t.Errorf("%d requests, want one", w.api.Requests())
			}
		},
		"one that waited for the request in vain is asked again": func(t *testing.T, w *world) {
			w.away(agentAddress)
			w.api.Put(meshed("5d1c"))
			w.api.Break(apiserver.First(1, apiserver.SayText(408, 0, "slow down there")))
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"one that speaks JSON only is understood": func(t *testing.T, w *world) {
			w.api.Put(meshed("5d1c"))
			w.api.Break(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					r.Header.Set("Accept", "application/json")
					next.ServeHTTP(rw, r)
				})
			})
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
		},
		"another pod than was asked for": func(t *testing.T, w *world) {
			w.api.Break(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					r.URL.Path = "/api/v1/namespaces/shop/pods/other"
					next.ServeHTTP(rw, r)
				})
			})
			other := meshed("5d1c")
			other.Name = "other"
			w.api.Put(other)
			w.away(agentAddress)
			_, _, err := w.find(t, web)
			checkClass(t, err, Unreachable)
			checkWords(t, err, "not the pod that was asked for", "is the Kubernetes API server")
		},
		"a page is no pod": func(t *testing.T, w *world) {
			w.api.Break(apiserver.SayText(200, 0, "<html>"))
			w.away(agentAddress)
			_, _, err := w.find(t, web)
			checkClass(t, err, Unreachable)
		},
	})
}

func TestWhatTheSourcesAreAsked(t *testing.T) {
	t.Parallel()
	type request struct {
		Method, URI, Accept, UserAgent string
		Close                          bool // so that the next try may reach another replica
	}
	var got []request
	record := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = append(got, request{r.Method, r.RequestURI, r.Header.Get("Accept"), r.UserAgent(),
				r.Close})
			next.ServeHTTP(w, r)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		odd := meshed("a&b=c")
		odd.Name = "web 0?x"
		w.api.Put(odd)
		w.api.Break(record)
		w.agent.Break(record)
		found, _, err := w.find(t,
			Ref{Namespace: odd.Namespace, Name: odd.Name, UID: string(odd.UID)})
		checkFound(t, found, err, FromAPI)
	})
	want := []request{
		{"GET", "/v2/pods/shop/web%200%3Fx?uid=a%26b%3Dc", "", "sidecar-cni", true},
		{
			"GET", "/api/v1/namespaces/shop/pods/web%200%3Fx",
			"application/json", "sidecar-cni", true,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.test:3128")
	t.Setenv("HTTP_PROXY", "http://proxy.test:3128")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Put(meshed("5d1c"))
		w.agent.Break(agent.Unsynced)
		found, _, err := w.find(t, web)
		checkFound(t, found, err, FromAPI)
	})
}

// All else goes through the network in memory, this through the kernel.
func TestRealSockets(t *testing.T) {
	t.Parallel()
	node, api := agent.Start(t), apiserver.Start(t)
	pod := meshed("5d1c")
	node.Put(pod)
	api.Put(pod)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for from, socket := range map[string]string{FromAPI: node.Socket() + ".away",
		FromAgent: node.Socket()} {
		found, err := Sources{AgentSocket: socket, Kubeconfig: api.Kubeconfig()}.Find(ctx, web)
		if diff := cmp.Diff(Found{Pod: facts(t, pod), UID: "5d1c", From: from},
			found); diff != "" || err != nil {
			t.Errorf("error %v, found (-want +got):\n%s", err, diff)
		}
	}
}
