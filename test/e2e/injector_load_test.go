//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/test/await"
)

const (
	// loaders work at the same time: the API server has several connections to each replica.
	loaders   = 8
	loadEvery = 150 * time.Millisecond // of each
	fewest    = 50                     // creates of which one step of a test has to be

	// The API server waits for a webhook for 5 s: what takes that long on a machine that stood
	// still says nothing. Each standstill meets as many creates as there are loaders.
	tooLong     = 4 * time.Second
	mostLeftOut = 5 * loaders
)

// A load is creates of pods, dry, one after the other, while something else goes on.
type load struct {
	in      *injecting
	changes atomic.Bool // pods are to come back injected or stripped
	stop    context.CancelFunc
	workers sync.WaitGroup

	pulse *await.Pulse

	mu      sync.Mutex
	since   time.Time // what began before does not count
	made    int
	leftOut int
	wrong   []string // what was not as wanted
}

func (in *injecting) load(t *testing.T) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{in: in, stop: stop, pulse: await.NewPulse(t, stoodStill)}
	l.changes.Store(true)
	for range loaders {
		l.workers.Go(func() { l.run(ctx) })
	}
	return l
}

func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		create := l.inject
		if i%2 == 0 {
			create = l.strip
		}
		began := time.Now()
		if err := create(ctx); ctx.Err() == nil {
			l.note(began, err)
		}
	}
}

func (l *load) inject(ctx context.Context) error {
	p, err := l.in.admit(ctx, newPod(injectedSpace, "load"))
	if err == nil && l.changes.Load() && !isInjected(p) {
		err = errors.New("a pod was not injected")
	}
	return err
}

func (l *load) strip(ctx context.Context) error {
	p, err := l.in.admit(ctx, filled(strippedSpace, "load"))
	if err == nil && l.changes.Load() && hasContainer(p, "istio-init") {
		err = errors.New("a pod kept istio-init")
	}
	return err
}

func (l *load) note(began time.Time, err error) {
	ended := time.Now()
	stood := l.pulse.Stood(began, ended) > 0 && ended.Sub(began) >= tooLong
	l.mu.Lock()
	defer l.mu.Unlock()
	if began.Before(l.since) {
		return
	}
	if err != nil && stood && l.leftOut < mostLeftOut {
		l.leftOut++
		return
	}
	l.made++
	if err != nil {
		l.wrong = append(l.wrong, ended.Format(time.TimeOnly+".000 ")+err.Error())
	}
}

// forget leaves out what there was of the load until now, and what is under way.
func (l *load) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made, l.wrong, l.since = 0, nil, time.Now()
}

// sofar returns what has come of the load since it was last asked.
func (l *load) sofar() (made int, wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	made, wrong = l.made, l.wrong
	l.made, l.wrong = 0, nil
	return made, wrong
}

func (l *load) leftOutSoFar() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leftOut
}

// awaitFewest waits until there were enough creates since it was last asked.
func (l *load) awaitFewest(t *testing.T) {
	t.Helper()
	l.in.Await(t, "enough creates", func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.made < fewest {
			return fmt.Errorf("there were %d", l.made)
		}
		return nil
	})
}

// expectAllWell holds that nothing has failed since it was last asked.
func (l *load) expectAllWell(t *testing.T) {
	t.Helper()
	l.awaitFewest(t)
	made, wrong := l.sofar()
	t.Logf("%d pods were created; %d were left out so far, since the machine stood still", made,
		l.leftOutSoFar())
	if len(wrong) > 0 {
		t.Errorf("%d of %d creates were not as wanted, such as\n%s", len(wrong), made,
			strings.Join(wrong[:min(5, len(wrong))], "\n"))
	}
}

// underLoad: whatever becomes of the injector, no create of a pod fails.
func (in *injecting) underLoad(t *testing.T) {
	l := in.load(t)
	defer l.workers.Wait()
	defer l.stop()
	for _, tt := range []struct {
		name string
		f    func(*testing.T, *load)
	}{
		{"replicas are rolled", in.rolls},
		{"a replica is deleted", in.loses},
		{"the configuration changes", in.reconfigures},
		{"the authority is renewed, by an upgrade that selects other namespaces", in.renews},
		{"the last of the old replicas goes", in.awaitGone},
		{"a replica is killed", in.losesSuddenly},
		{"the webhooks are switched off", in.switchesOff},
		{"the product is uninstalled", in.uninstalls},
	} {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			tt.f(t, l)
			l.expectAllWell(t)
			t.Logf("after %s", took(began))
		})
	}
}
