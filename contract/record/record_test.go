package record_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

var (
	web  = record.Attachment{Container: "0a1b", Interface: "eth0"}
	net1 = record.Attachment{Container: "0a1b", Interface: "net1"}
	db   = record.Attachment{Container: "0a1b2", Interface: "eth0"}

	byText = cmp.Options{
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	}
)

// full is a record with something in every field of its policy that a pod can ask for.
func full(a record.Attachment) record.Record {
	p := redirect.Policy{
		Mode:    redirect.ModeTProxy,
		Ports:   redirect.Defaults().Ports,
		Proxy:   redirect.Defaults().Proxy,
		Marks:   redirect.Defaults().Marks,
		Inbound: redirect.Inbound{Ports: []uint16{80, 443}, ExcludePorts: []uint16{15020}},
		Outbound: redirect.Outbound{All: true,
			ExcludeCIDRs: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")},
			ExcludeUIDs:  redirect.IDs{{First: 1, Last: 9}}},
		Groups: redirect.Groups{All: true, Exclude: []uint32{7}},
		DNS: redirect.DNS{Capture: true,
			Servers: []netip.Addr{netip.MustParseAddr("10.96.0.10"),
				netip.MustParseAddr("fd00::a")}},

		ExcludeInterfaces: []redirect.Interface{"eth1", "tun+"},
		Loopback:          netip.MustParsePrefix("127.0.0.1/32"),
		Passthrough: []netip.Addr{netip.MustParseAddr("127.0.0.6"),
			netip.MustParseAddr("::6")},
		DropInvalid: true,
	}
	return record.Record{
		Attachment: a,
		Network:    "pods",
		Netns:      record.Netns{Path: "/run/netns/a", Device: 4, Inode: 4026532000},
		Pod:        record.Pod{Namespace: "shop", Name: "web-0", UID: "7c1f"},
		Backend:    "nftables",
		Revision:   record.Revision(redirect.Compile(p)),
		Policy:     p,
	}
}

func write(t *testing.T, d record.Dir, all ...record.Record) {
	t.Helper()
	for _, r := range all {
		if err := d.Write(r); err != nil {
			t.Fatal(err)
		}
	}
}

func list(t *testing.T, d record.Dir) []record.Attachment {
	t.Helper()
	all, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	var got []record.Attachment
	for _, r := range all {
		got = append(got, r.Attachment)
	}
	return got
}

func files(t *testing.T, d record.Dir) []string {
	t.Helper()
	entries, err := os.ReadDir(string(d))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	d := record.Dir(filepath.Join(t.TempDir(), "run", "state"))
	write(t, d, full(web))
	got, err := d.Read(web)
	if diff := cmp.Diff(full(web), got, byText, cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("read: %v (-written +read):\n%s", err, diff)
	}
	if want, have := redirect.Compile(full(web).Policy),
		redirect.Compile(got.Policy); record.Revision(want) != record.Revision(have) {
		t.Errorf("the policy that was read compiles to other rules:\n%s",
			cmp.Diff(want, have, byText))
	}
	for path, want := range map[string]fs.FileMode{string(d): 0o700,
		filepath.Join(string(d), "0a1b:eth0.json"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want permissions %v", path, info, err, want)
		}
	}
}

func TestAttachmentsAreKeptApart(t *testing.T) {
	t.Parallel()
	d := record.Dir(t.TempDir())
	write(t, d, full(web), full(db), full(net1), full(web))
	if diff := cmp.Diff([]record.Attachment{db, web, net1}, list(t, d),
		cmpopts.SortSlices(less)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	for _, wasThere := range []bool{true, false} {
		if there, err := d.Delete(web); there != wasThere || err != nil {
			t.Errorf("delete: %v, %v, want %v", there, err, wasThere)
		}
	}
	if diff := cmp.Diff([]record.Attachment{db, net1}, list(t, d),
		cmpopts.SortSlices(less)); diff != "" {
		t.Errorf("after delete (-want +got):\n%s", diff)
	}
	if _, err := d.Read(web); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read what was deleted: %v", err)
	}
}

func less(a, b record.Attachment) bool {
	return a.Container+a.Interface < b.Container+b.Interface
}

func TestADirectoryThatNobodyMadeIsEmpty(t *testing.T) {
	t.Parallel()
	d := record.Dir(filepath.Join(t.TempDir(), "absent"))
	if got := list(t, d); got != nil {
		t.Errorf("list: %v", got)
	}
	if there, err := d.Delete(web); there || err != nil {
		t.Errorf("delete: %v, %v", there, err)
	}
}

func TestUnfinishedRecordsAreNotSeenAndGoWithTheirAttachment(t *testing.T) {
	t.Parallel()
	d := record.Dir(t.TempDir())
	write(t, d, full(web))
	for _, name := range []string{".0a1b:eth0.json:123", ".0a1b2:eth0.json:123", "README"} {
		if err := os.WriteFile(filepath.Join(string(d), name), []byte(`{"container":`),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]record.Attachment{web}, list(t, d)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if _, err := d.Delete(web); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".0a1b2:eth0.json:123", "README"}, files(t, d)); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
}

// Who publishes a record may be on a thread with another root, where the directory's path leads
// elsewhere.
func TestADraftKnowsItsDirectory(t *testing.T) {
	t.Parallel()
	d := record.Dir(filepath.Join(t.TempDir(), "state"))
	moved := d + ".moved"
	draft, err := d.Draft(full(web))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(string(d), string(moved)); err != nil {
		t.Fatal(err)
	}
	if err := draft.Publish(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]record.Attachment{web}, list(t, moved)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if draft, err = moved.Draft(full(web)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(string(moved), string(d)); err != nil {
		t.Fatal(err)
	}
	draft.Discard()
	if got := files(t, d); len(got) != 1 {
		t.Errorf("left %v", got)
	}
}

func TestWhatAKilledWriterLeftIsNoRecord(t *testing.T) {
	t.Parallel()
	d := record.Dir(t.TempDir())
	left := filepath.Join(string(d), ".0a1b:eth0.json:123")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if there, err := d.Delete(web); there || err != nil {
		t.Errorf("delete: %v, %v", there, err)
	}
	if got := files(t, d); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestABrokenRecordHidesNoOther(t *testing.T) {
	t.Parallel()
	d := record.Dir(t.TempDir())
	write(t, d, full(web), full(db))
	if err := os.WriteFile(filepath.Join(string(d), "0a1b:eth0.json"), []byte(`{"container": 7}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	all, err := d.List()
	if len(all) != 1 || all[0].Attachment != db || err == nil ||
		!strings.Contains(err.Error(), "0a1b:eth0.json") {
		t.Errorf("list: %v, %v", all, err)
	}
	if _, err := d.Read(web); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read: %v", err)
	}
	if there, err := d.Delete(web); !there || err != nil {
		t.Errorf("delete: %v, %v", there, err)
	}
}

func TestARecordUnderAnothersNameIsAnError(t *testing.T) {
	t.Parallel()
	d := record.Dir(t.TempDir())
	write(t, d, full(web))
	if err := os.Rename(filepath.Join(string(d), "0a1b:eth0.json"),
		filepath.Join(string(d), "0a1b2:eth0.json")); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Read(db); err == nil {
		t.Errorf("read: %v", r)
	}
}

func TestNamesStayInTheDirectory(t *testing.T) {
	t.Parallel()
	d := record.Dir(t.TempDir())
	for _, a := range []record.Attachment{
		{}, {Container: "a"}, {Interface: "eth0"}, {Container: "../a", Interface: "eth0"},
		{Container: "a", Interface: "../eth0"},
		{Container: "a:b", Interface: "c"}, {Container: ".a", Interface: "eth0"},
		{Container: "a\x00", Interface: "eth0"},
	} {
		_, readErr := d.Read(a)
		_, deleteErr := d.Delete(a)
		if writeErr := d.Write(record.Record{Attachment: a}); writeErr == nil || readErr == nil ||
			deleteErr == nil {
			t.Errorf("%+v: write %v, read %v, delete %v", a, writeErr, readErr, deleteErr)
		}
	}
	if got := files(t, d); got != nil {
		t.Errorf("files: %v", got)
	}
}

// Readers see one record or the other, whole, however many write.
func TestWritersDoNotMix(t *testing.T) {
	t.Parallel()
	d := record.Dir(t.TempDir())
	short, long := full(web), full(web)
	long.Pod.Name = strings.Repeat("x", 8192)
	write(t, d, short)
	var writers sync.WaitGroup
	for _, r := range []record.Record{short, long, short, long} {
		writers.Go(func() {
			for range 50 {
				if err := d.Write(r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 200 {
		if r, err := d.Read(web); err != nil ||
			r.Pod.Name != short.Pod.Name && r.Pod.Name != long.Pod.Name {
			t.Fatalf("read: %v", err)
		}
	}
	writers.Wait()
	if diff := cmp.Diff([]string{"0a1b:eth0.json"}, files(t, d)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	d := record.Dir(t.TempDir())
	if err := os.Mkdir(filepath.Join(string(d), "0a1b:eth0.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(full(web)); err == nil {
		t.Error("a record replaced a directory")
	}
	if diff := cmp.Diff([]string{"0a1b:eth0.json"}, files(t, d)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestRevisionChangesWithTheRules(t *testing.T) {
	t.Parallel()
	p := full(web).Policy
	one := record.Revision(redirect.Compile(p))
	p.Outbound.ExcludePorts = []uint16{22}
	if two := record.Revision(redirect.Compile(p)); one == two || len(one) != 16 {
		t.Errorf("revisions %q and %q", one, two)
	}
}

// The file is read by other programs, and by people.
func TestForm(t *testing.T) {
	t.Parallel()
	r := record.Record{
		Attachment: web, Network: "pods",
		Netns: record.Netns{Path: "/run/netns/a", Device: 4, Inode: 5},
		Pod:   record.Pod{Namespace: "shop", Name: "web-0", UID: "7c1f"}, Backend: "nftables",
		Revision: "ab",
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "policy") // has its own words
	want := map[string]any{
		"container": "0a1b", "interface": "eth0", "network": "pods", "backend": "nftables",
		"revision": "ab",
		"netns":    map[string]any{"path": "/run/netns/a", "device": 4.0, "inode": 5.0},
		"pod":      map[string]any{"namespace": "shop", "name": "web-0", "uid": "7c1f"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("form (-want +got):\n%s", diff)
	}
}
