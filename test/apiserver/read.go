package apiserver

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
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
	mux.HandleFunc("GET "+namespace+"/configmaps/{name}", s.one(s.configMaps))
	mux.HandleFunc("GET "+namespace+"/configmaps", s.many(s.configMaps))
	mux.HandleFunc("GET "+namespace+"/secrets/{name}", s.one(s.secrets))
	mux.HandleFunc("GET "+namespace+"/secrets", s.many(s.secrets))
	mux.HandleFunc("POST "+namespace+"/secrets", s.createObject(s.secrets))
	mux.HandleFunc("PUT "+namespace+"/secrets/{name}", s.updateObject(s.secrets))
	const webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}"
	mux.HandleFunc("GET "+webhooks, s.one(s.webhooks))
	mux.HandleFunc("PATCH "+webhooks, s.patch(s.webhooks, ""))
	mux.HandleFunc("DELETE "+webhooks, s.deleteObject(s.webhooks))
	mux.HandleFunc("/", func(w http.ResponseWriter,
		_ *http.Request) {
		http.Error(w, "404 page not found", http.StatusNotFound)
	})
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
		byLabel, err := labels.Parse(query.Get("labelSelector"))
		if err != nil {
			sendError(w, r, apierrors.NewBadRequest(err.Error()))
			return
		}
		sel := selection{r.PathValue("namespace"), selector, byLabel}
		if watching, _ := strconv.ParseBool(query.Get("watch")); watching {
			s.watch(w, r, watched{c, sel})
			return
		}
		s.mu.Lock()
		objects, version, oldest := c.list(sel), s.history.version, s.history.oldest
		s.mu.Unlock()
		p := pageOf(query, version)
		if p.version < oldest {
			sendError(w, r, apierrors.NewResourceExpired(
				"The provided continue parameter is too old"))
			return
		}
		objects, of := p.cut(objects)
		list, err := c.listOf(objects, of)
		if err != nil {
			sendError(w, r, apierrors.NewInternalError(err))
			return
		}
		send(w, r, http.StatusOK, list)
	}
}

// A page is the part of a list that a request asks for. What it asks to continue with is the
// version of the first page and the key of the last object before this one.
type page struct {
	version int
	behind  string
	limit   int // 0: none
}

func pageOf(query url.Values, version int) page {
	p := page{version: version}
	if query.Get("resourceVersion") != "0" {
		p.limit, _ = strconv.Atoi(query.Get("limit"))
	}
	if from, behind, ok := strings.Cut(query.Get("continue"), " "); ok {
		p.version, _ = strconv.Atoi(from)
		p.behind = behind
	}
	return p
}

// cut returns the page's objects of all of a list, and what to say about them.
func (p page) cut(all []object) ([]object, metav1.ListMeta) {
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(p.version)}
	all = slices.DeleteFunc(all, func(o object) bool {
		return key(o.GetNamespace(), o.GetName()) <= p.behind
	})
	if p.limit == 0 || len(all) <= p.limit {
		return all, meta
	}
	last := all[p.limit-1]
	meta.Continue = fmt.Sprintf("%d %s", p.version, key(last.GetNamespace(), last.GetName()))
	return all[:p.limit], meta
}

func (c *collection) listOf(objects []object, of metav1.ListMeta) (runtime.Object, error) {
	list, err := known.New(c.version.WithKind(c.kind.Kind + "List"))
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, 0, len(objects))
	for _, o := range objects {
		items = append(items, o)
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	list.(metav1.ListMetaAccessor).GetListMeta().SetResourceVersion(of.ResourceVersion)
	list.(metav1.ListMetaAccessor).GetListMeta().SetContinue(of.Continue)
	return list, nil
}
