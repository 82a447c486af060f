// Package agent is a node agent for tests. It answers as docs/agent-protocol.md says, from that
// page and not from the plugin's code, so that the two can be held against each other.
//
//	node := agent.Start(t)
//	node.Put(pod)
//	run(plugin, "agentSocket", node.Socket())
//	outcome := <-node.Outcomes()
//
// Break makes it answer otherwise. An agent that is away is one that was not started.
package agent

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Server is an agent.
type Server struct {
	socket   string
	outcomes chan Outcome

	mu       sync.Mutex
	pods     map[string]*corev1.Pod
	handlers map[string]string // by runtime class
	fault    Fault
}

// A Fault stands before the agent's own answers.
type Fault func(next http.Handler) http.Handler

// Outcome is what the plugin reports.
type Outcome struct {
	Command   string             `json:"command"`
	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	UID       string             `json:"uid"`
	Outcome   string             `json:"outcome"`
	Reason    string             `json:"reason"`
	Source    string             `json:"source"`
	Message   string             `json:"message"`
	Notices   []string           `json:"notices"`
	Phases    map[string]float64 `json:"phases"`
}

// Start serves on a unix socket of its own.
func Start(t testing.TB) *Server {
	t.Helper()
	folder, err := os.MkdirTemp("", "agent") //nolint:usetesting // with the test in its name it is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	socket := filepath.Join(folder, "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(t, l)
	s.socket = socket
	return s
}

// Serve serves on l, until the test ends.
func Serve(t testing.TB, l net.Listener) *Server {
	t.Helper()
	s := &Server{pods: map[string]*corev1.Pod{}, handlers: map[string]string{},
		outcomes: make(chan Outcome, 1024)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/pods/{namespace}/{name}", s.pod)
	mux.HandleFunc("POST /v1/outcomes", s.outcome)
	mux.HandleFunc("GET /v1/healthz",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	server := &http.Server{Handler: s.broken(mux),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends by Close
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return s
}

// Socket returns the path of the agent's socket.
func (s *Server) Socket() string { return s.socket }

// Outcomes brings what was reported.
func (s *Server) Outcomes() <-chan Outcome { return s.outcomes }

// Put makes pods known, in place of others of their names.
func (s *Server) Put(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range pods {
		s.pods[pod.Namespace+"/"+pod.Name] = pod
	}
}

// PutHandler makes the handler of a runtime class known.
func (s *Server) PutHandler(class, handler string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[class] = handler
}

// Break puts a fault before all answers. Nil mends it.
func (s *Server) Break(fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *Server) broken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		handler := next
		if s.fault != nil {
			handler = s.fault(next)
		}
		s.mu.Unlock()
		handler.ServeHTTP(w, r)
	})
}

func (s *Server) pod(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	pod, ok := s.pods[r.PathValue("namespace")+"/"+r.PathValue("name")]
	handler := ""
	if ok && pod.Spec.RuntimeClassName != nil {
		handler = s.handlers[*pod.Spec.RuntimeClassName]
	}
	s.mu.Unlock()
	uid := r.URL.Query().Get("uid")
	switch {
	case !ok:
		answer(w, http.StatusNotFound, map[string]string{"reason": "absent"})
	case uid != "" && uid != string(pod.UID) &&
		pod.Annotations["kubernetes.io/config.mirror"] == "":
		answer(w, http.StatusNotFound, map[string]string{"reason": "uid", "uid": string(pod.UID)})
	default:
		answer(w, http.StatusOK, struct {
			*corev1.Pod
			RuntimeHandler string `json:"runtimeHandler,omitempty"`
		}{pod, handler})
	}
}

func (s *Server) outcome(w http.ResponseWriter, r *http.Request) {
	var outcome Outcome
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&outcome); err != nil {
		answer(w, http.StatusBadRequest,
			map[string]string{"reason": "malformed", "message": err.Error()})
		return
	}
	s.outcomes <- outcome
	w.WriteHeader(http.StatusNoContent)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever has hung up does not want it
}

// Hang never answers.
func Hang(http.Handler) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// Only behind the end of the body does the server notice that its client hangs up.
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			<-r.Context().Done()
		}
	})
}

// Unsynced cannot tell: its cache is empty and its API server away.
func Unsynced(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusServiceUnavailable,
			map[string]string{"reason": "unsynced", "message": "the API server is away"})
	})
}

// Say answers so, whatever is asked.
func Say(status int, body string) Fault {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
}
