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
