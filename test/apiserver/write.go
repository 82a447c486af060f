package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxBody is the real server's.
const maxBody = 3 << 20

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *apierrors.StatusError) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return body, nil
}

func decode(w http.ResponseWriter, r *http.Request, into runtime.Object) *apierrors.StatusError {
	body, refusal := readBody(w, r)
	if refusal != nil {
		return refusal
	}
	if _, _, err := codecs.UniversalDeserializer().Decode(body, nil, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (s *Server) createEvent(w http.ResponseWriter, r *http.Request) {
	event := &corev1.Event{}
	err := decode(w, r, event)
	if err == nil {
		event.Namespace = r.PathValue("namespace")
		err = s.create(event)
	}
	if err != nil {
		sendError(w, r, err)
		return
	}
	send(w, r, http.StatusCreated, event)
}

func (s *Server) create(event *corev1.Event) *apierrors.StatusError {
	s.mu.Lock()
	defer s.mu.Unlock()
	about, name := event.InvolvedObject.Namespace, key(event.Namespace, event.Name)
	if _, ok := s.events.objects[name]; ok {
		return apierrors.NewAlreadyExists(s.events.resource, event.Name)
	}
	if about == "" {
		about = metav1.NamespaceDefault // where Events about what has no namespace are
	}
	if about != event.Namespace {
		return apierrors.NewInvalid(s.events.kind, event.Name, field.ErrorList{
			field.Invalid(field.NewPath("involvedObject", "namespace"),
				event.InvolvedObject.Namespace, "does not match event.namespace"),
		})
	}
	s.put(s.events, name, event)
	return nil
}

// patch changes a part of an object, or of its status: then nothing else, and otherwise all but the
// status.
func (s *Server) patch(c *collection, subresource string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(w, r)
		if err != nil {
			sendError(w, r, err)
			return
		}
		o, err := s.apply(c, r, patch{types.PatchType(r.Header.Get("Content-Type")), body,
			subresource})
		if err != nil {
			sendError(w, r, err)
			return
		}
		send(w, r, http.StatusOK, o)
	}
}

type patch struct {
	kind        types.PatchType
	body        []byte
	subresource string
}

func (s *Server) apply(c *collection, r *http.Request, p patch) (object, *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, refusal := c.get(r.PathValue("namespace"), r.PathValue("name"))
	if refusal != nil {
		return nil, refusal
	}
	document, err := json.Marshal(before)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if document, refusal = p.change(document); refusal != nil {
		return nil, refusal
	}
	after := reflect.New(reflect.TypeOf(before).Elem()).Interface().(object)
	if err := json.Unmarshal(document, after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if after.GetResourceVersion() != before.GetResourceVersion() {
		return nil, apierrors.NewConflict(c.resource, before.GetName(),
			fmt.Errorf("the object has been modified"))
	}
	after = p.within(before, after)
	own(before, after, r.URL.Query().Get("fieldManager"))
	s.put(c, key(before.GetNamespace(), before.GetName()), after)
	return c.objects[key(before.GetNamespace(), before.GetName())], nil
}

// change returns the document as the patch wants it.
func (p patch) change(document []byte) ([]byte, *apierrors.StatusError) {
	var changed []byte
	var err error
	switch p.kind {
	case types.JSONPatchType:
		operations, malformed := jsonpatch.DecodePatch(p.body)
		if malformed != nil {
			return nil, apierrors.NewBadRequest(malformed.Error())
		}
		changed, err = operations.Apply(document)
	case types.MergePatchType:
		changed, err = jsonpatch.MergePatch(document, p.body)
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch",
			schema.GroupResource{}, "", string(p.kind), 0, false)
	}
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "",
			schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return changed, nil
}

// within takes from an object only what the subresource may change.
func (p patch) within(before, after object) object {
	whole := before.DeepCopyObject().(object)
	switch whole := whole.(type) {
	case *corev1.Node:
		after := after.(*corev1.Node)
		if p.subresource == "status" {
			whole.Status = after.Status
			return whole
		}
		after.Status = whole.Status
	case *corev1.Pod:
		after.(*corev1.Pod).Status = whole.Status
	}
	return after
}

// Protect makes a budget forbid the pod's eviction, or no longer.
func (s *Server) Protect(namespace, name string, forbidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budgets[key(namespace, name)] = forbidden
}

// evict removes a pod at once, where the real server gives it its grace period.
func (s *Server) evict(w http.ResponseWriter, r *http.Request) {
	eviction := &policyv1.Eviction{}
	err := decode(w, r, eviction)
	if err == nil {
		err = s.remove(r.PathValue("namespace"), r.PathValue("name"), eviction)
	}
	if err != nil {
		sendError(w, r, err)
		return
	}
	send(w, r, http.StatusCreated,
		&metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated})
}

func (s *Server) remove(namespace, name string,
	eviction *policyv1.Eviction) *apierrors.StatusError {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, err := s.pods.get(namespace, name)
	if err != nil {
		return err
	}
	if options := eviction.DeleteOptions; options != nil && options.Preconditions != nil {
		if uid := options.Preconditions.UID; uid != nil && *uid != pod.GetUID() {
			return apierrors.NewConflict(s.pods.resource, name,
				fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)",
					*uid, pod.GetUID()))
		}
	}
	if s.budgets[key(namespace, name)] {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's "+
			"disruption budget.", 0)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 1 " +
				"healthy pods and has 1 currently",
		})
		return err
	}
	s.put(s.pods, key(namespace, name), nil)
	return nil
}
