package reconcile

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// onDisk makes a node of directories, on which nothing has to be tried out any more.
func onDisk(t *testing.T, world Sources, files map[string]string) *Reconciler {
	t.Helper()
	dir := t.TempDir()
	cfg := usual().cfg
	cfg.Dirs.Conf, cfg.Dirs.Bin, cfg.Dirs.Run = dir+"/conf", dir+"/bin", dir+"/run"
	cfg.Dirs.Multus, cfg.Dirs.Cache = dir+"/multus", dir+"/cache"
	cfg.RuntimeSocket, cfg.Plugin.CAFile = dir+"/no.sock", dir+"/ca.crt"
	if err := os.Mkdir(cfg.Dirs.Conf, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(cfg.Dirs.Conf, name), []byte(data),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := New(cfg, world, zap.NewNop())
	r.known.Probed.Backend = redirect.NFTables
	return r
}

// Where nothing will be written nobody is asked for a token: it would be an account's that may not
// exist, and the API server may be away.
func TestATokenIsForAnEntryAlone(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		files map[string]string
		asked int
	}{
		"a network":    {map[string]string{"10-a.conflist": network(`{"type":"bridge"}`)}, 1},
		"no network":   {nil, 1}, // it may come, and the credentials are there then
		"another mesh": {map[string]string{"10-a.conflist": network(`{"type":"istio-cni"}`)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			r := onDisk(t, Sources{Token: func(context.Context, string) ([]byte, error) {
				asked++
				return []byte("token"), nil
			}}, row.files)
			if o := r.Observe(t.Context(), In); asked != row.asked ||
				o.Token == nil != (asked == 0) {
				t.Errorf("asked %d times, want %d; token %q", asked, row.asked, o.Token)
			}
		})
	}
}

// What the agent has reported is taken back before another agent may take the node in again, and
// report anew.
func TestRetractedUnderTheLock(t *testing.T) {
	t.Parallel()
	var r *Reconciler
	called := 0
	r = onDisk(t, Sources{Retract: func(context.Context) []string {
		called++
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if unlock, err := r.cfg.Dirs.run().Lock(ctx); err == nil {
			unlock()
			t.Error("the lock is free")
		}
		return []string{"a label"}
	}}, nil)
	pass := r.Pass(t.Context(), Out)
	if called != 1 || pass.Err != nil || pass.Now.Text != "the node is out; left: a label" {
		t.Errorf("called %d times, %+v", called, pass.Now)
	}
}

// A newer agent's pass writes its entry and takes charge then. An older one that looks in between
// does not take it for a stranger's.
func TestALookWaitsForAPass(t *testing.T) {
	t.Parallel()
	r := onDisk(t, Sources{}, map[string]string{"10-a.conflist": network(`{"type":"bridge"}`)})
	member, err := r.cfg.Dirs.run().Join()
	if err != nil {
		t.Fatal(err)
	}
	r.member.Store(member)
	if now := r.Look(t.Context()); !now.ByAnother() {
		t.Fatalf("looked at a chain without our entry: %+v", now)
	}
	unlock, err := r.cfg.Dirs.run().Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if now := r.Look(ctx); now.ByAnother() {
		t.Errorf("looked during another agent's pass: %+v", now)
	}
	newer, err := r.cfg.Dirs.run().Join()
	if err != nil {
		t.Fatal(err)
	}
	defer newer.Leave()
	unlock()
	if now := r.Look(t.Context()); now.Why != Superseded {
		t.Errorf("looked with a newer agent in charge: %+v", now)
	}
	if err := r.cfg.Dirs.run().Mark(node.Marker{}); err != nil {
		t.Fatal(err)
	}
	if now := r.Look(t.Context()); now.Why != Uninstalled {
		t.Errorf("looked while the node is taken out: %+v", now)
	}
}
