package review_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// What cannot be answered is answered with what was wanted.
func TestNonsense(t *testing.T) {
	t.Parallel()
	const head = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"`
	const pod = `,"request":{"uid":"1","operation":"CREATE","kind":{"version":"v1","kind":"Pod"}`
	for name, row := range map[string]struct {
		media, body string
		status      int
		reason      string
		want        string
	}{
		"no content type":      {"", "{}", 415, "content_type", `Content-Type is "": want application/json`},
		"another content type": {"application/yaml", "{}", 415, "content_type", `Content-Type is "application/yaml": want application/json`},
		"protobuf":             {"application/vnd.kubernetes.protobuf", "k8s", 415, "content_type", "want application/json"},
		"no body":              {"application/json", "", 400, "body", "want an AdmissionReview of admission.k8s.io/v1 in JSON"},
		"no JSON":              {"application/json", "apiVersion: v1", 400, "body", "want an AdmissionReview"},
		"half of it":           {"application/json", head, 400, "body", "want an AdmissionReview"},
		"a list":               {"application/json", "[]", 400, "body", "want an AdmissionReview"},
		"nothing":              {"application/json", "null", 400, "version", "want an AdmissionReview"},
		"another version":      {"application/json", strings.Replace(head, "/v1", "/v1beta1", 1) + pod + "}}", 400, "version", `"admission.k8s.io/v1beta1": want`},
		"another kind":         {"application/json", strings.Replace(head, "AdmissionReview", "ConversionReview", 1) + pod + "}}", 400, "version", `"ConversionReview" of`},
		"no request":           {"application/json", head + "}", 400, "no_request", "it has no request"},
		"no object":            {"application/json; charset=utf-8", head + pod + "}}", 400, "no_object", "want the pod that is to be created"},
		"an object of null":    {"application/json", head + pod + `,"object":null}}`, 400, "no_object", "want the pod that is to be created"},
		"a pod that is a text": {"application/json", head + pod + `,"object":"pod"}}`, 400, "no_object", "want the pod that is to be created"},
		"too deep":             {"application/json", strings.Repeat("[", 100_000), 400, "body", "want an AdmissionReview"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "policy: enabled"+small)
			req := httptest.NewRequest(http.MethodPost, "/inject", strings.NewReader(row.body))
			req.Header.Set("Content-Type", row.media)
			answer := httptest.NewRecorder()
			r.inject.ServeHTTP(answer, req)
			if answer.Code != row.status || !strings.Contains(answer.Body.String(), row.want) {
				t.Errorf("%d %q, want %d and %q", answer.Code, answer.Body, row.status, row.want)
			}
			r.counted(t, "outcome=malformed reason="+row.reason+" webhook=inject", 1)
			if line := r.logged.All()[0]; line.Level.String()+line.Message != "inforefused malformed request" {
				t.Errorf("%s %s", line.Level, line.Message)
			}
		})
	}
}

// Our rules ask for pods that are to be created. About everything else there is nothing to say.
func TestWhatIsNoNewPodStaysAsItIs(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][]string{
		"a Deployment":    {"Deployment", "request", "kind", "kind"},
		"another group":   {"example.com", "request", "kind", "group"},
		"a pod that goes": {"DELETE", "request", "operation"},
		"an update":       {"UPDATE", "request", "operation"},
		"an eviction":     {"eviction", "request", "subResource"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "")
			asked := reviewOf(filled(flags...))
			podtree.Set(asked, change[0], change[1:]...)
			for _, h := range []http.Handler{r.inject, r.strip} {
				said := decode(t, post(h, marshal(t, asked)))
				if !said.Allowed || said.Patch != nil || len(said.Warnings) > 0 || said.UID == "" {
					t.Errorf("%+v: want it allowed as it is", said)
				}
			}
			if len(r.logged.All()) != 2 || r.logged.All()[1].ContextMap()["reason"] != "not_a_new_pod" {
				t.Errorf("%+v", r.logged.All())
			}
		})
	}
}

func TestAPodOfOneMegabyte(t *testing.T) {
	t.Parallel()
	for size, allowed := range map[int]bool{1_000_000: true, 2_000_000: false} {
		r := newRig(t, "policy: enabled"+small)
		pod := app()
		podtree.Set(pod, strings.Repeat("x", size), "metadata", "annotations", "note")
		said, _ := ask(t, r.inject, pod)
		if said.Allowed != allowed || (said.Patch != nil) != allowed {
			t.Errorf("%d bytes: allowed: %v, patched: %v, want %v", size, said.Allowed, said.Patch != nil, allowed)
		}
		if !allowed && !strings.Contains(said.Result.Message, "want at most") {
			t.Errorf("%q", said.Result.Message)
		}
		said, _ = ask(t, r.strip, pod)
		if !said.Allowed {
			t.Errorf("%+v: strip denies nothing", said)
		}
	}
}

const huge = 64 << 20

// A counter is a body that counts what is read of it.
type counter struct {
	io.Reader
	read *atomic.Int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func (counter) Close() error { return nil }

// zeros are many.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Of a body that is announced to be too large nothing is read, of others what a pod may have.
func TestOfALargeBodyNoMoreIsReadThanAPodMayHave(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ announced, most int64 }{
		"announced":     {huge, 0},
		"not announced": {-1, 4<<20 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "policy: enabled"+small)
			var read atomic.Int64
			req := httptest.NewRequest(http.MethodPost, "/inject", nil)
			req.Body = counter{io.LimitReader(zeros{}, huge), &read}
			req.ContentLength = row.announced
			req.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			r.inject.ServeHTTP(answer, req)
			if answer.Code != http.StatusRequestEntityTooLarge ||
				!strings.Contains(answer.Body.String(), "more than 4194304 bytes") {
				t.Errorf("%d %q, want 413 and what there is room for", answer.Code, answer.Body)
			}
			if got := read.Load(); got > row.most {
				t.Errorf("%d bytes were read, want at most %d", got, row.most)
			}
			r.counted(t, "outcome=malformed reason=size webhook=inject", 1)
		})
	}
}

// Values of two bytes take hundreds each as a tree: of them fewer fit than of bytes. What is in a
// text is no value.
func TestManyValuesAreRefusedBeforeTheyAreDecoded(t *testing.T) {
	t.Parallel()
	const most = 131072
	for name, row := range map[string]struct {
		change func(podtree.Object)
		status int
	}{
		"lists": {func(pod podtree.Object) {
			podtree.Set(pod, slices.Repeat([]any{[]any{}}, most/2), "spec", "x")
		}, http.StatusRequestEntityTooLarge},
		"objects": {func(pod podtree.Object) {
			podtree.Set(pod, slices.Repeat([]any{podtree.Object{}}, most/2), "spec", "containers")
		}, http.StatusRequestEntityTooLarge},
		"numbers": {func(pod podtree.Object) {
			podtree.Set(pod, slices.Repeat([]any{int64(0)}, most), "spec", "x")
		}, http.StatusRequestEntityTooLarge},
		"a few less": {func(pod podtree.Object) {
			podtree.Set(pod, slices.Repeat([]any{int64(0)}, most-100), "spec", "x")
		}, http.StatusOK},
		"texts": {func(pod podtree.Object) {
			podtree.Set(pod, strings.Repeat(`",[{\`, most/4), "metadata", "annotations", "note")
		}, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "")
			pod := filled(flags...)
			row.change(pod)
			answer := post(r.strip, marshal(t, reviewOf(pod)))
			if answer.Code != row.status {
				t.Errorf("%d %.200s, want %d", answer.Code, answer.Body, row.status)
			}
			if row.status == http.StatusOK {
				return
			}
			if want := "want at most 131072: make the pod smaller"; !strings.Contains(answer.Body.String(), want) {
				t.Errorf("%s: want %q", answer.Body, want)
			}
			r.counted(t, "outcome=malformed reason=size webhook=strip", 1)
		})
	}
}

// Whoever sends a large body gets the answer, and does not send it to its end.
func TestASenderOfALargeBodyIsStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, "policy: enabled"+small)
	server := httptest.NewServer(r.inject)
	defer server.Close()
	for _, announced := range []int64{huge, -1} {
		var sent atomic.Int64
		body := counter{io.LimitReader(zeros{}, huge), &sent}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = announced
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Expect", "100-continue") // else the answer may get lost behind the rest of the body
		answer, err := server.Client().Do(req)
		if err != nil {
			if sent.Load() >= huge {
				t.Errorf("all was sent, and then %v", err)
			}
			continue
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusRequestEntityTooLarge || sent.Load() >= huge {
			t.Errorf("%s after %d bytes, want 413", answer.Status, sent.Load())
		}
	}
}

// Clients that announce large bodies and never send them hold up one another, until they end, and
// nobody else.
func TestSlowClientsHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, "policy: enabled"+small)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients, begun sync.WaitGroup
	codes := make(chan int, 4)
	for range cap(codes) {
		begun.Add(1)
		clients.Go(func() {
			half := io.MultiReader(bytes.NewReader(bytes.Repeat([]byte(" "), 1<<20)), &stuck{ctx, begun.Done})
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/inject", half)
			req.ContentLength = 4 << 20
			req.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			r.inject.ServeHTTP(answer, req)
			codes <- answer.Code
		})
	}
	begun.Wait() // all the room that there is for large bodies is taken
	if said, _ := ask(t, r.inject, app()); said.Patch == nil {
		t.Errorf("%+v: want a small pod injected", said)
	}
	large := httptest.NewRequest(http.MethodPost, "/inject?timeout=10ms", bytes.NewReader(bytes.Repeat([]byte(" "), 1<<20)))
	large.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	r.inject.ServeHTTP(answer, large)
	if answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), "busy") {
		t.Errorf("%d %q: want 503 for a fifth large one", answer.Code, answer.Body)
	}
	cancel()
	clients.Wait()
	for range cap(codes) {
		if code := <-codes; code != http.StatusBadRequest {
			t.Errorf("%d, want 400 for one that broke off", code)
		}
	}
	big := app()
	podtree.Set(big, strings.Repeat("x", 900<<10), "metadata", "annotations", "note")
	if said, _ := ask(t, r.inject, big); said.Patch == nil {
		t.Errorf("%+v: want a large pod injected, now that there is room", said)
	}
}

// Room is given back, whatever the answer.
func TestRoomIsGivenBack(t *testing.T) {
	t.Parallel()
	cfg := load(t, "policy: enabled"+small)
	hold, held := make(chan struct{}), make(chan struct{}, 8)
	r := rigOf(func() (*config.Config, error) {
		held <- struct{}{}
		<-hold
		return cfg, nil
	})
	unannounced := func(query string, body []byte) int {
		req := httptest.NewRequest(http.MethodPost, "/inject"+query, bytes.NewReader(body))
		req.ContentLength = -1
		req.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		r.inject.ServeHTTP(answer, req)
		return answer.Code
	}
	blanks := bytes.Repeat([]byte(" "), 64<<10)
	for range 5 { // one more than there is room for at a time
		if code := unannounced("", blanks); code != http.StatusBadRequest {
			t.Errorf("%d, want 400", code)
		}
	}
	body := append(marshal(t, reviewOf(app())), blanks...)
	var clients sync.WaitGroup
	for range cap(held) {
		clients.Go(func() {
			if code := post(r.inject, body).Code; code != http.StatusOK {
				t.Errorf("%d, want 200", code)
			}
		})
	}
	for range cap(held) {
		<-held // now no other is answered
	}
	for range 5 {
		if code := unannounced("?timeout=1ms", blanks); code != http.StatusServiceUnavailable {
			t.Errorf("%d, want 503", code)
		}
	}
	if said, _ := ask(t, r.strip, filled(flags...)); said.Patch == nil { // it is small
		t.Errorf("%+v: want it stripped meanwhile", said)
	}
	close(hold)
	clients.Wait()
	if code := unannounced("", blanks); code != http.StatusBadRequest {
		t.Errorf("%d, want 400 again", code)
	}
}

// stuck is a body of which no more comes until its client ends.
type stuck struct {
	ctx   context.Context
	begun func()
}

func (s *stuck) Read([]byte) (int, error) {
	s.begun()
	<-s.ctx.Done()
	return 0, errors.New("connection reset by peer")
}

// FuzzReview sends any body, or a review of any object. There is always an answer: a review that
// the API server takes, or an HTTP error in words.
func FuzzReview(f *testing.F) {
	for _, pod := range []podtree.Object{app(), filled(flags...), filled("sh"), {}} {
		f.Add(marshal(f, reviewOf(pod)), false)
		f.Add(marshal(f, pod), true)
		f.Add(marshal(f, pod), false)
	}
	f.Add([]byte(`{"metadata":{"ownerReferences":[null,{"controller":true,"kind":7,"name":"web-1"}]},"spec":{"initContainers":[null,{"name":"istio-validation","image":"`+image+`"}]}}`), true)
	f.Add([]byte(`{"metadata":{"annotations":{"sidecar.istio.io/status":null}},"spec":{"initContainers":[{"name":"istio-init"},{"name":"istio-validation","image":"`+image+`"}]}}`), true)
	r := newRig(f, "policy: enabled"+selectors+small)
	f.Fuzz(func(t *testing.T, body []byte, isObject bool) {
		if isObject {
			body = append([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{`+
				`"operation":"CREATE","kind":{"version":"v1","kind":"Pod"},"object":`), append(body, "}}"...)...)
		}
		for _, h := range []http.Handler{r.inject, r.strip} {
			checkAnswer(t, body, post(h, body))
		}
		for _, line := range r.logged.TakeAll() {
			if text, _ := line.ContextMap()["error"].(string); strings.Contains(text, "panic") {
				t.Errorf("%s", text)
			}
		}
	})
}

func checkAnswer(t *testing.T, body []byte, answer *httptest.ResponseRecorder) {
	t.Helper()
	if answer.Code != http.StatusOK {
		if text := answer.Body.String(); answer.Code < 400 || len(text) < 20 || len(text) > 4096 {
			t.Errorf("%d %q: want a sentence", answer.Code, text)
		}
		return
	}
	said := decode(t, answer)
	if !said.Allowed && (said.Result == nil || said.Result.Message == "" || len(said.Result.Message) > 2000) {
		t.Errorf("%+v: want to know why", said)
	}
	if len(said.Warnings) > 10 {
		t.Errorf("%d warnings", len(said.Warnings))
	}
	for _, warning := range said.Warnings {
		if len(warning) > 256 || strings.ContainsAny(warning, "\n\r\x00") {
			t.Errorf("%d bytes: %q", len(warning), warning)
		}
	}
	if said.Patch == nil {
		return
	}
	asked, err := podtree.Decode(body)
	if err != nil {
		t.Fatalf("%v, and it was patched", err)
	}
	patched(t, podtree.Map(asked, "request", "object"), said)
}

// Whoever reaches the port sends as much nonsense as he likes, and fills no log with it.
func TestALotOfNonsenseIsCountedAndNotLogged(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	const all = 1000
	for range all {
		req := httptest.NewRequest(http.MethodPost, "/inject", strings.NewReader("{"))
		r.inject.ServeHTTP(httptest.NewRecorder(), req)
	}
	r.counted(t, "outcome=malformed reason=content_type webhook=inject", all)
	if lines := r.logged.Len(); lines == 0 || lines > all/10 {
		t.Errorf("%d lines in the log of %d requests, want some", lines, all)
	}
}
