package validate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// byValue has cmp compare addresses as Go does.
var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

func calls(t *testing.T, words ...string) []Call {
	t.Helper()
	all, err := ParseCalls(words)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCallsReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	words := []string{"127.0.0.1>127.0.0.6:15002", "::1>[::6]:15002", "127.0.0.1>0.0.0.0:80", "::1>[::]:65535"}
	var got []string
	for _, c := range calls(t, words...) {
		got = append(got, c.String())
	}
	if diff := cmp.Diff(words, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(usualCalls(), calls(t, words[:2]...), byValue); diff != "" {
		t.Errorf("the usual calls (-want +got):\n%s", diff)
	}
	for _, word := range []string{"", "127.0.0.1", "127.0.0.1>127.0.0.6", ">127.0.0.6:1", "127.0.0.1:1>127.0.0.6:1",
		"localhost>127.0.0.6:1", "127.0.0.1>127.0.0.6:70000", "::1>::6:15002x"} {
		got, err := ParseCalls([]string{words[0], word})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("call %q: want an address", word)) {
			t.Errorf("%q: %v, %v, want an error", word, got, err)
		}
	}
}

// What would arrive without any rule, or cannot be called, is a mistake of whoever gave it.
func TestCallsThatShowNothing(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"127.0.0.1>127.0.0.6:15006":        "other than the inbound port 15006",
		"127.0.0.1>127.0.0.6:0":            "want a port from 1",
		"10.244.0.2>127.0.0.6:15002":       "want it from 127.0.0.1 or ::1",
		"::1>127.0.0.6:15002":              "want two addresses of one family",
		"127.0.0.1>[::6]:15002":            "want two addresses of one family",
		"::1>[::ffff:127.0.0.6]:15002":     "want two addresses of one family",
		"::1>[fe80::1%eth0]:15002":         "want two addresses of one family",
		"::ffff:127.0.0.1>127.0.0.6:15002": "want two addresses of one family",
	} {
		err := Options{Inbound: 15006, Calls: calls(t, word)}.check()
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want %s", word, err, want)
		}
	}
	if err := (Options{Calls: usualCalls()}).check(); err == nil || !strings.Contains(err.Error(), "inbound port 0") {
		t.Errorf("without an inbound port: %v", err)
	}
	if err := (Options{Inbound: 15006, Calls: usualCalls()}).check(); err != nil {
		t.Error(err)
	}
}

func TestEachFamilyIsCalledByAnAddressThatThePodHas(t *testing.T) {
	t.Parallel()
	const lo4, lo6, six = "127.0.0.1/8", "::1/128", "::6/128"
	usual := []string{"127.0.0.1>127.0.0.6:15002", "::1>[::6]:15002"}
	for name, row := range map[string]struct {
		lo    []string
		own   []string
		calls []string // none: the usual ones
		want  []string
	}{
		"redirected in both":      {lo: []string{lo4, lo6, six}, own: []string{"10.0.0.2", "fd00::2"}, want: usual},
		"without ::6":             {lo: []string{lo4, lo6}, own: []string{"10.0.0.2", "fd00::2"}, want: []string{usual[0], "fd00::2>[fd00::2]:15002"}},
		"without IPv6 on lo":      {lo: []string{lo4}, own: []string{"10.0.0.2", "fd00::2"}, want: usual[:1]},
		"nobody reaches it there": {lo: []string{lo4, lo6, six}, own: []string{"10.0.0.2"}, want: usual[:1]},
		"IPv6 only":               {lo: []string{lo4, lo6, six}, own: []string{"fd00::2"}, want: usual},
		"all is loopback":         {lo: []string{lo4}, own: []string{"10.0.0.2", "10.0.0.3"}, calls: []string{"127.0.0.1>0.0.0.0:7"}, want: []string{"10.0.0.2>10.0.0.2:7"}},
		"and it has no address":   {lo: []string{lo4}, own: []string{"fd00::2"}, calls: []string{"127.0.0.1>0.0.0.0:7"}},
		"nothing at all":          {},
	} {
		var p pod
		for _, text := range row.lo {
			p.lo = append(p.lo, netip.MustParsePrefix(text))
		}
		for _, text := range row.own {
			p.own = append(p.own, netip.MustParseAddr(text))
		}
		if row.calls == nil {
			row.calls = usual
		}
		var got []string
		for _, c := range p.choose(calls(t, row.calls...)) {
			got = append(got, c.String())
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}
