package agent

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/await"
)

func TestHandlersAreFollowed(t *testing.T) {
	t.Parallel()
	api := apiserver.Start(t)
	api.PutHandler("vm", "kata-qemu")
	classes, err := NewClasses(api.Config(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if got := classes.Handler("vm"); got != "" {
		t.Errorf("before anything was asked it knows %q", got)
	}
	run(t, classes.Run)
	is := func(class, want string) {
		t.Helper()
		await.Until(t, class+" to be "+want, func() bool { return classes.Handler(class) == want })
	}
	is("vm", "kata-qemu")
	api.PutHandler("vm", "kata-fc")
	api.PutHandler("sandboxed", "runsc")
	is("vm", "kata-fc")
	is("sandboxed", "runsc")
	if got := classes.Handler("unheard-of"); got != "" {
		t.Errorf("a class that is not there has %q", got)
	}
}

// An agent without the right, after an update of its image alone, goes on without the classes.
func TestWithoutTheRightToRuntimeClasses(t *testing.T) {
	t.Parallel()
	api := apiserver.Start(t)
	api.PutHandler("vm", "kata-qemu")
	var denied atomic.Bool
	denied.Store(true)
	api.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if denied.Load() && strings.Contains(r.URL.Path, "runtimeclasses") {
				http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden"}`, http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	core, logs := observer.New(zapcore.InfoLevel)
	classes, err := NewClasses(api.Config(), zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	run(t, classes.Run)
	await.Until(t, "a warning", func() bool { return logs.Len() > 0 })
	denied.Store(false)
	await.Until(t, "the handler", func() bool { return classes.Handler("vm") == "kata-qemu" })
	if n := logs.Len(); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}

func TestTheServerTellsTheHandler(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	for name, class := range map[string]string{"usual": "", "kata": "vm", "unknown": "unheard-of"} {
		pod := meshed(name, "uid-"+name)
		if class != "" {
			pod.Spec.RuntimeClassName = &class
		}
		r.api.Put(pod)
	}
	socket := startServer(t, r)
	for name, want := range map[string]string{"usual": "", "kata": "kata-qemu", "unknown": ""} {
		status, body := send(t, socket, http.MethodGet, "/v2/pods/shop/"+name, "")
		var got struct {
			Spec           corev1.PodSpec
			RuntimeHandler string
		}
		if err := json.Unmarshal(body, &got); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		if got.RuntimeHandler != want || (got.Spec.RuntimeClassName != nil) != (name != "usual") {
			t.Errorf("%s: %s", name, body)
		}
	}
}

func TestNoticesBecomeEvents(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	run(t, r.events.Run)
	socket := startServer(t, r)
	const body = `{"command":"ADD","namespace":"shop","name":"web-0","uid":"5d1c","outcome":"redirected",
		"notices":["container \"a\" runs under the proxy's uid 1337"]}`
	if status, answer := send(t, socket, http.MethodPost, "/v1/outcomes",
		body); status != http.StatusNoContent {
		t.Fatalf("%d %s", status, answer)
	}
	await.Until(t, "an Event", func() bool { return len(r.api.Events()) == 1 })
	event := r.api.Events()[0]
	if event.Reason != "SidecarBypassed" || event.Type != corev1.EventTypeWarning ||
		event.InvolvedObject.Name != "web-0" ||
		!strings.Contains(event.Message, "the proxy's uid 1337") {
		t.Errorf("event %+v", event)
	}
}
