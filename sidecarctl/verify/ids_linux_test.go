package verify

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestIDsAsThePodHasThem(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "uid_map")
	rows := map[string]map[uint32]uint32{
		"0 0 4294967295\n":                {0: 0, 1337: 1337, math.MaxUint32: math.MaxUint32},
		"0 100000 65536\n":                {100000: 0, 101337: 1337, 165535: 65535, 165536: 165536, 7: 7},
		"0 100000 10\n10 500000 10\n":     {100009: 9, 500000: 10, 500009: 19, 500010: 500010},
		"":                                {1337: 1337},
		"nonsense\n-1 2 3\n0 100000 10\n": {100001: 1},
	}
	for text, want := range rows {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for outside, inside := range want {
			if got := readMap(file).inside(outside); got != inside {
				t.Errorf("%q: %d is %d, want %d", text, outside, got, inside)
			}
		}
	}
	if got := readMap("/nowhere").inside(7); got != 7 {
		t.Errorf("without a map 7 is %d", got)
	}
}
