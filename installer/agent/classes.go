package agent

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Classes are the cluster's runtime classes, of which the handlers decide whether a pod's traffic
// meets our rules.
type Classes struct {
	client   *rest.RESTClient
	store    *store
	watching atomic.Pointer[cancelling] // the watch that is open
	log      *zap.Logger
}

// NewClasses returns the runtime classes. There are none before Run has found them.
func NewClasses(config *rest.Config, log *zap.Logger) (*Classes, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(nodev1.SchemeGroupVersion, &nodev1.RuntimeClass{},
		&nodev1.RuntimeClassList{})
	metav1.AddToGroupVersion(scheme, nodev1.SchemeGroupVersion)
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &nodev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.WarningHandler = rest.NoWarnings{}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &Classes{client: client, store: newStore(), log: log}
	c.store.complete = func() { completed(&c.watching) }
	return c, nil
}

// Run follows the API server until ctx ends. Without an answer, or the right to one, it asks again,
// less and less often.
func (c *Classes) Run(ctx context.Context) {
	request := func(options metav1.ListOptions) *rest.Request {
		return c.client.Get().Resource("runtimeclasses").VersionedParams(&options,
			metav1.ParameterCodec)
	}
	follow := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context,
			options metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			list := &nodev1.RuntimeClassList{}
			return list, request(options).Do(ctx).Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context,
			options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			ctx, cancel := context.WithCancel(ctx)
			events, err := request(options).Watch(ctx)
			if err != nil {
				cancel()
				return nil, err
			}
			w := &cancelling{Interface: events, cancel: cancel, open: &c.watching}
			w.listed.Store(options.SendInitialEvents == nil)
			c.watching.Store(w)
			_ = c.store.signal(nil) // Follows may be true now
			return w, nil
		},
	}
	reflector := cache.NewReflectorWithOptions(follow, &nodev1.RuntimeClass{}, c.store,
		cache.ReflectorOptions{Name: "runtimeclasses"})
	pauses := wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 1, Cap: longestClassPause,
		Steps: math.MaxInt}
	failing := false
	_ = pauses.DelayWithReset(clock.RealClock{}, calm).Until(quiet(ctx), true, true,
		func(ctx context.Context) (bool, error) {
			err := reflector.ListAndWatchWithContext(ctx)
			if err != nil && ctx.Err() == nil && !failing {
				c.log.Warn("did not get the runtime classes, the plugin asks the API server "+
					"for them", zap.Error(err))
			}
			failing = err != nil
			return false, nil
		}) // it ends with ctx
}

// longestClassPause is long, since little depends on it: without the classes the plugin asks the
// API server for the few pods that name one. Files of pods are not fresh meanwhile, and the agent
// is asked for the others.
const longestClassPause = time.Minute

// Follows reports whether Handler knows what the API server has, as far as it has said so: the
// classes are listed, and the watch that tells of changes is open.
func (c *Classes) Follows() bool { return c.store.synced() && follows(&c.watching) }

// Changed signals whenever Handler may return something else than before.
func (c *Classes) Changed() <-chan struct{} { return c.store.changed }

// Handler returns the handler of a class, "" if it is not known.
func (c *Classes) Handler(class string) string {
	o, _, _ := c.store.GetByKey(class) // a store in memory has no errors
	if known, ok := o.(*nodev1.RuntimeClass); ok {
		return known.Handler
	}
	return ""
}
