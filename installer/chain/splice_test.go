package chain

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The texts: a list, and what it is with our entry. Between <> is what a pass adds, so that without
// it the list is there.
func TestOurEntryIsLaidOutLikeItsNeighbours(t *testing.T) {
	t.Parallel()
	const short = `{"type":"sidecar-cni"}`
	rows := map[string]string{
		"one line":             `{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"x"}<,{"type":"sidecar-cni"}>]}`,
		"one line with blanks": `{"name":"a","cniVersion":"1.0.0","plugins":[ {"type":"x"}<, {"type":"sidecar-cni"}> ]}` + "\n",
		"a line a plugin": "{\"name\":\"a\",\"cniVersion\":\"1.0.0\",\"plugins\":[\n  " +
			"{\"type\":\"x\"},\n  {\"type\":\"y\"}<,\n  {\"type\":\"sidecar-cni\"}>\n]}",
		"comma first": "{\"name\":\"a\",\"cniVersion\":\"1.0.0\",\"plugins\":[{\"type\":\"x\"}\n " +
			" , {\"type\":\"y\"}<, {\"type\":\"sidecar-cni\"}>\n]}",
		"tabs": "{\n\t\"name\": \"a\",\n\t\"cniVersion\": " +
			"\"1.0.0\",\n\t\"plugins\": [\n\t\t{\n\t\t\t\"type\": " +
			"\"x\"\n\t\t}<,\n\t\t{\n\t\t\t\"type\": \"sidecar-cni\"\n\t\t}>\n\t]\n}\n",
		"ends of lines as on DOS": "{\r\n  \"name\": \"a\",\r\n  \"cniVersion\": " +
			"\"1.0.0\",\r\n  \"plugins\": [\r\n    {\r\n      \"type\": \"x\"\r\n    }<,\r\n    " +
			"{\r\n      \"type\": \"sidecar-cni\"\r\n    }>\r\n  ]\r\n}\r\n",
		"brackets together": "{\"name\": \"a\", \"cniVersion\": \"1.0.0\", " +
			"\"plugins\": [{\n  \"type\": \"x\"\n}, {\n  \"type\": \"y\"\n}<, {\n  \"type\": " +
			"\"sidecar-cni\"\n}>]}",
		"no indentation": "{\n\"name\": \"a\",\n\"cniVersion\": " +
			"\"1.0.0\",\n\"plugins\": [\n{\n\"type\": \"x\"\n}<,\n{\n\"type\": " +
			"\"sidecar-cni\"\n}>\n]\n}",
		"first key on the brace":       "{\"name\":\"a\",\"cniVersion\":\"1.0.0\",\"plugins\":[\n    { \"type\": \"x\",\n      \"mtu\": 1 }<,\n    {\n        \"type\": \"sidecar-cni\"\n      }>\n]}",
		"first key on the brace, tabs": "{\"name\":\"a\",\"cniVersion\":\"1.0.0\",\"plugins\":[\n\t{ \"type\": \"x\",\n\t  \"mtu\": 1\n\t}<,\n\t{\n\t\t\"type\": \"sidecar-cni\"\n\t}>\n]}",
		"keys after the list":          `{"plugins":[{"type":"x"}<,{"type":"sidecar-cni"}>],"cniVersion":"1.0.0","name":"a","x":[{}]}`,
		"numbers as they are":          `{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"x","n":1.50e+2,"m":12345678901234567890}<,{"type":"sidecar-cni"}>]}`,
		"twice plugins":                `{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"x"}],"plugins":[{"type":"y"}<,{"type":"sidecar-cni"}>]}`,
		"an escaped key":               `{"name":"a","cniVersion":"1.0.0","pl\u0075gins":[{"type":"x"}<,{"type":"sidecar-cni"}>]}`,
		"another case is no key":       `{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"x"}<,{"type":"sidecar-cni"}>],"Plugins":[{"type":"y"}]}`,
		"a key like ours inside":       `{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"x","plugins":[{"type":"sidecar-cni"}]}<,{"type":"sidecar-cni"}>]}`,
	}
	for name, text := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head, rest, _ := strings.Cut(text, "<")
			added, tail, _ := strings.Cut(rest, ">")
			before := Dir{{Name: "10-a.conflist", Data: []byte(head + tail), Mode: 0o640}}
			w := Spec{Way: Inline, Entry: []byte(short)}
			plan, err := Install(before, w)
			if err != nil {
				t.Fatal(err)
			}
			after := before.After(plan.Steps...)
			want := Dir{{Name: "10-a.conflist", Data: []byte(head + added + tail), Mode: 0o640}}
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("(-want +got)\n%s\n%s", diff, after[0].Data)
			}
			out, err := Uninstall(after, Spec{})
			if diff := cmp.Diff(before, after.After(out.Steps...)); diff != "" || err != nil {
				t.Errorf("uninstall: %v (-before +after)\n%s", err, diff)
			}
		})
	}
}

// An entry is brought to its place with one write; what is right however it is written stays.
func TestAnEntryThatIsThereAlready(t *testing.T) {
	t.Parallel()
	const a, b, ours = `{"type":"a"}`, `{"type":"b"}`, `{"type":"sidecar-cni","n":9007199254740993}`
	list := func(plugins ...string) string {
		return `{"name":"x","cniVersion":"1.0.0","plugins":[` + strings.Join(plugins, ",") + `]}`
	}
	rows := map[string]struct {
		before, want, without string
		reason                Reason
	}{
		"whole": {list(a, b, ours), list(a, b, ours), list(a, b), Effective},
		"written in another way": {list(a, b, `{ "n": 9007199254740993, "type": "sidecar-cni" }`),
			list(a, b, `{ "n": 9007199254740993, "type": "sidecar-cni" }`), list(a, b), Effective},
		"out of date": {list(a, b, `{"type":"sidecar-cni","n":9007199254740992}`),
			list(a, b, ours), list(a, b), Outdated},
		"of a key less": {list(a, b, `{"type":"sidecar-cni"}`), list(a, b, ours),
			list(a, b), Outdated},
		"in the middle": {list(a, ours, b), list(a, b, ours), list(a, b), Misplaced},
		"the first":     {list(ours, a, b), list(a, b, ours), list(a, b), Misplaced},
		"twice":         {list(a, ours, ours), list(a, ours), list(a), Repeated},
		"twice and apart": {list(ours, a, `{"type":"sidecar-cni"}`, b, ours),
			list(a, b, ours), list(a, b), Repeated},
		"twice before all others": {list(ours, ours, a), list(a, ours), list(a), Repeated},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Dir{{Name: "10-x.conflist", Data: []byte(row.before), Mode: 0o600}}
			w := Spec{Way: Inline, Entry: []byte(ours)}
			if s := Evaluate(d, w); s.Reason != row.reason ||
				s.Effective != (row.reason == Effective) || s.Way != Inline {
				t.Errorf("%+v", s)
			}
			plan, err := Install(d, w)
			if err != nil || len(plan.Steps) > 1 {
				t.Errorf("%v, %s", err, told(plan, nil))
			}
			after := d.After(plan.Steps...)
			if diff := cmp.Diff(row.want, string(after[0].Data)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			out, err := Uninstall(d, Spec{})
			if got := d.After(out.Steps...)[0].Data; err != nil ||
				!bytes.Equal(got, []byte(row.without)) {
				t.Errorf("uninstall: %v, %s", err, got)
			}
		})
	}
}

func TestWhereThePluginsOfADocumentAre(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`{"plugins": [1, {}] }`:                      "1|{}",
		`{"plugins":[]}`:                             "",
		`{"plugins":[1],"name":"x","plugins":["a"]}`: `"a"`,
		`{"name":"x"}`:                               `no "plugins"`,
		`{}`:                                         `no "plugins"`,
		``:                                           "EOF",
		`[]`:                                         "have [, want {",
		`{"plugins":{}}`:                             "have {, want [",
		`{"plugins":null}`:                           "have <nil>, want [",
	} {
		all, err := plugins([]byte(doc))
		var texts []string
		for _, s := range all {
			texts = append(texts, string(s.of([]byte(doc))))
		}
		got := strings.Join(texts, "|")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", doc, got, want)
		}
	}
}

func TestWhatIsTheSame(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[]}`, ` { "b" : [ ] , "a" : 1 } `, true},
		{`{"a":1}`, `{"a":2}`, false},
		{`{"a":1}`, `{"a":1.0}`, false}, // a number is its text
		{`null`, `null`, true},
		{`null`, `{`, false},
		{``, `null`, false},
		{``, ``, false},
	} {
		if got := same([]byte(row.a), []byte(row.b)); got != row.want {
			t.Errorf("%s and %s: %t, want %t", row.a, row.b, got, row.want)
		}
	}
}
