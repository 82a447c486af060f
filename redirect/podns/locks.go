package podns

import (
	"context"
	"sync"
)

// Locks lets one at a time work in a namespace, of those in this program that ask. The zero value
// is ready to use.
type Locks struct {
	mu   sync.Mutex
	held map[ID]chan struct{} // closed when it is let go
}

// Lock waits until nobody else has the namespace of an ID, or ctx ends.
func (l *Locks) Lock(ctx context.Context, id ID) (unlock func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l.mu.Lock()
		other, taken := l.held[id]
		if !taken {
			mine := make(chan struct{})
			if l.held == nil {
				l.held = map[ID]chan struct{}{}
			}
			l.held[id] = mine
			l.mu.Unlock()
			return func() { l.release(id, mine) }, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *Locks) release(id ID, mine chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, id)
	close(mine)
}
