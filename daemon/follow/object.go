package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sidecar-cni/sidecar-cni/daemon/api"
)

// What keeps us from knowing an object's data.
var (
	ErrPending  = errors.New("not known yet")
	ErrNotFound = errors.New("not found")
)

// Object is a ConfigMap or a Secret. It takes the rights to list and watch it, which RBAC can grant
// for its name alone (resourceNames).
type Object struct {
	kind     string
	name     types.NamespacedName
	informer cache.SharedInformer
	log      *zap.Logger

	mu     sync.Mutex
	failed error // of the last list or watch
}

// ConfigMap returns the ConfigMap of that name.
func ConfigMap(config *rest.Config, name types.NamespacedName, log *zap.Logger) (*Object, error) {
	o := &Object{kind: "ConfigMap", name: name, log: log}
	return o, o.follow(config, "configmaps", &corev1.ConfigMap{},
		func() runtime.Object { return &corev1.ConfigMapList{} })
}

// Secret returns the Secret of that name.
func Secret(config *rest.Config, name types.NamespacedName, log *zap.Logger) (*Object, error) {
	o := &Object{kind: "Secret", name: name, log: log}
	return o, o.follow(config, "secrets", &corev1.Secret{},
		func() runtime.Object { return &corev1.SecretList{} })
}

func (o *Object) follow(config *rest.Config, resource string, one runtime.Object,
	newList func() runtime.Object) error {
	client, err := api.Client(config, corev1.SchemeGroupVersion, one, newList())
	if err != nil {
		return fmt.Errorf("follow %v: %w", o, err)
	}
	request := func(options metav1.ListOptions) *rest.Request {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", o.name.Name).String()
		return client.Get().Namespace(o.name.Namespace).Resource(resource).
			VersionedParams(&options, metav1.ParameterCodec)
	}
	o.informer = cache.NewSharedInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context,
			options metav1.ListOptions) (runtime.Object, error) {
			list := newList()
			err := request(options).Do(ctx).Into(list)
			o.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context,
			options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			events, err := request(options).Watch(ctx)
			// An older server knows no watch that begins with a list, and is asked for a list next.
			if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) {
				o.note(ctx, err)
			}
			return events, err
		},
	}, one, 0)
	// What went wrong was noted by the function that lists or watches.
	return o.informer.SetWatchErrorHandlerWithContext(
		func(context.Context, *cache.Reflector, error) {})
}

// String names the object for people.
func (o *Object) String() string { return o.kind + " " + o.name.String() }

// note takes down how a request ended, and logs when the API server stops or begins to answer.
func (o *Object) note(ctx context.Context, err error) {
	if ctx.Err() != nil { // it says nothing about the API server
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil && o.failed == nil:
		o.log.Warn("lost watch of object", zap.Stringer("object", o), zap.Error(err))
	case err == nil && o.failed != nil:
		o.log.Info("regained watch of object", zap.Stringer("object", o))
	}
	o.failed = err
}

// Run follows the object until ctx ends, and calls changed when its data may be others. A server
// that is away is asked again.
func (o *Object) Run(ctx context.Context, changed func()) {
	// An informer that has not begun takes every handler.
	_, _ = o.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	var synced sync.WaitGroup
	synced.Go(func() {
		select {
		case <-o.informer.HasSyncedChecker().Done(): // there may be no object
			changed()
		case <-ctx.Done():
		}
	})
	// client-go is kept from logging: what it would say is in the errors that are noted.
	o.informer.RunWithContext(klog.NewContext(ctx, klog.Logger{}))
	synced.Wait()
}

// Data returns what the object has. While the API server is away it is what it had last. The error
// is ErrPending until the API server has answered, and ErrNotFound if there is no object.
func (o *Object) Data() (map[string][]byte, error) {
	if !o.informer.HasSynced() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.failed != nil {
			return nil, fmt.Errorf("read %v: %w: %w", o, ErrPending, o.failed)
		}
		return nil, fmt.Errorf("read %v: %w: the API server has not answered", o, ErrPending)
	}
	found, _, _ := o.informer.GetStore().GetByKey(o.name.String()) // in memory: never an error
	switch found := found.(type) {
	case *corev1.ConfigMap:
		data := make(map[string][]byte, len(found.Data))
		for key, value := range found.Data {
			data[key] = []byte(value)
		}
		return data, nil
	case *corev1.Secret:
		return found.Data, nil
	}
	return nil, fmt.Errorf("read %v: %w", o, ErrNotFound)
}
