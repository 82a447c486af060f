package apiserver

import (
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	const namespace = "/api/v1/namespaces/{namespace}"
	mux.HandleFunc("GET "+namespace+"/pods/{name}", s.one(s.pods))
	mux.HandleFunc("GET "+namespace+"/pods", s.many(s.pods))
	mux.HandleFunc("GET /api/v1/pods", s.many(s.pods))
	mux.HandleFunc("PATCH "+namespace+"/pods/{name}", s.patch(s.pods, ""))
	mux.HandleFunc("POST "+namespace+"/pods/{name}/eviction", s.evict)
	mux.HandleFunc("GET /api/v1/nodes/{name}", s.one(s.nodes))
	mux.HandleFunc("GET /api/v1/nodes", s.many(s.nodes))
	mux.HandleFunc("PATCH /api/v1/nodes/{name}", s.patch(s.nodes, ""))
	mux.HandleFunc("PATCH /api/v1/nodes/{name}/status", s.patch(s.nodes, "status"))
	mux.HandleFunc("GET "+namespace+"/events/{name}", s.one(s.events))
	mux.HandleFunc("GET "+namespace+"/events", s.many(s.events))
	mux.HandleFunc("POST "+namespace+"/events", s.createEvent)
	mux.HandleFunc("PATCH "+namespace+"/events/{name}", s.patch(s.events, ""))
	mux.HandleFunc("GET /apis/node.k8s.io/v1/runtimeclasses/{name}", s.one(s.classes))
	mux.HandleFunc("GET /apis/node.k8s.io/v1/runtimeclasses", s.many(s.classes))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) })
	return mux
}

func (s *Server) one(c *collection) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		o, err := c.get(r.PathValue("namespace"), r.PathValue("name"))
		s.mu.Unlock()
		if err != nil {
			sendError(w, r, err)
			return
		}
		send(w, r, http.StatusOK, o)
	}
}

// many answers with a list, or with a watch.
func (s *Server) many(c *collection) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		selector, err := fields.ParseSelector(query.Get("fieldSelector"))
		if err != nil {
			sendError(w, r, apierrors.NewBadRequest(err.Error()))
			return
		}
		sel := selection{r.PathValue("namespace"), selector}
		if watching, _ := strconv.ParseBool(query.Get("watch")); watching {
			s.watch(w, r, watched{c, sel})
			return
		}
		s.mu.Lock()
		list := c.listOf(c.list(sel), s.history.version)
		s.mu.Unlock()
		send(w, r, http.StatusOK, list)
	}
}

func (c *collection) listOf(objects []object, version int) runtime.Object {
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}
	switch c.kind.Kind {
	case "Node":
		return &corev1.NodeList{ListMeta: meta, Items: items[corev1.Node](objects)}
	case "RuntimeClass":
		return &nodev1.RuntimeClassList{ListMeta: meta, Items: items[nodev1.RuntimeClass](objects)}
	case "Event":
		return &corev1.EventList{ListMeta: meta, Items: items[corev1.Event](objects)}
	default:
		return &corev1.PodList{ListMeta: meta, Items: items[corev1.Pod](objects)}
	}
}

func items[T any](objects []object) []T {
	all := make([]T, 0, len(objects))
	for _, o := range objects {
		all = append(all, *any(o).(*T))
	}
	return all
}
