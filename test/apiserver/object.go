package apiserver

import (
	"errors"
	"net/http"
	"reflect"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// collectionOf returns where objects of a kind are; nil if it is not one of these.
func (s *Server) collectionOf(o object) *collection {
	switch o.(type) {
	case *corev1.ConfigMap:
		return s.configMaps
	case *corev1.Secret:
		return s.secrets
	case *admissionv1.MutatingWebhookConfiguration:
		return s.webhooks
	}
	return nil
}

// PutObject makes a ConfigMap, Secret or MutatingWebhookConfiguration known, in place of another of
// its name.
func (s *Server) PutObject(o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(s.collectionOf(o), key(o.GetNamespace(), o.GetName()), o)
}

// RemoveObject makes one unknown.
func (s *Server) RemoveObject(o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(s.collectionOf(o), key(o.GetNamespace(), o.GetName()), nil)
}

// Find puts into an object of PutObject's kinds what there is under its name, and reports whether
// there is anything.
func (s *Server) Find(into object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.collectionOf(into).objects[key(into.GetNamespace(), into.GetName())]
	if ok {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
	}
	return ok
}

func (s *Server) createObject(c *collection) http.HandlerFunc {
	return s.write(c, http.StatusCreated, func(o object) *apierrors.StatusError {
		if _, ok := c.objects[key(o.GetNamespace(), o.GetName())]; ok {
			return apierrors.NewAlreadyExists(c.resource, o.GetName())
		}
		return nil
	})
}

// updateObject replaces an object, if it is still of the version that the request names.
func (s *Server) updateObject(c *collection) http.HandlerFunc {
	return s.write(c, http.StatusOK, func(o object) *apierrors.StatusError {
		before, err := c.get(o.GetNamespace(), o.GetName())
		if err != nil {
			return err
		}
		if v := o.GetResourceVersion(); v != "" && v != before.GetResourceVersion() {
			return apierrors.NewConflict(c.resource, o.GetName(),
				errors.New("the object has been modified"))
		}
		return nil
	})
}

// write keeps the object of a request, unless it is refused.
func (s *Server) write(c *collection, status int,
	refuse func(object) *apierrors.StatusError) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o := c.newObject()
		err := decode(w, r, o)
		o.SetNamespace(r.PathValue("namespace"))
		s.mu.Lock()
		if err == nil {
			err = refuse(o)
		}
		if err == nil {
			s.put(c, key(o.GetNamespace(), o.GetName()), o)
			o = c.objects[key(o.GetNamespace(), o.GetName())]
		}
		s.mu.Unlock()
		if err != nil {
			sendError(w, r, err)
			return
		}
		send(w, r, status, o)
	}
}

func (s *Server) deleteObject(c *collection) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("name")
		s.mu.Lock()
		_, err := c.get(namespace, name)
		if err == nil {
			s.put(c, key(namespace, name), nil)
		}
		s.mu.Unlock()
		if err != nil {
			sendError(w, r, err)
			return
		}
		send(w, r, http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK})
	}
}

// own takes down who changed an object, as the real server does, if the request says who, unless it
// is this record that the request changed. Which fields they were is left out.
func own(before, after object, manager string) {
	if manager == "" ||
		!reflect.DeepEqual(before.GetManagedFields(), after.GetManagedFields()) {
		return
	}
	for _, entry := range after.GetManagedFields() {
		if entry.Manager == manager {
			return
		}
	}
	after.SetManagedFields(append(after.GetManagedFields(), metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate,
	}))
}
