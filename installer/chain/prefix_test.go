package chain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// change is a pass that begins in a directory that an earlier one has left.
type change struct {
	from, to Spec // the zero spec is for a directory without us
}

func (c change) String() string { return c.from.short() + " to " + c.to.short() }

func (w Spec) short() string {
	if w.Way == "" {
		return "nothing"
	}
	if string(w.Entry) == laterEntry {
		return string(w.Way) + " later"
	}
	return string(w.Way)
}

func pass(d Dir, w Spec) (Plan, error) {
	if w.Way == "" {
		return Uninstall(d, Spec{})
	}
	return Install(d, w)
}

func changes() []change {
	var all []change
	ends := []Spec{{}, spec(Inline), spec(DropIn), spec(Owned), spec(Standalone)}
	for _, from := range ends {
		for _, to := range ends {
			if pair := string(from.Way + to.Way); pair == "ownedstandalone" ||
				pair == "standaloneowned" {
				continue // in no directory are both open
			}
			all = append(all, change{from, to})
		}
		if from.Way != "" {
			later := from
			later.Entry = []byte(laterEntry)
			all = append(all, change{from, later})
		}
	}
	return all
}

// TestKilledBetweenAnyTwoSteps holds, with real libcni on a real directory: after each step of each
// pass in each layout the runtime loads the original chain, with us wherever we have been before
// and shall be after; and the pass that finds this ends where the first one would have ended.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	for _, l := range layouts(t) {
		original, err := newDisk(t, l.before).load(true)
		if err != nil || l.name == "unreadable" {
			continue // there a pass does nothing, see TestLayouts
		}
		for _, c := range changes() {
			begin := l.before
			if plan, err := pass(begin, c.from); err == nil {
				begin = begin.After(plan.Steps...)
			} else {
				continue
			}
			plan, err := pass(begin, c.to)
			if err != nil {
				continue
			}
			tried[c.String()] = true
			t.Run(l.name+"/"+c.String(), func(t *testing.T) {
				t.Parallel()
				k := killed{change: c, original: original, plan: plan, begin: begin}
				for steps := range len(plan.Steps) + 1 {
					k.after(t, steps)
				}
			})
		}
	}
	for _, c := range changes() {
		if !tried[c.String()] {
			t.Errorf("%s is tried in no layout", c)
		}
	}
}

type killed struct {
	change   change
	original loaded
	plan     Plan
	begin    Dir
}

func (k killed) after(t *testing.T, steps int) {
	t.Helper()
	disk := newDisk(t, k.begin)
	at := fmt.Sprintf("%s\nafter %d of them", told(k.plan, nil), steps)
	for _, s := range k.plan.Steps[:steps] {
		disk.do(s)
	}
	left := disk.read()
	if diff := cmp.Diff(k.begin.After(k.plan.Steps[:steps]...).text(), left.text()); diff != "" {
		t.Errorf("%s: the directory is not as After says (-After +disk)\n%s", at, diff)
	}
	got, err := disk.load(true)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	if same, err := left.load(t); err != nil || !cmp.Equal(got, same) {
		t.Errorf("%s: without a disk: %v\n%s", at, err, cmp.Diff(got, same))
	}
	if k.runs(k.change.from) && k.runs(k.change.to) && got.Ours == 0 {
		t.Errorf("%s: we are not in the chain", at)
	}
	if steps == len(k.plan.Steps) && (got.Ours == 1) != k.runs(k.change.to) {
		t.Errorf("%s: we are in the chain %d times", at, got.Ours)
	}
	got.Ours = 0
	if diff := cmp.Diff(k.original, got); diff != "" {
		t.Errorf("%s: others have another chain (-before +after)\n%s", at, diff)
	}
	next, err := pass(left, k.change.to)
	if err != nil {
		t.Errorf("%s: the next pass: %v", at, err)
	}
	want := k.begin.After(k.plan.Steps...)
	if diff := cmp.Diff(want.text(), left.After(next.Steps...).text()); diff != "" {
		t.Errorf("%s: the next pass ends elsewhere (-undisturbed +next)\n%s", at, diff)
	}
}

func (k killed) runs(w Spec) bool { return slices.Contains([]Way{Inline, DropIn, Owned}, w.Way) }

// A runtime that knows no drop-ins is served as well, and one that no longer does.
func TestTheRuntimeIsReplacedByAnOlderOne(t *testing.T) {
	t.Parallel()
	for _, l := range layouts(t) {
		if _, err := newDisk(t, l.before).load(false); err != nil || l.name == "unreadable" ||
			strings.HasPrefix(l.name, "multus") {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			newer, older := spec(Auto), spec(Auto)
			older.LoadsDropIns = false
			plan, err := Install(l.before, newer)
			if err != nil {
				t.Fatal(err)
			}
			with := l.before.After(plan.Steps...)
			plan, err = Install(with, older)
			if err != nil {
				t.Fatal(err)
			}
			after := with.After(plan.Steps...)
			if got, err := newDisk(t, after).load(false); err != nil || got.Ours != 1 {
				t.Errorf("%s: the older one has us %d times, %v", told(plan, nil), got.Ours, err)
			}
			if s := Evaluate(after, older); !s.Effective || s.Way != Inline {
				t.Errorf("%+v", s)
			}
		})
	}
}
