package await

import (
	"sync"
	"testing"
	"time"
)

const beat = 10 * time.Millisecond

// A Pulse notices when the machine, or the test alone, stands still.
type Pulse struct {
	least time.Duration

	mu   sync.Mutex
	last time.Time
	gaps []gap
}

type gap struct{ from, to time.Time }

// NewPulse watches until the test ends. What is shorter than least is not counted: a machine that
// has something else to do is late, too.
func NewPulse(t testing.TB, least time.Duration) *Pulse {
	p := &Pulse{last: time.Now(), least: least}
	ticker, ended := time.NewTicker(beat), make(chan struct{})
	t.Cleanup(func() {
		ticker.Stop()
		close(ended)
	})
	go func() {
		for {
			select {
			case <-ticker.C:
				p.beat()
			case <-ended:
				return
			}
		}
	}()
	return p
}

// Stood returns for how long the machine stood still from one time to another.
func (p *Pulse) Stood(from, to time.Time) time.Duration {
	p.beat() // the machine may have stood still until now
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum time.Duration
	for _, g := range p.gaps {
		begin, end := g.from, g.to
		if from.After(begin) {
			begin = from
		}
		if to.Before(end) {
			end = to
		}
		sum += max(0, end.Sub(begin))
	}
	return sum
}

func (p *Pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.last) >= p.least {
		p.gaps = append(p.gaps, gap{p.last, now})
	}
	p.last = now
}
