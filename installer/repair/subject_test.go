package repair

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func FuzzCgroups(f *testing.F) {
	f.Add("0::/kubepods/pod1/a")
	f.Add("::\n:::\n/")
	known := map[types.UID]bool{"1": true}
	f.Fuzz(func(t *testing.T, cgroups string) {
		if uid := podIn(cgroups, known); uid != "" && uid != "1" {
			t.Errorf("pod %q", uid)
		}
	})
}

func TestPausesGrowAndEnd(t *testing.T) {
	t.Parallel()
	p, now := pauses{}, metav1.Now().Time
	var have []string
	for range 7 {
		p.begin("u", now)
		length := p["u"].length
		have = append(have, length.String())
		if !p.on("u", now.Add(length-1)) || p.on("u", now.Add(length)) {
			t.Errorf("a pause of %s is not as long", length)
		}
	}
	want := []string{"30s", "1m0s", "2m0s", "4m0s", "8m0s", "10m0s", "10m0s"}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	p.keep(map[types.UID]Finding{"u": Missing})
	if len(p) != 1 {
		t.Error("a pod that is still missing its redirection lost its pause")
	}
	p.keep(map[types.UID]Finding{"u": Redirected})
	if p.on("u", now) || len(p) != 0 {
		t.Error("a pod that is redirected has a pause")
	}
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
	c.count = func() (map[types.UID][]int, error) { return map[types.UID][]int{"gone": {pid}}, nil }
	_, _, _, err := search{census: c}.byProcess("gone")
	if err == nil || !strings.Contains(err.Error(), "ended meanwhile") {
		t.Errorf("error %v", err)
	}
}
