package review

import (
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

const (
	apiVersion = "admission.k8s.io/v1"
	kind       = "AdmissionReview"
)

// request is one that can be answered.
type request struct {
	uid       string
	namespace string
	pod       podtree.Object // nil: it is about something else than a pod that is to be created
}

// parse reads a review.
func parse(body []byte) (*request, *answer) {
	var review admissionv1.AdmissionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, refuse(http.StatusBadRequest, badBody, fmt.Sprintf(
			"read review: %.200v: want an %s of %s in JSON", err, kind, apiVersion))
	}
	if review.APIVersion != apiVersion || review.Kind != kind {
		return nil, refuse(http.StatusBadRequest, badVersion, fmt.Sprintf("read review: it is a "+
			"%.64q of %.64q: want an %s of %s, which admissionReviewVersions of the webhook "+
			"configuration has to name (v1)", review.Kind, review.APIVersion, kind, apiVersion))
	}
	asked := review.Request
	if asked == nil {
		return nil, refuse(http.StatusBadRequest, noRequest,
			"read review: it has no request: want one, as the API server sends it")
	}
	req := &request{uid: string(asked.UID), namespace: asked.Namespace}
	if !isNewPod(asked) {
		return req, nil
	}
	pod, err := podtree.Decode(asked.Object.Raw)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, noObject, fmt.Sprintf(
			"read review: read request.object: %.200v: want the pod that is to be created", err))
	}
	req.pod = pod
	return req, nil
}

func isNewPod(asked *admissionv1.AdmissionRequest) bool {
	return asked.Kind == metav1.GroupVersionKind{Version: "v1", Kind: "Pod"} &&
		asked.SubResource == "" && asked.Operation == admissionv1.Create
}
