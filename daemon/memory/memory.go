// Package memory tells what the kernel allows a process.
//
//	if limit, ok := memory.Limit("/sys/fs/cgroup"); ok {
//		debug.SetMemoryLimit(limit)
//	}
package memory

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// noLimit is how cgroup v1 writes that there is none: the highest number of whole pages.
const noLimit = math.MaxInt64 - 1<<20

// Limit is what the garbage collector is to stay below: 90 % of what the process' cgroup
// allows, since the kernel counts what Go does not. Without it garbage is collected once there is
// as much of it as of everything else, whatever the limit is, and the kernel ends the process
// before that. false says that there is no limit. dir is where a container sees its own cgroup,
// in either version.
func Limit(dir string) (int64, bool) {
	for _, file := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		// Version 2 writes "max" where there is no limit, which is no number.
		limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		return limit / 10 * 9, err == nil && limit < noLimit
	}
	return 0, false
}
