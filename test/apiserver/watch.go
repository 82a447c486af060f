package apiserver

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkEvery is the real server's habit.
const bookmarkEvery = time.Minute

// DropWatches breaks the connections of running watches.
func (s *Server) DropWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.dropped)
	s.dropped = make(chan struct{})
}

// Compact forgets what happened until now: a watch that wants to begin before is told that it has
// expired.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.oldest, s.history.changes = s.history.version, nil
}

// WithoutWatchLists makes the server refuse watches that want to begin with a list, as Kubernetes
// before 1.34 may.
func (s *Server) WithoutWatchLists() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = false
}

// Watched is what somebody watches.
type watched struct {
	*collection
	selection
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, what watched) {
	query := r.URL.Query()
	timeout, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	if timeout == 0 {
		timeout = 1800
	}
	end := time.NewTimer(time.Duration(timeout) * time.Second)
	defer end.Stop()
	bookmarks := time.NewTicker(bookmarkEvery)
	defer bookmarks.Stop()
	listing, _ := strconv.ParseBool(query.Get("sendInitialEvents"))
	s.mu.Lock()
	refused, dropped := listing && !s.streams, s.dropped
	s.mu.Unlock()
	if refused {
		sendError(w, r, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io",
			Kind: "ListOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden "+
				"for watch unless the WatchList feature gate is enabled"),
		}))
		return
	}
	out := newStream(w, r)
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	if listing || from == 0 {
		from = s.sendInitial(out, what, listing)
	}
	for {
		var changed <-chan struct{}
		if from, changed = s.sendChanges(out, what, from); changed == nil {
			return
		}
		select {
		case <-changed:
		case <-bookmarks.C:
			if query.Get("allowWatchBookmarks") == "true" {
				out.send(watch.Bookmark, bookmark(what, from, nil))
			}
		case <-dropped:
			panic(http.ErrAbortHandler)
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// sendInitial sends all objects there are and returns their version. listing asks for a mark at
// their end.
func (s *Server) sendInitial(out *stream, what watched, listing bool) int {
	s.mu.Lock()
	objects, version := what.list(what.selection), s.history.version
	s.mu.Unlock()
	for _, o := range objects {
		out.send(watch.Added, o)
	}
	if listing {
		out.send(watch.Bookmark,
			bookmark(what, version, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
	}
	return version
}

// sendChanges sends what happened after a version. It returns up to where, and what tells of the
// next change; nil if the watch is over.
func (s *Server) sendChanges(out *stream, what watched, from int) (int, <-chan struct{}) {
	s.mu.Lock()
	changes, changed, version, oldest := slices.Clone(s.history.changes), s.history.changed,
		s.history.version, s.history.oldest
	s.mu.Unlock()
	if from < oldest {
		status := apierrors.NewResourceExpired("too old resource version: " + strconv.Itoa(from) +
			" (" + strconv.Itoa(oldest) + ")").Status()
		out.send(watch.Error, &status)
		return 0, nil
	}
	for _, c := range changes {
		if c.of != what.collection || c.version <= from {
			continue
		}
		switch was, is := what.has(c.before), what.has(c.after); {
		case is && was:
			out.send(watch.Modified, c.after)
		case is:
			out.send(watch.Added, c.after)
		case was:
			gone := c.before.DeepCopyObject().(object)
			gone.SetResourceVersion(strconv.Itoa(c.version))
			out.send(watch.Deleted, gone)
		}
	}
	return version, changed
}

func bookmark(what watched, version int, annotations map[string]string) object {
	o := what.newObject()
	o.SetResourceVersion(strconv.Itoa(version))
	o.SetAnnotations(annotations)
	return o
}
