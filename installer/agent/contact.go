package agent

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A contact knows since when the API server is silent.
type contact struct {
	log      *zap.Logger
	regained chan struct{} // gets one whenever the silence is over

	mu    sync.Mutex
	since time.Time // zero while it answers
}

// note takes down how a request ended that began then.
func (c *contact) note(began time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var said apierrors.APIStatus
	switch answered := err == nil || errors.As(err, &said); {
	case answered && !c.since.IsZero():
		select {
		case c.regained <- struct{}{}:
		default: // one is waiting already
		}
		c.log.Info("reached API server again", zap.Duration("took", time.Since(c.since)))
		c.since = time.Time{}
	case !answered && c.since.IsZero():
		c.log.Warn("lost API server", zap.Error(err))
		c.since = began
	}
}

// describe says in a sentence what keeps us from an answer.
func (c *contact) describe(err error) string {
	var said apierrors.APIStatus
	if errors.As(err, &said) {
		status := said.Status()
		return fmt.Sprintf("the API server answered the agent: %d %s: %s", status.Code,
			status.Reason, status.Message)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("the API server has not answered since %s: %v",
		c.since.UTC().Format(time.TimeOnly), err)
}
