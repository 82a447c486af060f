package agent

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// A store keeps stripped pods, or runtime classes, by namespace and name.
type store struct {
	cache.Store
	once    sync.Once
	filled  chan struct{}
	changed chan struct{} // has one after any change

	complete func() // is called after each complete list; may be nil
}

func newStore() *store {
	s := &store{filled: make(chan struct{}), changed: make(chan struct{}, 1)}
	s.Store = cache.NewStore(cache.MetaNamespaceKeyFunc, cache.WithTransformer(s.Transformer()))
	return s
}

// Transformer lets the reflector strip pods as they come: of a list that is streamed, never two are
// whole at a time.
func (s *store) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if pod, ok := o.(*corev1.Pod); ok {
			return strip(pod), nil
		}
		return o, nil
	}
}

// Replace is what the reflector does after each complete list.
func (s *store) Replace(pods []any, version string) error {
	if err := s.Store.Replace(pods, version); err != nil {
		return err
	}
	if s.complete != nil {
		s.complete()
	}
	s.once.Do(func() { close(s.filled) })
	return s.signal(nil)
}

// Add is what the reflector does with an object that is new.
func (s *store) Add(o any) error { return s.signal(s.Store.Add(o)) }

// Update is what the reflector does with an object that has changed.
func (s *store) Update(o any) error { return s.signal(s.Store.Update(o)) }

// Delete is what the reflector does with an object that is gone.
func (s *store) Delete(o any) error { return s.signal(s.Store.Delete(o)) }

// signal says that something has changed. Who is told looks at everything: a signal that waits
// already is enough.
func (s *store) signal(err error) error {
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return err
}

func (s *store) synced() bool {
	select {
	case <-s.filled:
		return true
	default:
		return false
	}
}

func (s *store) get(namespace, name string) *corev1.Pod {
	// A store in memory returns no errors.
	o, _, _ := s.GetByKey(cache.NewObjectName(namespace, name).String())
	pod, _ := o.(*corev1.Pod)
	return pod
}

func (s *store) list() []*corev1.Pod {
	all := s.List()
	pods := make([]*corev1.Pod, 0, len(all))
	for _, o := range all {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}
