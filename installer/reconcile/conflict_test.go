package reconcile

import (
	"testing"
	"time"
)

func TestConflict(t *testing.T) {
	t.Parallel()
	var q Conflict
	now := time.Unix(1e9, 0)
	for i, want := range []int{0, 1, 2, 4, 8, 16, 30, 30} {
		pause := time.Duration(want) * time.Second
		if got := q.Undone("a", now); got != pause {
			t.Errorf("time %d: pause %v, want %v", i, got, pause)
		}
		if q.Lasting() != (i >= 2) {
			t.Errorf("time %d: lasting is %t", i, q.Lasting())
		}
		now = now.Add(pause)
	}
	if got := q.Undone("a", now.Add(11*time.Second)); got != 0 || !q.Lasting() {
		t.Errorf("after our work stood for a while: pause %v, lasting %t", got, q.Lasting())
	}
	if got := q.Undone("b", now.Add(12*time.Second)); got != 0 || q.Lasting() {
		t.Errorf("another file: pause %v, lasting %t", got, q.Lasting())
	}
	if got := q.Undone("b", now.Add(13*time.Second)); got != time.Second {
		t.Errorf("that again: pause %v", got)
	}
	if got := q.Undone("b", now.Add(6*time.Minute)); got != 0 || q.Lasting() {
		t.Errorf("after a quiet time: pause %v, lasting %t", got, q.Lasting())
	}
}
