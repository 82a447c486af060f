// Package events writes Kubernetes Events, few enough to be read.
//
//	client, err := events.NewClient(config)
//	pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: uid}
//	e := events.New(client, corev1.EventSource{Component: "sidecar-cni", Host: node}, registry, log)
//	go e.Run(ctx)
//	e.Warn(pod, "SidecarRedirectFailed", "no backend works")
//
// Be aware: Events are written best effort. How many were not, and why, is the metric
// sidecar_cni_events_total.
package events

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/sidecar-cni/sidecar-cni/daemon/api"
)

const (
	// queued is how many wait while the API server is slow; a node has 110 pods, or 250.
	queued = 256
	// remembered is how many Events can be added to, and how many objects' budgets are known.
	remembered   = 512
	writeTimeout = 5 * time.Second
	maxMessage   = 1024
)

// The budgets. The kubelet tries every 5 to 15 s to start a pod that was refused: of that, an Event
// a minute is enough.
const (
	objectBurst = 5
	objectEvery = time.Minute
	totalBurst  = 50
	totalEvery  = time.Second
)

// Events writes Kubernetes Events. What happens to an object again, for the same reason and with
// the same message but for numbers in it, is added to the Event that there is. An Event that
// exceeds the budget of its object or of this program is not written, but counts in the next one of
// its kind.
//
// This is by hand because client-go's tools/record (looked at in v0.37) cannot count what it drops:
// a full queue is a line in its log, and what its spam filter takes out is not even that. Then
// sidecar_cni_events_total could not say what an administrator misses. It has no budget for the
// whole program either, and adds 48 packages to the installer, by go list -deps.
type Events struct {
	client  *rest.RESTClient
	source  corev1.EventSource
	queue   chan occurrence
	results *prometheus.CounterVec
	log     *zap.Logger

	// Run's own.
	series  *lru.Cache // of *series by seriesKey
	objects *lru.Cache // of *rate.Limiter by ObjectReference
	budget  *rate.Limiter
}

// An occurrence is what Warn or Note is called with.
type occurrence struct {
	about                 corev1.ObjectReference
	kind, reason, message string
	at                    time.Time
}

// A series is an Event that may come again.
type series struct {
	event   *corev1.Event
	written bool
}

// A seriesKey has what makes two occurrences one.
type seriesKey struct {
	about                 corev1.ObjectReference
	kind, reason, message string
}

// What becomes of an occurrence.
const (
	created = "created"
	added   = "added"
	limited = "limited"
	dropped = "dropped"
	refused = "refused"
)

// NewClient returns a client that Events can be written by.
func NewClient(config *rest.Config) (*rest.RESTClient, error) {
	return api.Client(config, corev1.SchemeGroupVersion, &corev1.Event{})
}

// New returns the Events of a program, which is their source. Run writes them. The client has to
// know Events: see NewClient.
func New(client *rest.RESTClient, source corev1.EventSource, reg prometheus.Registerer,
	log *zap.Logger) *Events {
	e := &Events{
		client: client, source: source, log: log, queue: make(chan occurrence, queued),
		results: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_cni_events_total",
			Help: "Kubernetes Events: created, added to an earlier one, limited by " +
				"the budget of the object or of this program, " +
				"dropped because too many waited, refused by the API server or not answered.",
		}, []string{"result"}),
		series: lru.New(remembered), objects: lru.New(remembered),
		budget: rate.NewLimiter(rate.Every(totalEvery), totalBurst),
	}
	for _, result := range []string{created, added, limited, dropped, refused} {
		e.results.WithLabelValues(result)
	}
	return e
}

// Warn reports something that somebody should look after. It never waits.
func (e *Events) Warn(about corev1.ObjectReference, reason, message string) {
	e.take(occurrence{about, corev1.EventTypeWarning, reason, message, time.Now()})
}

// Note reports something good to know. It never waits.
func (e *Events) Note(about corev1.ObjectReference, reason, message string) {
	e.take(occurrence{about, corev1.EventTypeNormal, reason, message, time.Now()})
}

func (e *Events) take(h occurrence) {
	select {
	case e.queue <- h:
	default:
		e.results.WithLabelValues(dropped).Inc()
	}
}

// Run writes Events until ctx ends. What waits then is lost.
func (e *Events) Run(ctx context.Context) {
	for {
		select {
		case h := <-e.queue:
			e.results.WithLabelValues(e.write(ctx, h)).Inc()
		case <-ctx.Done():
			return
		}
	}
}

// write returns what became of it.
func (e *Events) write(ctx context.Context, h occurrence) string {
	s := e.seriesOf(h)
	s.event.Count++
	s.event.LastTimestamp = metav1.NewTime(h.at)
	s.event.Message = clip(h.message)
	if !e.allow(h.about) {
		return limited
	}
	// client-go is kept from logging: what it would say is in the error.
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, klog.Logger{}), writeTimeout)
	defer cancel()
	result, err := added, e.add(ctx, s)
	if !s.written || apierrors.IsNotFound(err) { // it has expired
		result, err = created, e.create(ctx, s)
	}
	if err != nil {
		e.log.Warn("lost event", zap.String("object", h.about.Namespace+"/"+h.about.Name),
			zap.String("reason", h.reason), zap.Error(err))
		return refused
	}
	s.written = true
	return result
}

func (e *Events) seriesOf(h occurrence) *series {
	key := seriesKey{h.about, h.kind, h.reason, withoutNumbers(h.message)}
	if known, ok := e.series.Get(key); ok {
		return known.(*series)
	}
	namespace := h.about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	s := &series{event: &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace},
		InvolvedObject:      h.about,
		Type:                h.kind,
		Reason:              h.reason,
		FirstTimestamp:      metav1.NewTime(h.at),
		Source:              e.source,
		ReportingController: e.source.Component,
	}}
	e.series.Add(key, s)
	return s
}

func (e *Events) allow(about corev1.ObjectReference) bool {
	budget, ok := e.objects.Get(about)
	if !ok {
		budget = rate.NewLimiter(rate.Every(objectEvery), objectBurst)
		e.objects.Add(about, budget)
	}
	return budget.(*rate.Limiter).Allow() && e.budget.Allow()
}

func (e *Events) create(ctx context.Context, s *series) error {
	s.event.Name = eventName(s.event.InvolvedObject.Name)
	return e.client.Post().Namespace(s.event.Namespace).Resource("events").Body(s.event).
		MaxRetries(0).Do(ctx).Error()
}

// add brings an Event up to date that was written before.
func (e *Events) add(ctx context.Context, s *series) error {
	if !s.written {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"count": s.event.Count, "lastTimestamp": s.event.LastTimestamp, "message": s.event.Message,
	})
	if err != nil {
		return err
	}
	return e.client.Patch(types.MergePatchType).Namespace(s.event.Namespace).Resource("events").
		Name(s.event.Name).
		Body(patch).MaxRetries(0).Do(ctx).Error()
}

// eventName begins with what the Event is about, as names of Events do, and is at most 253 bytes
// long.
func eventName(about string) string {
	about = strings.TrimRight(about[:min(len(about), 200)], "-.")
	return fmt.Sprintf("%s.%016x", about, rand.Uint64())
}

func clip(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}

// withoutNumbers makes messages alike that differ in durations, times and counts only.
func withoutNumbers(message string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, message)
}
