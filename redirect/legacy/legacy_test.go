package legacy

import (
	"testing"
)

// entry is one of IPv4 with a target of some length at an offset.
func entry(target string, at, length int) []byte {
	data := make([]byte, at+length)
	data[88], data[90] = byte(at), byte(at+length)
	copy(data[at+2:], target)
	return data
}

func TestEntries(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		data []byte
		n    int // of entries; 0 is a table that is broken
	}{
		"a target without parameters": {entry("TRACE", 112, 32), 1},
		"two":                         {append(entry("TRACE", 112, 32), entry("A", 120, 36)...), 2},
		"half":                        {entry("TRACE", 112, 32)[:100], 0},
		"a target in the counters":    {entry("TRACE", 104, 60), 0},
		"a target that is cut off":    {entry("TRACE", 112, 31), 0},
		"an end behind the table":     {entry("TRACE", 112, 40)[:150], 0},
	} {
		got, err := Table{Layout: Layouts[0], Name: "raw", Data: row.data}.Entries()
		if (err != nil) != (row.n == 0) || len(got) != row.n {
			t.Errorf("%s: %d entries, %v; want %d", name, len(got), err, row.n)
		}
	}
}

func TestWhatAnEntryDoes(t *testing.T) {
	t.Parallel()
	jump := entry("", 112, 40)
	jump[112+32] = 200
	begins := entry("ERROR", 112, 64)
	copy(begins[112+32:], "ISTIO_OUTPUT")
	table := Table{Layout: Layouts[0], Data: append(append(entry("TRACE", 112, 32), jump...),
		begins...)}
	all, err := table.Entries()
	if err != nil {
		t.Fatal(err)
	}
	if to, ok := all[0].Verdict(); ok {
		t.Errorf("TRACE has the verdict %d", to)
	}
	if name, _ := all[0].Target(); name != "TRACE" {
		t.Errorf("target %q, want TRACE", name)
	}
	if to, ok := all[1].Verdict(); !ok || to != 200 {
		t.Errorf("verdict %d, %t; want 200", to, ok)
	}
	if chain, ok := all[2].Begins(); !ok || chain != "ISTIO_OUTPUT" || all[2].Next() != len(table.Data) {
		t.Errorf("chain %q, %t, behind it %d", chain, ok, all[2].Next())
	}
	if _, ok := all[1].Begins(); ok {
		t.Error("a jump begins a chain")
	}
}
