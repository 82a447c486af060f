package review

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// webhook is one of the paths.
type webhook struct {
	name     string
	decide   func(*request) *answer // about a pod that is to be created
	reviewer *Reviewer
}

// ServeHTTP answers a review.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	req := &request{}
	a := h.answer(w, r, req)
	if err := write(w, req.uid, a); err != nil {
		a = brokenBy(fmt.Errorf("write answer: %w", err))
		http.Error(w, a.problem, a.status)
	}
	took := time.Since(began)
	h.reviewer.metrics.count(h.name, a, took)
	h.log(req, a, took)
}

// answer finds the answer to a request, of which into tells as soon as it is known what it is.
func (h *webhook) answer(w http.ResponseWriter, r *http.Request, into *request) (a *answer) {
	// One pod that we stumble over must not take the others' answers with it.
	defer func() {
		if problem := recover(); problem != nil {
			a = brokenBy(fmt.Errorf("panic: %.200v\n%s", problem, debug.Stack()))
		}
	}()
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != jsonType {
		return refuse(http.StatusUnsupportedMediaType, badContentType, fmt.Sprintf(
			"read review: Content-Type is %.64q: want %s", media, jsonType))
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout(r))
	defer cancel()
	body, release, wrong := h.reviewer.budget.take(ctx, w, r)
	if wrong != nil {
		return wrong
	}
	defer release()
	req, wrong := parse(body)
	if wrong != nil {
		return wrong
	}
	*into = *req
	if req.pod == nil {
		return stay(notAPod)
	}
	return h.decide(req)
}

const jsonType = "application/json"

// write sends an answer; an error if nothing was sent.
func write(w http.ResponseWriter, uid string, a *answer) error {
	if a.status != 0 {
		// The API server repeats a text to whoever creates the pod.
		http.Error(w, a.problem, a.status)
		return nil
	}
	response := &admissionv1.AdmissionResponse{
		UID: types.UID(uid), Allowed: a.denial == "", Warnings: short(a.warnings),
	}
	if a.denial != "" {
		response.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
			Reason: metav1.StatusReasonInvalid, Message: clip(a.denial, maxDenial),
		}
	}
	if a.patch != nil {
		response.Patch, response.PatchType = a.patch, new(admissionv1.PatchTypeJSONPatch)
	}
	data, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, Response: response,
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(data) // whoever has hung up does not want it
	return nil
}

var messages = map[string]string{
	injected:  "injected pod",
	stripped:  "stripped pod",
	unchanged: "left pod unchanged",
	left:      "left istio-init in pod",
	denied:    "denied pod",
	malformed: "refused malformed request",
	failed:    "answered with an error",
}

// maxName bounds names in the log; Kubernetes has none that are longer.
const maxName = 253

func (h *webhook) log(req *request, a *answer, took time.Duration) {
	if a.outcome == malformed && !h.reviewer.malformed.Allow() {
		return // the metrics count it
	}
	level := zapcore.InfoLevel
	switch {
	case a.err != nil || a.outcome == failed:
		level = zapcore.ErrorLevel
	case a.outcome == unchanged && len(a.warnings) == 0:
		level = zapcore.DebugLevel
	}
	entry := h.reviewer.of.Log.Check(level, messages[a.outcome])
	if entry == nil {
		return
	}
	fields := []zap.Field{zap.String("webhook", h.name), zap.String("outcome", a.outcome),
		zap.String("reason", a.reason)}
	if req.pod != nil {
		of, name := workloadOf(req.pod)
		fields = append(fields, zap.String("namespace", clip(req.namespace, maxName)),
			zap.String("pod", clip(nameOf(req.pod), maxName)),
			zap.String("workload", clip(of.Kind+"/"+name, maxName)))
	}
	if len(a.warnings) > 0 {
		fields = append(fields, zap.Int("warnings", len(a.warnings)))
	}
	if a.err != nil {
		fields = append(fields, zap.Error(a.err))
	}
	entry.Write(append(fields, zap.Duration("took", took))...)
}
