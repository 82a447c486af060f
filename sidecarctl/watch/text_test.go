package watch

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// sample has events of every kind, and connections of every sort.
func sample() []Event {
	at := time.Date(2026, 3, 1, 12, 0, 0, 7e6, time.UTC)
	to := netip.MustParseAddrPort
	app, proxy, root := uint32(1000), uint32(1337), uint32(0)
	captured := Connection{ID: 1, Protocol: "TCP", From: Party{App, &app}, Source: to("10.244.0.2:40000"),
		To: to("10.10.0.43:80"), WentTo: to("127.0.0.1:15001"), Listener: "outbound"}
	ended := captured
	ended.Outcome, ended.Milliseconds, ended.Receiver = Closed, 1234, &Party{Proxy, &proxy}
	ended.Sent, ended.Received = &Count{5, 400}, &Count{4, 12345}
	return []Event{
		{Time: at, Kind: Note, Text: "with \x1b[31m a control character, and so long that it does not fit on one line"},
		{Time: at, Kind: Existing, Connection: &Connection{ID: 7, Protocol: "UDP", From: Party{Who: Pod}, Source: to("10.244.0.2:4"),
			To: to("10.96.0.10:53"), WentTo: to("127.0.0.1:15053"), Listener: "DNS", Zone: 2}},
		{Time: at, Kind: Began, Connection: &captured},
		{Time: at, Kind: Began, Connection: &Connection{ID: 2, Protocol: "TCP", From: Party{Proxy, &proxy}, Source: to("10.244.0.2:40001"),
			To: to("10.10.0.43:80"), WentTo: to("10.10.0.43:80"), Direct: true}},
		{Time: at, Kind: Began, Connection: &Connection{ID: 3, Protocol: "TCP", From: Party{Who: Peer}, Source: to("[fd00:244::1]:40001"),
			To: to("[fd00:244::2]:8080"), WentTo: to("[fd00:244::2]:8080"), Direct: true}},
		{Time: at, Kind: Began, Connection: &Connection{ID: 4, Protocol: "TCP", From: Party{App, &root}, Source: to("10.244.0.2:40002"),
			To: to("10.10.0.43:80"), WentTo: to("10.244.9.9:8080")}},
		{Time: at, Kind: Ended, Connection: &ended},
		{Time: at, Kind: Lost, Lost: 1},
		{Time: at, Kind: Done, Summary: &Summary{Began: 3, Ended: 1, Lost: 1, Forgotten: 2}},
	}
}

const sampleText = `12:00:00.007 ! with '\x1b'[31m a control character, and so long that it does not
              fit on one line
12:00:00.007 =7     pod                UDP 10.96.0.10:53 ──▶ 15053 (DNS)
12:00:00.007 +1     app (uid 1000)     TCP 10.10.0.43:80 ──▶ 15001 (outbound)
12:00:00.007 +2     proxy (uid 1337)   TCP 10.10.0.43:80
12:00:00.007 +3     peer fd00:244::1   TCP [fd00:244::2]:8080 not redirected
12:00:00.007 +4     app (uid 0)        TCP 10.10.0.43:80 ──▶ 10.244.9.9:8080
12:00:00.007 -1     app (uid 1000)     TCP 10.10.0.43:80 closed after 1.234s,
              received by proxy (uid 1337), sent 400 B, received 12345 B
12:00:00.007 ! 1 event lost: they came faster than they were read
12:00:00.007 = 3 connections began, 1 ended, 1 event lost; the ends of 2 are not
              shown, since too many were open
`

func write(t *testing.T, f view.Format, events []Event) string {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, f)
	for _, e := range events {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestText(t *testing.T) {
	t.Parallel()
	got := write(t, view.Text, sample())
	if diff := cmp.Diff(sampleText, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for line := range strings.Lines(got) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > view.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

var addrs = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

func TestJSONIsReadBack(t *testing.T) {
	t.Parallel()
	text := write(t, view.JSON, sample())
	if lines := strings.Count(text, "\n"); lines != len(sample()) {
		t.Errorf("%d lines of %d events", lines, len(sample()))
	}
	var got []Event
	if err := Decode(strings.NewReader(text), func(e Event) error {
		got = append(got, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got, addrs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestYAMLHasADocumentForEachEvent(t *testing.T) {
	t.Parallel()
	text := write(t, view.YAML, sample())
	if strings.Count(text, "---\n") != len(sample()) ||
		!strings.Contains(text, "\n  wentTo: 127.0.0.1:15001\nevent: began\n") {
		t.Error(text)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const done = `{"event":"done","summary":{}}` + "\n"
	stop := errors.New("stop")
	for _, row := range []struct{ name, stream, want string }{
		{"no JSON", "sh: not found\n" + done, "read event 1: invalid character"},
		{"no connection", `{"event":"began"}` + "\n" + done, `event "began" has no connection`},
		{"no summary", `{"event":"done"}`, `event "done" has no summary`},
		{"a bad address", `{"event":"began","connection":{"to":"nowhere"}}`, "read event 1: "},
		{"a line without end", `{"text":"` + strings.Repeat("x", maxLine) + `"}`, "a line has more than 16 KiB"},
		{"the stream is cut", `{"event":"note"}` + "\n", ErrCut.Error()},
		{"nothing at all", "", ErrCut.Error()},
		{"something behind the end", done + `{"event":"note"}` + "\n", ErrCut.Error()},
		{"a newer kind", `{"event":"moved"}` + "\n\n" + done, ""},
		{"the reader wants no more", `{"event":"lost"}`, stop.Error()},
	} {
		err := Decode(strings.NewReader(row.stream), func(e Event) error {
			if e.Kind == Lost {
				return stop
			}
			return nil
		})
		if row.want == "" && err != nil || row.want != "" &&
			(err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: error %v, want %s", row.name, err, row.want)
		}
	}
}

// Whatever an agent sends, each event can be shown, on a terminal that obeys control characters.
func FuzzDecode(f *testing.F) {
	var b bytes.Buffer
	w := NewWriter(&b, view.JSON)
	for _, e := range sample() {
		if err := w.Write(e); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte(`{"event":"ended","connection":{"id":1,"outcome":"\u001b[2J","listener":"\u0007","protocol":"\n"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = Decode(bytes.NewReader(data), func(e Event) error {
			text := e.text()
			if !utf8.ValidString(text) || !strings.HasSuffix(text, "\n") ||
				strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), func(r rune) bool {
					return r < ' ' || r == 0x7f
				}) {
				t.Errorf("%q", text)
			}
			return NewWriter(io.Discard, view.YAML).Write(e)
		})
	})
}
