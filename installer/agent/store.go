package agent

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// A store keeps stripped pods by namespace and name.
type store struct {
	cache.Store
	once   sync.Once
	filled chan struct{}
}

func newStore() *store {
	s := &store{filled: make(chan struct{})}
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
	s.once.Do(func() { close(s.filled) })
	return nil
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
