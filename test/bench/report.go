package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// report is what there is to print.
type report struct {
	rows   []row
	rushes []rush
	daemon daemon
	binary int64 // bytes
}

// row is a case and what its processes took.
type row struct {
	testCase
	took []took
}

func (r row) wall(share float64) time.Duration {
	return quantile(share, r.took, func(t took) time.Duration { return t.wall })
}

func (r row) cpu() time.Duration {
	return quantile(median, r.took, func(t took) time.Duration { return t.cpu })
}

func (r row) memory() int64 {
	return quantile(1, r.took, func(t took) int64 { return t.memory })
}

const median = 0.5

// quantile is the least value that such a share of all does not exceed.
func quantile[T any, V time.Duration | int64](share float64, all []T, of func(T) V) V {
	var values []V
	for _, one := range all {
		values = append(values, of(one))
	}
	slices.Sort(values)
	return values[max(0, int(math.Ceil(share*float64(len(values))))-1)]
}

func (r report) print(out io.Writer) {
	fmt.Fprintf(out, "\nThe plugin's speed in milliseconds, on %d cores; rounds in which all "+
		"cases took turns: %d\n\n",
		runtime.NumCPU(), len(r.rows[0].took))
	empty, version := r.rows[0].wall(median), r.rows[1].wall(median)
	lines := [][]string{{"", "wall", "p95", "CPU", "to empty", "budget", "", "to VERSION",
		"memory"}}
	for _, row := range r.rows {
		line := []string{row.name, millis(row.wall(median)), millis(row.wall(0.95)),
			millis(row.cpu())}
		line = append(line, compare(row.wall(median), empty, row.budget)...)
		lines = append(lines, append(line, ratio(row.wall(median), version), mebi(row.memory())))
	}
	write(out, lines)
	fmt.Fprintln(out)
	write(out, r.totals())
}

// row returns that of a name.
func (r report) row(name string) row {
	return r.rows[slices.IndexFunc(r.rows, func(row row) bool { return row.name == name })]
}

// totals are what is not about single calls.
func (r report) totals() [][]string {
	all := quantile(median, r.rushes, func(r rush) time.Duration { return r.byAgents.all })
	slowest := quantile(median, r.rushes, func(r rush) time.Duration { return r.byAgents.slowest })
	byFiles := quantile(median, r.rushes, func(r rush) time.Duration { return r.byFiles.all })
	file, agent := r.row(byFile).wall(median), r.row(byAgent).wall(median)
	var memory int64
	for _, row := range r.rows[1:] {
		memory = max(memory, row.memory())
	}
	return [][]string{
		{"", "", "budget", ""},
		{"by its pod file, to agent's cache", ratio(file, agent), fmt.Sprint(fileBudget),
			mark(float64(file) <= fileBudget*float64(agent))},
		{fmt.Sprintf("  the same of %d ADDs together", manyPods), ratio(byFiles, all),
			fmt.Sprint(fileBudget), mark(float64(byFiles) <= fileBudget*float64(all))},
		{fmt.Sprintf("%d ADDs together, agent's cache, nftables", manyPods), millis(all) + " ms",
			millis(rushBudget) + " ms", mark(all <= rushBudget)},
		{"  the slowest of them", millis(slowest) + " ms", "", ""},
		{"binary, stripped", mebi(r.binary), mebi(binaryBudget), mark(r.binary <= binaryBudget)},
		{"resident memory, at most", mebi(memory), mebi(memoryBudget),
			mark(memory <= memoryBudget)},
		{"", "", "", ""},
		{fmt.Sprintf("the agent, with %d pods of %d: anonymous memory", podsOnNode, podsInCluster),
			mebi(r.daemon.anonymous), mebi(anonymousBudget),
			mark(r.daemon.anonymous <= anonymousBudget)},
		{"  resident", mebi(r.daemon.resident), mebi(residentBudget),
			mark(r.daemon.resident <= residentBudget)},
		{"  resident, at most", mebi(r.daemon.most), mebi(residentBudget),
			mark(r.daemon.most <= residentBudget)},
		{fmt.Sprintf("  CPU in %v when nothing happens", quietTime), millis(r.daemon.cpu) + " ms",
			"", ""},
	}
}

// compare has the cells of a ratio, its budget, and whether it holds.
func compare(have, base time.Duration, budget float64) []string {
	if budget == 0 {
		return []string{ratio(have, base), "", ""}
	}
	return []string{ratio(have, base), fmt.Sprintf("%.1f", budget),
		mark(float64(have) <= budget*float64(base))}
}

func ratio(have, base time.Duration) string {
	return fmt.Sprintf("%.2f",
		float64(have)/float64(base))
}

func mark(holds bool) string {
	if holds {
		return "ok"
	}
	return "over"
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()*1000) }

func mebi(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// write aligns words to the left and numbers to the right.
func write(out io.Writer, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
	}
}
