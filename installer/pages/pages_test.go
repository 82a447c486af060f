package pages

import (
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
)

func TestADaemonWhoseLoopIsSilentIsStartedAnew(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-time.Hour)
	for name, row := range map[string]struct {
		why   reconcile.Reason
		beat  time.Time
		alive bool
	}{
		"well":             {reconcile.Effective, time.Now(), true},
		"refused":          {reconcile.Reason(chain.OtherMesh), time.Now(), true},
		"silent":           {reconcile.Effective, long, false},
		"with a full disk": {reconcile.BadDisk, time.Now(), true},
	} {
		p := New(nil, nil)
		p.Beat(row.beat)
		p.Set(reconcile.State{Why: row.why})
		if p.alive() != row.alive {
			t.Errorf("%s: alive is %t", name, !row.alive)
		}
	}
}
