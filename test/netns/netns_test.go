package netns_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

func TestDoNestsAndComesHome(t *testing.T) {
	t.Parallel()
	look := func() string {
		link, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return link
	}
	outer, inner := netns.New(t), netns.NewInUserNamespace(t)
	var seen []string
	home := look()
	outer.Do(t, func() {
		seen = append(seen, look())
		inner.Do(t, func() { seen = append(seen, look()) })
		seen = append(seen, look())
	})
	if seen[0] != seen[2] || seen[0] == seen[1] || seen[0] == home || seen[1] == home ||
		look() != home {
		t.Errorf("from %s through %v to %s", home, seen, look())
	}
	for _, n := range []*netns.NS{outer, inner} {
		got := n.Run(t, "", "readlink", "/proc/self/ns/net") +
			n.Run(t, "", "nsenter", "--net="+n.Path(), "readlink", "/proc/self/ns/net")
		want := seen[0] + "\n"
		if n == inner {
			want = seen[1] + "\n"
		}
		if got != want+want {
			t.Errorf("programs ran in %q, want %q twice", got, want)
		}
	}
}

func TestSysctlStaysInTheNamespace(t *testing.T) {
	t.Parallel()
	for _, n := range []*netns.NS{netns.New(t), netns.NewInUserNamespace(t)} {
		before, err := os.ReadFile("/proc/sys/net/ipv4/ip_default_ttl")
		if err != nil {
			t.Fatal(err)
		}
		n.Sysctl(t, "net/ipv4/ip_default_ttl", "77")
		if got := n.Run(t, "", "cat", "/proc/sys/net/ipv4/ip_default_ttl"); got != "77\n" {
			t.Errorf("the namespace has %q", got)
		}
		if after, _ := os.ReadFile("/proc/sys/net/ipv4/ip_default_ttl"); string(after) != string(
			before) {
			t.Errorf("the host has %q, had %q", after, before)
		}
	}
}

func TestTryTellsWhatAProgramSaid(t *testing.T) {
	t.Parallel()
	n := netns.New(t)
	out, err := n.Try(t, "in", "sh", "-c", "cat; echo trouble >&2; exit 3")
	if out != "in" || err == nil || !strings.Contains(err.Error(), "exit status 3\ntrouble") {
		t.Errorf("output %q, error %v", out, err)
	}
}
