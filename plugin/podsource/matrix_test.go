package podsource

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
	"github.com/sidecar-cni/sidecar-cni/test/agent"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

var web = Ref{Namespace: "shop", Name: "web-0", UID: "5d1c"}

func meshed(uid types.UID) *corev1.Pod {
	user := int64(1337)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: web.Namespace, Name: web.Name, UID: uid,
			Labels:      map[string]string{"app": "web"},
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "web"},
			{Name: "istio-proxy", Args: []string{"proxy", "sidecar"},
				SecurityContext: &corev1.SecurityContext{RunAsUser: &user}},
		}},
	}
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
		t.Fatal(err)
	}
	return parsed.Facts()
}

// A behaviour is what a source does, and the words that make its error useful.
type behaviour struct {
	set   func(*testing.T, *world)
	words []string
}

var agentBehaviours = map[string]behaviour{
	"away": {func(_ *testing.T, w *world) { w.away(agentAddress) },
		[]string{agentAddress, "connection refused"}},
	"hangs": {func(_ *testing.T, w *world) { w.agent.Break(agent.Hang) },
		[]string{"no answer in time"}},
	"nonsense": {func(_ *testing.T, w *world) { w.agent.Break(agent.Say(200, `<html>`)) },
		[]string{"not the pod that was asked for"}},
	"unsynced": {func(_ *testing.T, w *world) { w.agent.Break(agent.Unsynced) },
		[]string{"it does not know yet: the API server is away"}},
	"knows-none": {func(*testing.T, *world) {}, []string{"there is no such pod"}},
	"another-uid": {func(_ *testing.T, w *world) { w.agent.Put(meshed("a1da")) },
		[]string{`uid "a1da"`, `uid "5d1c"`}},
	"right": {func(_ *testing.T, w *world) { w.agent.Put(meshed("5d1c")) }, nil},
}

var apiBehaviours = map[string]behaviour{
	"right": {func(_ *testing.T, w *world) { w.api.Put(meshed("5d1c")) }, nil},
	"slow":  {broken(apiserver.Slow(1500 * time.Millisecond)), nil},
	"hangs": {broken(apiserver.Hang),
		[]string{"no answer in time", "reaches https://api.test:6443"}},
	"reset": {broken(apiserver.Reset),
		[]string{"the connection broke off", "reaches https://api.test:6443"}},
	"renewed": {renewedToken, nil},
	"401": {expiredToken, []string{
		"401 Unauthorized", "serviceaccount kube-system/old",
		"/token (expired 1999-12-31T23:00:00Z)", "/kubeconfig", "agent runs on this node",
	}},
	"no-account": {deletedAccount, []string{
		"401 Unauthorized", "serviceaccount kube-system/sidecar-cni-plugin",
		"its account is gone and this node was not taken out", "take sidecar-cni out of",
	}},
	"403": {broken(apiserver.Say(apierrors.NewForbidden(corev1.Resource("pods"), "web-0",
		errors.New("no RBAC")))), []string{
		"403 Forbidden", "no RBAC",
		"allow serviceaccount kube-system/sidecar-cni-plugin to get pods", "/token, kubeconfig",
	}},
	"404": {func(*testing.T, *world) {}, []string{"there is no such pod"}},
	"appears": {func(_ *testing.T, w *world) {
		time.AfterFunc(2*time.Second, func() { w.api.Put(meshed("5d1c")) })
	}, nil},
	"409": {broken(apiserver.Say(apierrors.NewConflict(corev1.Resource("pods"), "web-0",
		errors.New("odd")))), []string{
		"409 Conflict", "odd", "is the Kubernetes API server",
	}},
	"429-ends": {brokenOnce(apiserver.SayText(429, 2,
		"Too many requests, please try again later.")), nil},
	"429": {broken(apiserver.SayText(429, 1, "Too many requests")),
		[]string{"429 Too Many Requests", "wait for the API server"}},
	"503-ends": {brokenOnce(apiserver.Say(unavailable())), nil},
	"500": {broken(apiserver.Say(apierrors.NewInternalError(errors.New("etcd")))),
		[]string{"500 Internal Server Error", "etcd", "wait"}},
	"cert": {func(t *testing.T, w *world) { w.api.Distrust(t) }, []string{
		"does not verify with certificate-authority /", "/ca.crt", "unknown authority",
		"is of the API server's CA",
	}},
	"another-uid": {func(_ *testing.T, w *world) { w.api.Put(meshed("a1da")) },
		[]string{`uid "a1da"`, `uid "5d1c"`}},
	"refused": {func(_ *testing.T, w *world) { w.away(apiAddress) },
		[]string{"connection refused", "reaches https://api.test:6443"}},
}

// outcomes says what is to come of each pair: found in the agent or the API server, or an error of
// that class.
//
//nolint:dupword // a table
const outcomes = `
agent:       away        hangs       nonsense    unsynced    knows-none another-uid right
right        api         api         api         api         api        api         agent
slow         api         api         api         api         api        api         agent
hangs        unreachable unreachable unreachable unreachable gone       gone        agent
reset        unreachable unreachable unreachable unreachable gone       gone        agent
renewed      api         api         api         denied      api        api         agent
401          denied      denied      denied      denied      gone       gone        agent
no-account   denied      denied      denied      denied      gone       gone        agent
403          denied      denied      denied      denied      gone       gone        agent
404          gone        gone        gone        gone        gone       gone        agent
appears      api         api         api         api         api        api         agent
409          rejected    rejected    rejected    rejected    gone       gone        agent
429-ends     api         api         api         api         api        api         agent
429          unreachable unreachable unreachable unreachable gone       gone        agent
503-ends     api         api         api         api         api        api         agent
500          unreachable unreachable unreachable unreachable gone       gone        agent
cert         unreachable unreachable unreachable unreachable gone       gone        agent
another-uid  gone        gone        gone        gone        gone       gone        agent
refused      unreachable unreachable unreachable unreachable gone       gone        agent
`

// broken is a server that has the pod, and a fault.
func broken(fault apiserver.Fault) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) {
		w.api.Put(meshed("5d1c"))
		w.api.Break(fault)
	}
}

func brokenOnce(fault apiserver.Fault) func(*testing.T, *world) {
	return func(t *testing.T, w *world) { broken(apiserver.First(1, fault))(t, w) }
}

func unavailable() *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable("shutting down")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// deletedAccount is a server that does not know a token any more which has not run out.
func deletedAccount(t *testing.T, w *world) {
	w.api.Put(meshed("5d1c"))
	w.api.Rotate(apiserver.Token(apiserver.Account, time.Now().Add(time.Hour)))
	w.api.RenewTokenFile(t)
	w.api.Rotate("another")
}

// expiredToken is a server whose token has been rotated, while the file keeps one that ran out an
// hour ago.
func expiredToken(t *testing.T, w *world) {
	broken(nil)(t, w)
	w.api.Rotate(apiserver.Token("system:serviceaccount:kube-system:old",
		time.Now().Add(-time.Hour)))
	w.api.RenewTokenFile(t)
	w.api.Rotate(apiserver.Token(apiserver.Account, time.Now().Add(time.Hour)))
}

// renewedToken brings the file up to date after the second answer.
func renewedToken(t *testing.T, w *world) {
	expiredToken(t, w)
	answered := 0
	w.api.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(rw, r)
			if answered++; answered == 2 {
				w.api.RenewTokenFile(t)
			}
		})
	})
}

// outcomesWithStaleFile are those of a pod that has a file for which nobody vouches.
//
//nolint:dupword // a table
const outcomesWithStaleFile = `
agent:       away        hangs       nonsense    unsynced    knows-none another-uid right
right        api         api         api         api         api        api         agent
slow         api         api         api         api         api        api         agent
hangs        stale_file  stale_file  stale_file  stale_file  gone       gone        agent
reset        stale_file  stale_file  stale_file  stale_file  gone       gone        agent
renewed      api         api         api         stale_file  api        api         agent
401          stale_file  stale_file  stale_file  stale_file  gone       gone        agent
no-account   stale_file  stale_file  stale_file  stale_file  gone       gone        agent
403          stale_file  stale_file  stale_file  stale_file  gone       gone        agent
404          gone        gone        gone        gone        gone       gone        agent
appears      api         api         api         api         api        api         agent
409          stale_file  stale_file  stale_file  stale_file  gone       gone        agent
429-ends     api         stale_file  api         api         api        api         agent
429          stale_file  stale_file  stale_file  stale_file  gone       gone        agent
503-ends     api         api         api         api         api        api         agent
500          stale_file  stale_file  stale_file  stale_file  gone       gone        agent
cert         stale_file  stale_file  stale_file  stale_file  gone       gone        agent
another-uid  gone        gone        gone        gone        gone       gone        agent
refused      stale_file  stale_file  stale_file  stale_file  gone       gone        agent
`

// A pair is what the two sources do, and what is to come of it.
type pair struct{ agent, api, want string }

func pairs(t *testing.T, table string) (all []pair) {
	t.Helper()
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if got, want := len(rows)-1, len(apiBehaviours); got != want {
		t.Fatalf("the table has %d rows for %d behaviours of the API server", got, want)
	}
	agents := strings.Fields(rows[0])[1:]
	for _, row := range rows[1:] {
		cells := strings.Fields(row)
		for i, want := range cells[1:] {
			all = append(all, pair{agents[i], cells[0], want})
		}
	}
	return all
}

// files are what the agent may have written down before it does what it does.
var files = map[string]func(w *world){
	"none": func(w *world) { w.files.Put(meshed("a1da"), ""); w.files.Refresh(0) },
	"stale": func(w *world) {
		w.files.Put(meshed("5d1c"), "")
		w.files.Refresh(0)
		w.files.Abandon()
	},
	"fresh": func(w *world) { w.files.Put(meshed("5d1c"), ""); w.files.Refresh(0) },
}

func TestEveryPairOfSourcesEndsInTimeAndSaysWhy(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t) // whose the files are
	for state, table := range map[string]string{
		"none": outcomes, "stale": outcomesWithStaleFile, "fresh": outcomes,
	} {
		for _, p := range pairs(t, table) {
			if state == "fresh" {
				p.want = FromFile
			}
			name := fmt.Sprintf("file %s, agent %s, API server %s", state, p.agent, p.api)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					files[state](w)
					w.checkPair(t, p)
				})
			})
		}
	}
}

func (w *world) checkPair(t *testing.T, p pair) {
	agentBehaviours[p.agent].set(t, w)
	apiBehaviours[p.api].set(t, w)
	found, took, err := w.find(t, web)
	if took >= 10*time.Second || p.want == FromStaleFile && took > 3*time.Second ||
		p.want == FromFile && took > 0 {
		t.Errorf("it took %v, past the deadline", took)
	}
	warning := found.Warning
	found.Warning = ""
	switch p.want {
	case FromStaleFile:
		checkWords(t, errors.New(warning), slices.Concat([]string{"pod shop/web-0 (", "): used the agent's file"},
			agentBehaviours[p.agent].words, apiBehaviours[p.api].words)...)
		fallthrough
	case FromAgent, FromAPI, FromFile:
		if diff := cmp.Diff(Found{Pod: facts(t, meshed("5d1c")), UID: "5d1c", From: p.want},
			found); diff != "" || err != nil {
			t.Errorf("error %v, found (-want +got):\n%s", err, diff)
		}
	default:
		checkFailure(t, p, err)
	}
}

func checkFailure(t *testing.T, p pair, err error) {
	var failure *Error
	if !errors.As(err, &failure) {
		t.Fatalf("error %v; want one of class %q", err, p.want)
	}
	if failure.Class != Class(p.want) {
		t.Errorf("class %q, want %q: %v", failure.Class, p.want, err)
	}
	words := append([]string{"read pod shop/web-0 (", "; remedy: " + failure.Remedy},
		agentBehaviours[p.agent].words...)
	if apiWords := apiBehaviours[p.api].words; failure.Class != Gone {
		words = append(words, apiWords...)
	}
	checkWords(t, err, words...)
}

func checkWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one that says %q", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it does not say %q:\n%v", word, err)
		}
	}
	if text := err.Error(); len(text) > 800 || strings.Contains(text, "\n") {
		t.Errorf("not one line of at most 800 bytes, but %d:\n%v", len(text), err)
	}
}
