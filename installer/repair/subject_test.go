package repair

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Entries that lead astray are an error: what is not understood must not pass for a namespace
// without rules.
func FuzzLegacyEntries(f *testing.F) {
	f.Add([]byte{}, true)
	f.Add(make([]byte, 4096), false)
	f.Add(redirectEntry(), true)
	f.Fuzz(func(t *testing.T, entries []byte, v4 bool) {
		p := protocols[1]
		if v4 {
			p = protocols[0]
		}
		table := &legacyTable{of: p, name: "nat", hooks: map[int]bool{0: true}, entries: entries}
		err := table.parse(proxy{ports: []uint16{15001}})
		if err == nil && len(entries) > 0 && len(entries) < 120 {
			t.Errorf("%d bytes passed for entries", len(entries))
		}
		if err == nil {
			redirectionsIn(table.chains)
		}
	})
}

// redirectEntry is a rule of IPv4 with REDIRECT to port 15001 right behind its head.
func redirectEntry() []byte {
	entry := make([]byte, 168)
	entry[88], entry[90] = 112, 168
	copy(entry[114:], "REDIRECT")
	binary.BigEndian.PutUint16(entry[144+16:], 15001)
	binary.BigEndian.PutUint16(entry[144+18:], 15001)
	return entry
}

func TestARedirectionInLegacyEntriesIsSeen(t *testing.T) {
	t.Parallel()
	rule, to := redirectEntry(), proxy{ports: []uint16{15001}}
	policy := append([]byte(nil), rule...) // whatever it is, the last of a chain is no rule
	table := legacyTable{
		of: protocols[0], name: "nat", hooks: map[int]bool{0: true},
		entries: append(rule, policy...),
	}
	if err := table.parse(to); err != nil {
		t.Fatal(err)
	}
	if redirections := redirectionsIn(table.chains); len(redirections) != 1 ||
		redirections[0].ours {
		t.Errorf("redirections %v", redirections)
	}
	half := legacyTable{of: protocols[0], name: "nat", entries: rule[:167]}
	if err := half.parse(to); err == nil {
		t.Error("half an entry passed")
	}
}

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
