package memory_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/daemon/memory"
)

func TestTheMemoryLimitIsThatOfTheCgroup(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		file, content string
		want          int64 // 0: none
	}{
		"v2":               {"memory.max", "157286400\n", 141557760},
		"v2, none":         {"memory.max", "max\n", 0},
		"v1":               {"memory/memory.limit_in_bytes", "157286400\n", 141557760},
		"v1, none":         {"memory/memory.limit_in_bytes", "9223372036854771712\n", 0},
		"v1, large pages":  {"memory/memory.limit_in_bytes", "9223372036854710272\n", 0},
		"no cgroup":        {"other", "", 0},
		"what is no limit": {"memory.max", "", 0},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), row.file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(row.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, ok := memory.Limit(filepath.Clean(file[:len(file)-len(row.file)]))
			if ok != (row.want > 0) || ok && got != row.want {
				t.Errorf("limit %d, %v; want %d", got, ok, row.want)
			}
		})
	}
}
