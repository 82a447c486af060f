// Package await waits for what somebody else brings about: a process, a goroutine, the kernel.
//
//	await.Until(t, "the daemon is ready", func() bool { return d.ready() })
//
// Be aware: the limit is there to end what is hopeless, and costs nothing otherwise. What is said
// to happen within a time is measured, not awaited.
package await

import (
	"testing"
	"time"
)

// Limit is how long Until waits. The default of go test for a whole package is twice as much.
const Limit = 5 * time.Minute

// A round counts for no more than this: what takes longer is a machine that stands still, and those
// who are waited for stand still with it.
const round = 10 * time.Second

// Until waits until is returns true, and ends the test if it does not.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	if !Within(Limit, is) {
		t.Fatalf("still not after %v: %s", Limit, what)
	}
}

// Within waits until is returns true, but not longer than limit, and reports whether it did. It
// asks once more after limit.
func Within(limit time.Duration, is func() bool) bool {
	for left := limit; ; {
		began := time.Now()
		if is() {
			return true
		}
		if left <= 0 {
			return false
		}
		<-time.After(10 * time.Millisecond)
		left -= min(time.Since(began), round)
	}
}
