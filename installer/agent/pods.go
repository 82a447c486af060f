package agent

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// listTimeout is for a page from a server that is overloaded; one that never answers would keep
	// us from asking again.
	listTimeout = time.Minute
	// pageSize is how many pods are listed at a time: they may be of 1.5 MB each, and they come
	// in one piece.
	pageSize = 8
	// watchTimeout is for the head of the answer. A proxy may hold it back until the first event,
	// which is a bookmark after a minute at the latest.
	watchTimeout = 2 * time.Minute
	// followEvery and followBurst are for the cases in which client-go asks again without a pause:
	// a list that is streamed and breaks off, or is said to have expired.
	followEvery = time.Second
	followBurst = 5
	// The pauses before it is asked again, each up to twice as long at random, so that a cluster's
	// nodes do not come back together. After a calm time they begin anew.
	firstPause   = time.Second
	longestPause = 15 * time.Second
	calm         = 2 * time.Minute
)

// Pods are the node's pods.
type Pods struct {
	client   *rest.RESTClient
	node     string
	store    *store
	contact  contact
	pace     *rate.Limiter              // of lists and watches
	watching atomic.Pointer[cancelling] // the watch that is open
	flights  singleflight.Group
	slots    chan struct{} // of live GETs
	gets     *prometheus.CounterVec
	failures prometheus.Counter
}

// NewPods returns the pods of a node. There are none before Run has found them.
func NewPods(client *rest.RESTClient, node string, reg prometheus.Registerer,
	log *zap.Logger) *Pods {
	p := &Pods{
		client: client, node: node, store: newStore(),
		contact: contact{log: log, regained: make(chan struct{}, 1)},
		slots:   make(chan struct{}, liveMost),
		pace:    rate.NewLimiter(rate.Every(followEvery), followBurst),
	}
	p.store.complete = func() { completed(&p.watching) }
	metrics := promauto.With(reg)
	p.gets = metrics.NewCounterVec(prometheus.CounterOpts{
		Name: "sidecar_cni_live_gets_total",
		Help: "Pods that the cache did not have and the API server was asked for, by what came " +
			"of it.",
	}, []string{"result"})
	for _, v := range verdicts {
		p.gets.WithLabelValues(string(v))
	}
	p.failures = metrics.NewCounter(prometheus.CounterOpts{
		Name: "sidecar_cni_cache_failures_total",
		Help: "Lists and watches of the node's pods that the API server did not grant.",
	})
	metrics.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sidecar_cni_cached_pods",
		Help: "Pods of this node in the agent's cache.",
	}, func() float64 { return float64(p.Len()) })
	metrics.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sidecar_cni_cache_synced",
		Help: "Whether the cache has been filled since the agent started, 1 or 0.",
	}, func() float64 {
		if p.Synced() {
			return 1
		}
		return 0
	})
	return p
}

// Run follows the API server until ctx ends. A server that is away is asked again, after pauses of
// up to half a minute.
func (p *Pods) Run(ctx context.Context) {
	follow := &cache.ListWatch{ListWithContextFunc: p.list, WatchFuncWithContext: p.watch}
	reflector := cache.NewReflectorWithOptions(follow, &corev1.Pod{}, p.store,
		cache.ReflectorOptions{Name: "pods"})
	pauses := wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 1, Cap: longestPause,
		Steps: math.MaxInt}
	_ = pauses.DelayWithReset(clock.RealClock{}, calm).Until(quiet(ctx), true, true,
		func(ctx context.Context) (bool, error) {
			// What went wrong has been judged by the function that lists or watches.
			_ = reflector.ListAndWatchWithContext(ctx)
			return false, nil
		}) // it ends with ctx
}

// List returns the node's pods, in no order.
func (p *Pods) List() []*corev1.Pod { return p.store.list() }

// Len returns how many there are.
func (p *Pods) Len() int { return len(p.store.ListKeys()) }

// Synced reports whether the API server has listed all pods once.
func (p *Pods) Synced() bool { return p.store.synced() }

// Changed signals whenever List may return something else than before.
func (p *Pods) Changed() <-chan struct{} { return p.store.changed }

// Follows reports whether List is what the API server has, as far as it has said so: the pods are
// listed, and the watch that tells of changes is open.
func (p *Pods) Follows() bool { return p.Synced() && follows(&p.watching) }

// Regained signals whenever the API server answers again.
func (p *Pods) Regained() <-chan struct{} { return p.contact.regained }

// WaitForSync waits until Synced. Its error is that of ctx.
func (p *Pods) WaitForSync(ctx context.Context) error {
	select {
	case <-p.store.filled:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("fill the cache of pods: %w", ctx.Err())
	}
}

// quiet keeps client-go from logging: what it would say is in errors, and then once and not at
// each try.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// list is for servers that do not stream lists. It asks for a few pods at a time, and keeps of
// each what is needed before it asks for more. The version is left to the server: one that is
// asked for version 0 sends all pods at once, whatever the limit.
func (p *Pods) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := p.pace.Wait(ctx); err != nil {
		return nil, err
	}
	options.Limit, options.ResourceVersion, options.ResourceVersionMatch = pageSize, "", ""
	began, all := time.Now(), &corev1.PodList{}
	for {
		page, err := p.page(ctx, options)
		if err != nil {
			p.judge(ctx, began, err)
			return nil, err
		}
		for i := range page.Items {
			all.Items = append(all.Items, *strip(&page.Items[i]))
		}
		if options.Continue = page.Continue; options.Continue == "" {
			all.ListMeta = page.ListMeta
			p.judge(ctx, began, nil)
			return all, nil
		}
	}
}

func (p *Pods) page(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	page := &corev1.PodList{}
	return page, p.request(options).Do(ctx).Into(page)
}

func (p *Pods) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := p.pace.Wait(ctx); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithCancel(ctx)
	bound := time.AfterFunc(watchTimeout, cancel)
	options.Watch = true
	began := time.Now()
	events, err := p.request(options).Watch(bounded)
	bound.Stop()
	// An older server knows no such watch, which is no fault: it is listed instead.
	if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) {
		p.judge(ctx, began, err)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	w := &cancelling{Interface: events, cancel: cancel, open: &p.watching}
	w.listed.Store(options.SendInitialEvents == nil)
	p.watching.Store(w)
	_ = p.store.signal(nil) // Follows may be true now
	return w, nil
}

// A cancelling watch ends its context with itself.
type cancelling struct {
	watch.Interface
	cancel context.CancelFunc
	open   *atomic.Pointer[cancelling] // where it is as long as it is open
	listed atomic.Bool                 // of one that begins with a list: that list is complete
}

func (c *cancelling) Stop() {
	c.open.CompareAndSwap(c, nil)
	c.cancel()
	c.Interface.Stop()
}

// completed is what the store does after each complete list: a watch that began with it goes on.
func completed(watching *atomic.Pointer[cancelling]) {
	if w := watching.Load(); w != nil {
		w.listed.Store(true)
	}
}

// follows reports whether a watch is open that goes on from a complete list.
func follows(watching *atomic.Pointer[cancelling]) bool {
	w := watching.Load()
	return w != nil && w.listed.Load()
}

func (p *Pods) request(options metav1.ListOptions) *rest.Request {
	options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", p.node).String()
	return p.client.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec)
}

// judge takes down how a list or watch began. What the end of ctx broke off says nothing.
func (p *Pods) judge(ctx context.Context, began time.Time, err error) {
	if ctx.Err() != nil {
		return
	}
	p.contact.note(began, err)
	if err != nil {
		p.failures.Inc()
	}
}
