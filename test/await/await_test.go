package await

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWithin(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		takes, limit time.Duration // takes: each question
		after        time.Duration // it is true
		want         bool
	}{
		"at once":                       {0, 0, 0, true},
		"soon":                          {0, time.Minute, time.Second, true},
		"never":                         {0, time.Minute, time.Hour, false},
		"never, and questions are slow": {time.Second, time.Minute, time.Hour, false},
		"after a standstill":            {time.Hour, time.Minute, 3 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got := Within(row.limit, func() bool {
					yes := time.Since(began) >= row.after
					time.Sleep(row.takes) // of the bubble's clock
					return yes
				})
				if took := time.Since(began); got != row.want || !got && took < row.limit {
					t.Errorf("%v after %v, want %v", got, took, row.want)
				}
			})
		})
	}
}

func TestPulse(t *testing.T) {
	t.Parallel()
	p, at := &Pulse{least: time.Second}, time.Now()
	p.last = at.Add(-time.Minute)
	p.gaps = []gap{{at.Add(-9 * time.Minute), at.Add(-8 * time.Minute)}}
	for name, row := range map[string]struct{ from, to, want int }{
		"nothing":  {-8, -7, 0},
		"a part":   {-17, -8, 1},
		"within":   {-9, -8, 1},
		"all":      {-20, 0, 2},
		"the last": {-7, 0, 1},
	} {
		after := func(minutes int) time.Time { return at.Add(time.Duration(minutes) * time.Minute) }
		got := p.Stood(after(row.from), after(row.to))
		if int(got.Round(time.Minute).Minutes()) != row.want {
			t.Errorf("%s: %v, want %d min", name, got, row.want)
		}
	}
}
