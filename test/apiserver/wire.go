package apiserver

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
)

const jsonType = runtime.ContentTypeJSON

// What the server knows on the wire.
var (
	known  = knownTypes()
	codecs = serializer.NewCodecFactory(known)
)

func knownTypes() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion,
		&corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.NodeList{}, &corev1.Event{},
		&corev1.EventList{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Secret{},
		&corev1.SecretList{})
	scheme.AddKnownTypes(admissionv1.SchemeGroupVersion,
		&admissionv1.MutatingWebhookConfiguration{},
		&admissionv1.MutatingWebhookConfigurationList{})
	scheme.AddKnownTypes(nodev1.SchemeGroupVersion, &nodev1.RuntimeClass{},
		&nodev1.RuntimeClassList{})
	scheme.AddKnownTypes(policyv1.SchemeGroupVersion, &policyv1.Eviction{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	return scheme
}

// negotiate returns the first form that the client accepts, JSON if none is known.
func negotiate(r *http.Request) runtime.SerializerInfo {
	for form := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		form, _, _ = strings.Cut(strings.TrimSpace(form), ";")
		if info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), form); ok &&
			form != "" {
			return info
		}
	}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), jsonType)
	return info
}

// named returns the object with its kind written into it.
func named(object runtime.Object) (runtime.Object, error) {
	kinds, _, err := known.ObjectKinds(object)
	if err != nil {
		return nil, err
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	return object, nil
}

func encode(form runtime.SerializerInfo, object runtime.Object) ([]byte, error) {
	object, err := named(object)
	if err != nil {
		return nil, err
	}
	return runtime.Encode(form.Serializer, object)
}

// send writes an object in the first form that the client accepts.
func send(w http.ResponseWriter, r *http.Request, status int, object runtime.Object) {
	form := negotiate(r)
	body, err := encode(form, object)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", form.MediaType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // whoever has hung up does not want it
}

// sendError writes a Status, and like the real server puts its Retry-After into the header too.
func sendError(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError) {
	status := err.Status()
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	send(w, r, int(status.Code), &status)
}

// A stream is the answer to a watch.
type stream struct {
	form  runtime.SerializerInfo
	to    io.Writer
	flush func() error
}

func newStream(w http.ResponseWriter, r *http.Request) *stream {
	s := &stream{form: negotiate(r), flush: http.NewResponseController(w).Flush}
	s.to = s.form.StreamSerializer.Framer.NewFrameWriter(w)
	streaming := s.form.MediaType
	if streaming != jsonType {
		streaming += ";stream=watch"
	}
	w.Header().Set("Content-Type", streaming)
	w.WriteHeader(http.StatusOK)
	_ = s.flush() // whoever has hung up does not want it
	return s
}

func (s *stream) send(kind watch.EventType, object runtime.Object) {
	body, err := encode(s.form, object)
	if err != nil {
		panic(err) // of ours: nothing but what is known is sent
	}
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: body}}
	if err := s.form.StreamSerializer.Encode(event, s.to); err == nil {
		_ = s.flush()
	}
}
