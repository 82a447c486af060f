package initcontainer

import (
	"context"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// forgetful is a backend that says that it has written rules, and has not.
type forgetful struct{ applied int }

func (f *forgetful) Apply(context.Context, redirect.Ruleset) (
	undo func(*redirect.Ruleset), warnings []string, err error) {
	f.applied++
	return func(*redirect.Ruleset) {}, nil, nil
}

func (f *forgetful) Verify(context.Context, redirect.Ruleset) ([]redirect.Problem, error) {
	return []redirect.Problem{{Where: "ISTIO_OUTPUT", Rule: 2, What: "missing"}}, nil
}

func (f *forgetful) Remove(context.Context, redirect.Ruleset) error { return nil }

func (f *forgetful) Probe(context.Context) []redirect.Lack { return nil }

func TestRulesAreReadBack(t *testing.T) {
	t.Parallel()
	o, err := Read([]string{"-i", "*", "-b", "*"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	tables, d := &forgetful{}, Done{Backend: o.Backend()}
	netns.New(t).Do(t, func() { err = d.write(t.Context(), tables, o, false) })
	const want = "not as they were written: ISTIO_OUTPUT: rule 2: missing"
	if tables.applied != 1 || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("applied %d times, %v, want once, and %s", tables.applied, err, want)
	}
}

func TestTheKernelsFirstNamespaceIsKnown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		inode, cookie uint64
		want          bool
	}{
		{4026531833, 3, true},  // Linux 6.18
		{4026531840, 1, true},  // earlier
		{4026531840, 0, false}, // before Linux 5.14 nobody can tell
		{4026532345, 5, false},
	} {
		if got := isInitial(row.inode, row.cookie); got != row.want {
			t.Errorf("%d, %d: %t, want %t", row.inode, row.cookie, got, row.want)
		}
	}
	netns.New(t).Do(t, func() {
		if err := refuseHost(); err != nil {
			t.Errorf("a new namespace: %v", err)
		}
	})
}
