// Package follow keeps up with what a program is configured by: files, or a ConfigMap or Secret of
// the API server.
//
//	secret, err := follow.Secret(config, types.NamespacedName{Namespace: "mesh", Name: "ca"}, log)
//	changes := follow.NewChanges()
//	go secret.Run(ctx, changes.Note)
//	changes.Handle(ctx, func() time.Duration {
//		data, err := secret.Data()
//		...
//		return 0
//	})
//
// Be aware: a signal says that something may have changed. Who gets it reads, and compares.
package follow

import (
	"context"
	"time"
)

// settle is how long a writer is given for what belongs together.
const settle = 200 * time.Millisecond

// Changes are signals that something may have changed. One that was not handled yet stands for all
// after it.
type Changes struct{ noted chan struct{} }

// NewChanges returns Changes of which none was noted.
func NewChanges() *Changes { return &Changes{make(chan struct{}, 1)} }

// Note signals a change. It never waits.
func (c *Changes) Note() {
	select {
	case c.noted <- struct{}{}:
	default:
	}
}

// Handle calls read at once, soon after each change, and when the time that read returned last has
// passed, unless that is 0. It ends with ctx.
func (c *Changes) Handle(ctx context.Context, read func() (again time.Duration)) {
	for {
		var due <-chan time.Time
		if again := read(); again > 0 {
			due = time.After(again)
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
			continue
		case <-c.noted:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		select { // what was noted meanwhile is read now
		case <-c.noted:
		default:
		}
	}
}
