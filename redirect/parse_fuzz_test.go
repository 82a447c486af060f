package redirect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// FuzzParse reads one value with each of the readers of lists. What one of them accepts is in its
// final form: sorted, with nothing in it twice, and written out again it reads the same.
func FuzzParse(f *testing.F) {
	for _, rows := range accepted {
		for _, row := range rows {
			f.Add(row.value)
		}
	}
	for _, nasty := range []string{",", "*", " 1 , 2 ", "1-2-3", "4294967294", "4294967295",
		"0-4294967294", "5-5,6-9", "::ffff:1.2.3.4/128", "::ffff:1.2.3.4/95",
		"1.2.3.4/0,::/0", "fe80::%a/64", "a+,a", "_,-a,@", "\x00", "\xff", "\u202e",
		strings.Repeat("a,", 300), strings.Repeat("1", 70), strings.Repeat("é", 70)} {
		f.Add(nasty)
	}
	f.Fuzz(func(t *testing.T, value string) {
		checkList(t, value, (*reader).ports, func(a, b uint16) bool { return a < b },
			func(p uint16) string { return fmt.Sprint(p) })
		checkList(t, value, (*reader).interfaces, func(a, b Interface) bool { return a < b },
			func(i Interface) string { return string(i) })
		checkList(t, value, func(r *reader, v string) []uint32 { return r.ids(v, maxGroups) },
			func(a, b uint32) bool { return a < b },
			func(id uint32) string { return fmt.Sprint(id) })
		checkList(t, value, func(r *reader, v string) []IDRange { return r.idRanges(v) },
			func(a, b IDRange) bool {
				return a.First <= a.Last && b.First <= b.Last && uint64(a.Last)+1 < uint64(b.First)
			},
			func(r IDRange) string { return fmt.Sprintf("%d-%d", r.First, r.Last) })
		checkList(t, value, func(r *reader,
			v string) []netip.Prefix {
			list, _ := r.cidrs(v)
			return list
		},
			func(a, b netip.Prefix) bool {
				return !a.Overlaps(b) && a.Addr().Less(b.Addr()) && a == a.Masked() &&
					b == b.Masked() && !a.Addr().Is4In6() && !b.Addr().Is4In6()
			},
			netip.Prefix.String)
	})
}

func checkList[T comparable](t *testing.T, value string, read func(*reader, string) []T,
	before func(a, b T) bool, write func(T) string) {
	t.Helper()
	r := reader{key: "key"}
	list := read(&r, value)
	if len(r.mistakes) > 0 {
		checkText(t, r.mistakes.Error())
		if len(r.mistakes) > 8 {
			t.Errorf("%q: %d mistakes", value, len(r.mistakes))
		}
		return
	}
	words := make([]string, len(list))
	for i, item := range list {
		if words[i] = write(item); i > 0 && !before(list[i-1], item) {
			t.Errorf("%q: %s stands before %s", value, words[i-1], words[i])
		}
	}
	if strings.TrimSpace(value) == "" && len(list) > 0 {
		t.Errorf("%q: %v", value, list)
	}
	again := reader{key: "key"}
	if back := read(&again, strings.Join(words, ",")); !slices.Equal(back, list) ||
		len(again.mistakes) > 0 {
		t.Errorf("%q: %v is read back as %v, %v", value, list, back, again.mistakes)
	}
}
