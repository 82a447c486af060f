package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
	"github.com/sidecar-cni/sidecar-cni/daemon/events"
)

const (
	// readTimeout is for a client that was stopped in the middle of its request. The plugin's are
	// whole after 20 ms.
	readTimeout = 5 * time.Second
	// acceptGrace is for who has found our socket by its path and is yet to be accepted: a listener
	// that is closed resets them.
	acceptGrace = 500 * time.Millisecond
	// drainTimeout is what questions have left when the agent ends: a live GET, and the answer.
	drainTimeout = time.Second
	// maxHead has room for the longest names and a uid.
	maxHead = 16 << 10
)

// Server answers the plugin.
type Server struct {
	known    Known
	events   *events.Events
	outcomes *outcomes
	requests *prometheus.CounterVec
	log      *zap.Logger
}

// Known is what a server answers from.
type Known struct {
	Pods    *Pods                     // of this node
	Handler func(class string) string // of a runtime class; "" if it is not known
}

// NewServer returns a server that answers from what is known, and has what their owners must know
// written to the Events of pods.
func NewServer(known Known, written *events.Events, reg prometheus.Registerer,
	log *zap.Logger) *Server {
	return &Server{
		known: known, events: written, outcomes: newOutcomes(reg), log: log,
		requests: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_cni_socket_requests_total",
			Help: "Requests on the agent's socket, by what was asked for and the status of the " +
				"answer.",
		}, []string{"path", "code"}),
	}
}

// Serve answers until ctx ends. Then it removes the socket, if it is still the agent's own.
func (s *Server) Serve(ctx context.Context, socket *Socket) error {
	server := &http.Server{
		Handler:           s.handler(),
		ReadTimeout:       readTimeout,
		ReadHeaderTimeout: readTimeout,
		WriteTimeout:      readTimeout,
		IdleTimeout:       readTimeout,
		MaxHeaderBytes:    maxHead,
	}
	server.ErrorLog, _ = zap.NewStdLogAt(s.log, zapcore.WarnLevel) // it knows that level
	var open atomic.Int64
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		case http.StateActive, http.StateIdle:
		}
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		socket.remove()
		end(server, &open)
	})
	err := server.Serve(socket)
	if stop() { // nobody asked it to end
		socket.remove()
		return fmt.Errorf("serve %s: %w", socket.path, errors.Join(err, server.Close()))
	}
	<-ended
	return nil
}

// end waits until all are answered who are there, and no longer than drainTimeout. Shutdown would
// not do: it drops a request that it has not begun to read, and its plugin would take the agent for
// away.
func end(server *http.Server, open *atomic.Int64) {
	server.SetKeepAlivesEnabled(false)
	for deadline := time.Now().Add(drainTimeout); time.Now().Before(deadline); {
		time.Sleep(acceptGrace)
		if open.Load() == 0 {
			break
		}
	}
	_ = server.Close() // what did not end in time is broken off
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+protocol.PathPod, s.counted("pods", s.pod))
	mux.Handle("POST "+protocol.PathOutcomes, s.counted("outcomes", s.outcome))
	mux.Handle("GET "+protocol.PathHealth,
		s.counted("healthz", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
		}))
	mux.Handle("/", s.counted("other", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound,
			protocol.Refusal{Reason: protocol.ReasonPath,
				Message: "the agent's protocol has no such path"})
	}))
	return mux
}

// A statusWriter remembers the status that it wrote.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (s *Server) counted(path string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counting := &statusWriter{w, http.StatusOK}
		next(counting, r)
		s.requests.WithLabelValues(path, strconv.Itoa(counting.status)).Inc()
	})
}

func (s *Server) pod(w http.ResponseWriter, r *http.Request) {
	ref := Ref{r.PathValue("namespace"), r.PathValue("name"), types.UID(r.URL.Query().Get("uid"))}
	// They become parts of a path on the API server.
	for _, name := range []string{ref.Namespace, ref.Name} {
		if content.IsPathSegmentName(name) != nil {
			refuse(w, http.StatusBadRequest,
				protocol.Refusal{Reason: protocol.ReasonMalformed,
					Message: fmt.Sprintf("%q is no name", name)})
			return
		}
	}
	switch a := s.known.Pods.Find(r.Context(), ref); a.Verdict {
	case Found:
		described := Describe(a.Pod)
		if class := described.Spec.RuntimeClassName; class != "" {
			described.RuntimeHandler = s.known.Handler(class)
		}
		body, err := json.Marshal(described)
		if err != nil {
			refuse(w, http.StatusInternalServerError,
				protocol.Refusal{Reason: protocol.ReasonMalformed, Message: err.Error()})
			return
		}
		answer(w, http.StatusOK, body)
	case Absent:
		refuse(w, http.StatusNotFound, protocol.Refusal{Reason: protocol.ReasonAbsent})
	case OtherUID:
		refuse(w, http.StatusNotFound,
			protocol.Refusal{Reason: protocol.ReasonUID, UID: string(a.UID)})
	case Unknown:
		refuse(w, http.StatusServiceUnavailable,
			protocol.Refusal{Reason: protocol.ReasonUnsynced, Message: a.Why})
	}
}

func refuse(w http.ResponseWriter, status int, why protocol.Refusal) {
	body, _ := json.Marshal(why) // strings always can be
	answer(w, status, body)
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // whoever has hung up does not want it
}
