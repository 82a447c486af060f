package apiserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

const (
	jsonType     = runtime.ContentTypeJSON
	protobufType = runtime.ContentTypeProtobuf
)

// send writes an object in the first form that the client accepts.
func send(w http.ResponseWriter, r *http.Request, status int, object runtime.Object) {
	form, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	body, err := encode(form, object)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if form != protobufType {
		form = jsonType
	}
	w.Header().Set("Content-Type", form)
	w.WriteHeader(status)
	_, _ = w.Write(body) // whoever has hung up does not want it
}

func encode(form string, object runtime.Object) ([]byte, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &metav1.Status{})
	kinds, _, err := scheme.ObjectKinds(object)
	if err != nil {
		return nil, err
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	if form != protobufType {
		return json.Marshal(object)
	}
	var buf bytes.Buffer
	err = protobuf.NewSerializer(scheme, scheme).Encode(object, &buf)
	return buf.Bytes(), err
}

// sendError writes a Status, and like the real server puts its Retry-After into the header too.
func sendError(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError) {
	status := err.Status()
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	send(w, r, int(status.Code), &status)
}
