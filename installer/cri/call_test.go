package cri

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What is asked for is what the library for it would write.
func TestRequests(t *testing.T) {
	t.Parallel()
	want := &api.ListPodSandboxRequest{Filter: &api.PodSandboxFilter{
		State:         &api.PodSandboxStateValue{State: api.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": "a"},
	}}
	got := &api.ListPodSandboxRequest{}
	if err := proto.Unmarshal(sandboxesOf("a"), got); err != nil || !proto.Equal(want, got) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

// An answer that is cut off anywhere is short of something, and no more than that.
func TestMessagesThatAreCutOff(t *testing.T) {
	t.Parallel()
	whole, err := proto.Marshal(&api.StatusResponse{Info: map[string]string{"config": "{}"},
		Status: &api.RuntimeStatus{Conditions: []*api.RuntimeCondition{{Type: networkReady,
			Status: true, Message: "m"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		var r Runtime
		r.read(whole[:n])
	}
	var r Runtime
	if r.read(whole); !r.NetworkReady || r.Message != "m" {
		t.Errorf("%+v", r)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   string
	}{
		"not found": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
			"HTTP status 404"},
		"text":         {func(w http.ResponseWriter) { fmt.Fprint(w, "hello, world") }, "not one of gRPC"},
		"a compressed": {func(w http.ResponseWriter) { fmt.Fprint(w, "\x01\x00\x00\x00\x00") }, "not one"},
		"a short one":  {func(w http.ResponseWriter) { fmt.Fprint(w, "\x00\x00\x00\x00\x09x") }, "6 bytes"},
		"a status": {func(w http.ResponseWriter) {
			w.Header().Set("Grpc-Status", "7")
			w.Header().Set("Grpc-Message", "you%20may%20not")
		}, "gRPC status 7: you may not"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "s")
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			var protocols http.Protocols
			protocols.SetUnencryptedHTTP2(true)
			server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) { row.answer(w) })}
			go func() { _ = server.Serve(l) }() // it ends when it is closed
			t.Cleanup(func() { _ = server.Close() })
			if _, err := Ask(t.Context(), socket, ""); err == nil ||
				!strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %q", err, row.want)
			}
		})
	}
}
