package audit

import (
	"os"
	"strings"
	"testing"
	"time"
)

func FuzzCgroups(f *testing.F) {
	f.Add("0::/kubepods/pod1/a")
	f.Add("::\n:::\n/")
	known := map[string]bool{"1": true}
	f.Fuzz(func(t *testing.T, cgroups string) {
		if uid := podIn(cgroups, known); uid != "" && uid != "1" {
			t.Errorf("pod %q", uid)
		}
	})
}

func TestAgeOfAProcess(t *testing.T) {
	t.Parallel()
	c := newCensus("/proc", nil)
	first, own := c.age(1), c.age(os.Getpid())
	if own < 0 || first <= own || own > time.Hour {
		t.Errorf("process 1 is %v old, this one %v", first, own)
	}
	if got := c.age(1 << 30); got != 0 {
		t.Errorf("no process is %v old", got)
	}
}

// Ids of processes are used again: by the time a namespace is open, its process may be another
// pod's.
func TestAProcessThatBecameAnothersIsNotThePods(t *testing.T) {
	t.Parallel()
	c := newCensus("/proc", nil)
	pid := os.Getpid()
	c.count = func() (map[string][]int, error) { return map[string][]int{"gone": {pid}}, nil }
	_, _, _, err := (&Search{census: c}).byProcess("gone")
	if err == nil || !strings.Contains(err.Error(), "ended meanwhile") {
		t.Errorf("error %v", err)
	}
}
