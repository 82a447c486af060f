package inspect

import (
	"encoding/binary"
	"testing"
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
		err := table.parse(Proxy{Ports: []uint16{15001}})
		if err == nil && len(entries) > 0 && len(entries) < 120 {
			t.Errorf("%d bytes passed for entries", len(entries))
		}
		if err == nil {
			Chains(table.chains).Redirections()
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
	table := legacyTable{
		of: protocols[0], name: "nat", hooks: map[int]bool{0: true},
		entries: append(rule, policy...),
	}
	if err := table.parse(to); err != nil {
		t.Fatal(err)
	}
	if redirections := Chains(table.chains).Redirections(); len(redirections) != 1 ||
		redirections[0].Ours {
		t.Errorf("redirections %v", redirections)
	}
	half := legacyTable{of: protocols[0], name: "nat", entries: rule[:167]}
	if err := half.parse(to); err == nil {
		t.Error("half an entry passed")
	}
}
