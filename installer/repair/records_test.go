package repair_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// age makes all records that old.
func (n *node) age(old time.Duration) {
	n.t.Helper()
	files, err := filepath.Glob(filepath.Join(string(n.config.Records), "*"))
	if err != nil {
		n.t.Fatal(err)
	}
	at := time.Now().Add(-old)
	for _, file := range files {
		if err := os.Chtimes(file, at, at); err != nil {
			n.t.Fatal(err)
		}
	}
}

func TestRecordsOfNamespacesThatAreGoneAreDropped(t *testing.T) {
	t.Parallel()
	remove := func(n *node, path string) {
		if err := os.Remove(path); err != nil {
			n.t.Fatal(err)
		}
	}
	rows := map[string]struct {
		change  func(n *node, r *record.Record)
		old     time.Duration
		dropped bool
	}{
		"it is there": {func(*node, *record.Record) {}, time.Hour, false},
		"it is gone": {func(n *node,
			r *record.Record) {
			remove(n, r.Netns.Path)
		}, 2 * time.Minute, true},
		"it is gone, and ADD may be on": {func(n *node,
			r *record.Record) {
			remove(n, r.Netns.Path)
		}, 30 * time.Second, false},
		"another is there by now": {func(_ *node, r *record.Record) { r.Netns.Inode++ },
			time.Hour, true},
		"a file, as without a propagation": {func(_ *node,
			r *record.Record) {
			r.Netns.Path = "/etc/hosts"
		}, time.Hour, false},
		"a directory that is not mounted": {func(_ *node,
			r *record.Record) {
			r.Netns.Path = "/nowhere/netns/cni-1"
		}, time.Hour, false},
		"its process has ended": {func(_ *node,
			r *record.Record) {
			r.Netns.Path = "/proc/4711/ns/net"
		}, time.Hour, true},
		"its process cannot be seen": {func(n *node, r *record.Record) {
			n.config.HostProc, r.Netns.Path = "", "/proc/99999999/ns/net"
		}, time.Hour, false},
		"its process could be anywhere": {func(n *node, r *record.Record) {
			n.config.HostProc, r.Netns.Path = n.t.TempDir(), "/proc/4711/ns/net"
		}, time.Hour, false},
	}
	for name, row := range rows {
		for _, mode := range []repair.Mode{repair.Off, repair.Evict} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				ns, n := netns.New(t), newNode(t, mode)
				kept, r := recordOf(t, "db-0", nftBackend, ns), recordOf(t, "web-0", nftBackend, ns)
				kept.Container = "0a1b" // as the other begins
				row.change(n, &r)
				n.write(kept)
				n.write(r)
				n.age(row.old)
				want := 0
				if row.dropped {
					want = 1
				}
				if s := n.pass(); s.Dropped != want {
					t.Errorf("dropped %d, want %d", s.Dropped, want)
				}
				_, err := n.config.Records.Read(r.Attachment)
				if gone := errors.Is(err, fs.ErrNotExist); gone != row.dropped {
					t.Errorf("the record is gone: %v, error %v", gone, err)
				}
				if _, err := n.config.Records.Read(kept.Attachment); err != nil {
					t.Errorf("the other record: %v", err)
				}
			})
		}
	}
}

func TestEachRecordHasItsOwnAge(t *testing.T) {
	t.Parallel()
	n := newNode(t, repair.Off)
	r := recordOf(t, "web-0", nftBackend, netns.New(t))
	r.Netns.Inode++
	n.write(r)
	n.age(time.Hour)
	young := r
	young.Interface = "net1"
	n.write(young)
	if s := n.pass(); s.Dropped != 1 || n.onlyRecord().Interface != "net1" {
		t.Errorf("dropped %d, left %+v", s.Dropped, n.onlyRecord())
	}
}

func TestABrokenRecordHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Repair)
	n.run(meshed("web-0", nil), ns)
	n.add("db-0", nftBackend, netns.New(t))
	if err := os.WriteFile(filepath.Join(string(n.config.Records), "0:eth0.json"), []byte("{"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s, err := n.try(t.Context())
	if err == nil {
		t.Error("no error")
	}
	n.want(s, repair.Missing, repair.Repaired)
}

func TestPassesFollowOneAnother(t *testing.T) {
	t.Parallel()
	n := newNode(t, repair.Repair)
	const pods = 30
	var want []string
	for i := range pods {
		name := fmt.Sprintf("web-%02d", i)
		n.run(meshed(name, nil), netns.New(t))
		want = append(want, name)
	}
	n.start()
	n.listed = n.pods()
	results := make(chan repair.Summary)
	for range 4 {
		go func() {
			s, err := n.repairer.Pass(t.Context())
			if err != nil {
				t.Error(err)
			}
			results <- s
		}()
	}
	repaired := 0
	for range 4 {
		s := <-results
		var names []string
		for _, x := range s.Results {
			names = append(names, x.Name)
			if x.Outcome == repair.Repaired {
				repaired++
			} else if x.Finding != repair.Redirected {
				t.Errorf("%s: %s %s %v", x.Name, x.Finding, x.Why, x.Err)
			}
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
	}
	if repaired != pods {
		t.Errorf("%d repairs of %d pods", repaired, pods)
	}
}
