package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// TestMeasure takes every case once, and reads that each did what it should.
func TestMeasure(t *testing.T) {
	netns.RequireRoot(t)
	n := newNode(t)
	r := n.measure(1)
	for _, row := range r.rows {
		if len(row.took) != max(1, row.turns) ||
			row.wall(median) <= 0 || row.cpu() <= 0 || row.memory() < 1<<20 {
			t.Errorf("%s took %+v", row.name, row.took)
		}
	}
	if len(r.rushes) != 1 || r.rushes[0].byAgents.all < r.rushes[0].byAgents.slowest ||
		r.rushes[0].byFiles.slowest == 0 || r.binary < 1<<20 {
		t.Errorf("together %+v, binary %d", r.rushes, r.binary)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	ms := func(wall ...int) (all []took) {
		for _, w := range wall {
			all = append(all, took{wall: time.Duration(w) * time.Millisecond,
				cpu: 1500 * time.Microsecond, memory: int64(w) << 20})
		}
		return all
	}
	r := report{
		rows: []row{
			{testCase: testCase{name: "empty"}, took: ms(1, 1, 1)},
			{testCase: testCase{name: "VERSION"}, took: ms(2, 2, 2)},
			{testCase: testCase{name: "in time", budget: 3}, took: ms(3, 1, 21)},
			{testCase: testCase{name: "late", budget: 11}, took: ms(12, 12, 9)},
			{testCase: testCase{name: byFile}, took: ms(4, 4, 4)},
			{testCase: testCase{name: byAgent}, took: ms(5, 5, 5)},
		},
		rushes: []rush{
			{byFiles: crowd{all: 450 * time.Millisecond},
				byAgents: crowd{700 * time.Millisecond, 70 * time.Millisecond}},
			{byFiles: crowd{all: 410 * time.Millisecond},
				byAgents: crowd{500 * time.Millisecond, 50 * time.Millisecond}},
		},
		binary: 17 << 20,
		daemon: daemon{anonymous: 12 << 20, resident: 51 << 20, most: 60 << 20,
			cpu: 20 * time.Millisecond},
	}
	var out strings.Builder
	r.print(&out)
	got := slices.Collect(strings.Lines(strings.TrimSpace(out.String())))
	want := slices.Collect(strings.Lines(`
                                  wall    p95   CPU  to empty  budget        to VERSION    memory
empty                             1.00   1.00  1.50      1.00                      0.50   1.0 MiB
VERSION                           2.00   2.00  1.50      2.00                      1.00   2.0 MiB
in time                           3.00  21.00  1.50      3.00     3.0    ok        1.50  21.0 MiB
late                             12.00  12.00  1.50     12.00    11.0  over        6.00  12.0 MiB
ours, by its pod file, nftables   4.00   4.00  1.50      4.00                      2.00   4.0 MiB
ours, agent's cache, nftables     5.00   5.00  1.50      5.00                      2.50   5.0 MiB

                                                                   budget
by its pod file, to agent's cache                         0.80       0.88    ok
  the same of 110 ADDs together                           0.82       0.88    ok
110 ADDs together, agent's cache, nftables           500.00 ms  600.00 ms    ok
  the slowest of them                                 50.00 ms
binary, stripped                                      17.0 MiB   16.0 MiB  over
resident memory, at most                              21.0 MiB   20.0 MiB  over

the agent, with 250 pods of 10000: anonymous memory   12.0 MiB   25.0 MiB    ok
  resident                                            51.0 MiB   50.0 MiB  over
  resident, at most                                   60.0 MiB   50.0 MiB  over
  CPU in 10s when nothing happens                     20.00 ms`))
	if diff := cmp.Diff(want[1:], got[2:]); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	itself := func(v int64) int64 { return v }
	for share, want := range map[float64]int64{0: 1, median: 2, 0.75: 3, 0.76: 4, 1: 4} {
		if got := quantile(share, []int64{4, 2, 1, 3}, itself); got != want {
			t.Errorf("%v: %d, want %d", share, got, want)
		}
	}
}
