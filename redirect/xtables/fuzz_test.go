package xtables

import (
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// FuzzRead looks for texts that stop the program, or whose errors are no single line, or for which
// a question does not split its class.
func FuzzRead(f *testing.F) {
	for _, listing := range []string{redirecting, transparent, resolving, mixed, inIPv6(mixed), longListing(3), doubling(3), "*nat\n-A OUTPUT -j X\n"} {
		f.Add(listing)
		f.Add(listing[:len(listing)/2])
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, texts := range [][2]string{{text, ""}, {"", text}} {
			tables, err := Read(texts[0], texts[1])
			if err != nil {
				if strings.Contains(err.Error(), "\n") || len(err.Error()) > 1500 {
					t.Errorf("want one short line: %s", err)
				}
				continue
			}
			tables.Routed = []uint32{1337}
			for _, c := range packet.Everything() {
				follow(t, tables, c)
			}
		}
	})
}

// follow splits a class along one way to a fate.
func follow(t *testing.T, tables *Tables, c packet.Class) {
	for i := range 100 {
		_, q := tables.Fate(c)
		if q == nil {
			return
		}
		yes, no := c.Split(*q)
		if yes.Empty() || no.Empty() {
			t.Fatalf("question about field %d does not split its class", q.Field)
		}
		if c = no; i%2 == 0 {
			c = yes
		}
	}
}
