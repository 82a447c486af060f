package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
)

// What the plugins before said comes out as it went in: nothing that we do not know is lost.
func TestAnswer(t *testing.T) {
	t.Parallel()
	rows := map[string]struct{ version, previous, want string }{
		"untouched": {
			"1.0.0", `{"cniVersion":"1.0.0", "ips":[{"address":"10.1.2.3/24","future":12345678901234567890}],"vendor.io/x":{"a":null}}`,
			`{"cniVersion":"1.0.0", "ips":[{"address":"10.1.2.3/24","future":12345678901234567890}],"vendor.io/x":{"a":null}}`,
		},
		"without a version": {
			"0.3.1", `{"ips":[{"version":"4","address":"10.1.2.3/24"}],"x":1.50}`,
			`{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.2.3/24"}],"x":1.50}`,
		},
		"of a newer version": {
			"0.4.0", `{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}`,
			`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.2.3/24"}],"dns":{}}`,
		},
		"of an older version": {
			"1.1.0", `{"cniVersion":"0.3.0","ips":[{"version":"4","address":"10.1.2.3/24"}]}`,
			`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`,
		},
		"absent": {"0.3.0", ``, `{"cniVersion":"0.3.0"}`},
		"null":   {"1.1.0", `null`, `{"cniVersion":"1.1.0"}`},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdin := `{"cniVersion":"` + row.version + `"}`
			if row.previous != "" {
				stdin = `{"cniVersion":"` + row.version + `","prevResult":` + row.previous + `}`
			}
			c := call{conf: netconf.Parse([]byte(stdin))}
			got, err := c.result()
			if err != nil {
				t.Fatal(err)
			}
			if name == "untouched" && string(got) != row.want {
				t.Errorf("got %s", got)
			}
			if diff := cmp.Diff(decoded(t, row.want), decoded(t, string(got))); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if _, err := version.NewResult(row.version, got); err != nil {
				t.Errorf("the runtime cannot read %s: %v", got, err)
			}
		})
	}
}

// decoded keeps numbers as they are written.
func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func FuzzResult(f *testing.F) {
	for _, previous := range []string{
		``, `null`, `[]`, `{}`, `{"cniVersion":"0.4.0","ips":[]}`, `{"cniVersion":7}`,
		`{"cniVersion":"0.3.1","ips":[{"address":"x"}]}`,
		`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24","interface":9}]}`,
	} {
		f.Add("1.0.0", previous)
		f.Add("0.3.0", previous)
	}
	f.Fuzz(func(t *testing.T, version, previous string) {
		stdin := fmt.Sprintf(`{"cniVersion":%q,"prevResult":%s}`, version, previous)
		c := call{conf: netconf.Parse([]byte(stdin))}
		if answer, err := c.result(); err == nil && !json.Valid(answer) {
			t.Errorf("answer %q to %s", answer, stdin)
		}
	})
}
