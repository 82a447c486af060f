package verdict_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

type rows []verdict.Row

func (r rows) Text(p *view.Page) { verdict.Text(p, r) }

func TestText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 40)
	for name, row := range map[string]struct {
		rows rows
		want string
	}{
		"none": {nil, ""},
		"short names": {rows{{"a", verdict.OK, "fine", ""}, {"bc", verdict.Wrong, "no", "do it"},
			{"", verdict.Unknown, "what", ""}},
			"  a   ok       fine\n  bc  wrong    no\n               remedy: do it\n" +
				"      unknown  what\n"},
		"a long name": {rows{{long, verdict.Wrong, "no", "do it"}, {"", verdict.OK, "x", ""},
			{"b\x1b", verdict.OK, "fine", ""}},
			"  " + long + "\n    wrong  no\n           remedy: do it\n    ok     x\n" +
				"  b'\\x1b'\n    ok  fine\n"},
	} {
		var b bytes.Buffer
		if err := view.Show(&b, view.Text, false, row.rows); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row.want, b.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
