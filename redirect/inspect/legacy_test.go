package inspect

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/legacy"
)

// natTable is a table with a hook's chain at its beginning.
func natTable(l legacy.Layout, entries []byte) legacy.Table {
	return legacy.Table{Layout: l, Name: "nat", Hooks: map[int]int{0: unix.NF_INET_PRE_ROUTING},
		Data: entries}
}

// Entries that lead astray are an error: what is not understood must not pass for a namespace
// without rules.
func FuzzLegacyEntries(f *testing.F) {
	f.Add([]byte{}, true)
	f.Add(make([]byte, 4096), false)
	f.Add(redirectEntry(), true)
	f.Fuzz(func(t *testing.T, entries []byte, v4 bool) {
		l := legacy.Layouts[1]
		if v4 {
			l = legacy.Layouts[0]
		}
		chains, err := chainsIn(natTable(l, entries), Proxy{Ports: []uint16{15001}})
		if err == nil && len(entries) > 0 && len(entries) < 120 {
			t.Errorf("%d bytes passed for entries", len(entries))
		}
		if err == nil {
			Chains(chains).Redirections()
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
	rule, to := redirectEntry(), Proxy{Ports: []uint16{15001}}
	policy := append([]byte(nil), rule...) // whatever it is, the last of a chain is no rule
	chains, err := chainsIn(natTable(legacy.Layouts[0], append(rule, policy...)), to)
	if err != nil {
		t.Fatal(err)
	}
	if redirections := Chains(chains).Redirections(); len(redirections) != 1 ||
		redirections[0].Ours {
		t.Errorf("redirections %v", redirections)
	}
	if _, err := chainsIn(natTable(legacy.Layouts[0], rule[:167]), to); err == nil {
		t.Error("half an entry passed")
	}
}
