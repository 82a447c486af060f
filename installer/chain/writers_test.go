package chain

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// others are the programs and people that write into the directory too.
type others struct {
	rand *rand.Rand
	dir  Dir // what they have written, as if we had never been there
	last int
}

// write replaces a file, in one piece or not; the same in both directories.
func (o *others) write(d Dir) Dir {
	o.last++
	name, dropIn := "10-x.conflist", ""
	data := fmt.Sprintf(`{"name":"x","cniVersion":"0.4.0","plugins":[{"type":"bridge","mtu":%d}]}`,
		o.last)
	switch o.rand.IntN(8) {
	case 0:
		data = data[:o.rand.IntN(len(data))]
	case 1:
		name, data = "05-y.conf",
			fmt.Sprintf("{\n\t\"type\":\"ptp\",\"name\":\"y\",\"cniVersion\":\"1.0.0\",\"mtu\":%d\n}\n", o.last)
	case 2:
		name, data = "07-z.json",
			fmt.Sprintf(`{"type":"ptp","name":"z","cniVersion":"1.0.0","mtu":%d}`, o.last)
	case 3:
		name, data = "07-z.json", data[:o.rand.IntN(len(data))]
	case 4:
		name, data, dropIn = "20-w.conflist",
			`{"name":"w","cniVersion":"1.1.0","plugins":[{"type":"macvlan"}]}`, "w/10-tuning.conf"
	}
	steps := []Step{{Op: Write, Name: name, Data: []byte(data), Mode: 0o644}}
	if dropIn != "" {
		if !o.dir.tree().has("w") {
			o.dir = o.dir.After(Step{Op: MakeDir, Name: "w", Mode: fs.ModeDir | 0o755})
		}
		if !d.tree().has("w") {
			d = d.After(Step{Op: MakeDir, Name: "w", Mode: fs.ModeDir | 0o755})
		}
		steps = append(steps, Step{Op: Write, Name: dropIn, Data: []byte(`{"type":"tuning"}`),
			Mode: 0o600})
	}
	o.dir = o.dir.After(steps...)
	return d.After(steps...)
}

// TestOtherWriters lets others write between our steps. Steps that find another file than they were
// made for are not taken. When the others have stopped, one pass makes it good; and uninstalling
// leaves exactly what they have written.
func TestOtherWriters(t *testing.T) {
	t.Parallel()
	ways := []Way{Auto, Inline, DropIn, Owned}
	times := 1500
	if testing.Short() { // which make mutate wants for each mutant
		times = 60
	}
	effective := 0
	for seed := range uint64(times) {
		o := &others{rand: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // to be repeated
		d := o.write(nil)
		var log []string
		for range o.rand.IntN(12) {
			w := spec(ways[o.rand.IntN(len(ways))])
			w.LoadsDropIns = o.rand.IntN(2) == 0
			if o.rand.IntN(6) == 0 {
				w = Spec{}
			}
			plan, _ := pass(d, w)
			planned := d
			for _, s := range plan.Steps {
				if o.rand.IntN(4) == 0 {
					d = o.write(d)
					log = append(log, fmt.Sprintf("others: %q", o.dir.text()))
				}
				if !d.tree()[s.Name].equal(planned.tree()[s.Name]) ||
					s.Op == Rename && !d.tree()[s.To].equal(planned.tree()[s.To]) {
					break
				}
				if s.Op == RemoveDir && d.tree().inside(s.Name) {
					continue
				}
				d, planned = d.After(s), planned.After(s)
				log = append(log, s.String())
			}
		}
		if wantHealed(t, d, o.dir) {
			effective++
		}
		if t.Failed() {
			t.Fatalf("seed %d: %q", seed, log)
		}
	}
	if effective < times/3 {
		t.Errorf("only %d of %d ended effective: the others break too much", effective, times)
	}
}

func wantHealed(t *testing.T, d, written Dir) bool {
	t.Helper()
	w := spec(Auto)
	plan, err := Install(d, w)
	_, undisturbed := Install(written, w)
	if (err == nil) != (undisturbed == nil) {
		t.Errorf("a pass: %v; without a past: %v", err, undisturbed)
	}
	if err == nil {
		d = d.After(plan.Steps...)
		if s := Evaluate(d, w); !s.Effective {
			t.Errorf("not effective: %+v", s)
		}
		got, err := d.load(t)
		if err != nil {
			t.Errorf("load: %v", err)
		}
		want, _ := written.load(t)
		want.Ours = 1
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the chain is not what the others wrote, and us (-want +got)\n%s", diff)
		}
	}
	out, outErr := Uninstall(d, Spec{})
	if outErr == nil {
		if diff := cmp.Diff(written.text(), d.After(out.Steps...).text()); diff != "" {
			t.Errorf("uninstalling leaves what nobody has written (-written +left)\n%s", diff)
		}
	} else if err == nil {
		t.Errorf("uninstall: %v", outErr)
	}
	return err == nil && slices.ContainsFunc(d, File.carriesUs)
}
