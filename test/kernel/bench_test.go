package kernel

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// BenchmarkCompile is the default pod's way from facts to rules.
func BenchmarkCompile(b *testing.B) {
	r := matrix.Plain()
	for b.Loop() {
		d, err := redirect.Decide(r.Pod, r.Config)
		if err != nil {
			b.Fatal(err)
		}
		redirect.Compile(d.Policy)
	}
}

// BenchmarkApply writes the default pod's rules into a fresh namespace, as every ADD does.
func BenchmarkApply(b *testing.B) {
	_, rs := compile(b, matrix.Plain())
	applyFresh(b, rs)
}

// BenchmarkApplyDearest does so with about as many rules as a pod may ask for.
func BenchmarkApplyDearest(b *testing.B) {
	const half = redirect.MaxRules/2 - 60
	list := func(n int) string { return strings.Join(scattered(redirect.IPv4, n), ",") }
	_, rs := compile(b, matrix.Annotation("", matrix.Traffic+"excludeOutboundIPRanges", list(half)).On(
		matrix.Annotation("", matrix.Traffic+"includeOutboundIPRanges", list(half)).On(matrix.Plain())))
	applyFresh(b, rs)
}

func applyFresh(b *testing.B, rs redirect.Ruleset) {
	b.Helper()
	netns.RequireRoot(b)
	for _, d := range dialects(b) {
		b.Run(d.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				ns := netns.New(b)
				ns.Do(b, func() {
					b.StartTimer()
					if err := d.apply(rs); err != nil {
						b.Error(err)
					}
					b.StopTimer()
				})
				b.StartTimer()
			}
		})
	}
}

// BenchmarkApplyAgain is what a rerun takes: nftables' rules are replaced, those of iptables
// compared.
func BenchmarkApplyAgain(b *testing.B) {
	inNamespace(b, func(d dialect, rs redirect.Ruleset) error { return d.apply(rs) })
}

// BenchmarkVerify compares the kernel's rules with those that should be there.
func BenchmarkVerify(b *testing.B) {
	inNamespace(b, func(d dialect, rs redirect.Ruleset) error {
		problems, err := d.verify(rs)
		if len(problems) > 0 {
			err = fmt.Errorf("%v", problems)
		}
		return err
	})
}

func inNamespace(b *testing.B, f func(dialect, redirect.Ruleset) error) {
	netns.RequireRoot(b)
	_, rs := compile(b, matrix.Plain())
	for _, d := range dialects(b) {
		b.Run(d.name, func(b *testing.B) {
			ns := netns.New(b)
			apply(b, d, ns, rs)
			ns.Do(b, func() {
				for b.Loop() {
					if err := f(d, rs); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkNewConnection sends the first packet of one flow after the other past a list of excluded
// networks, to a destination that is in none of them. The packets die behind the last rule, so that
// it is the rules that are timed.
func BenchmarkNewConnection(b *testing.B) {
	netns.RequireRoot(b)
	for _, d := range dialects(b) {
		for _, n := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/excluded=%d", d.name, n), func(b *testing.B) {
				_, rs := compile(b, matrix.Annotation("", matrix.Traffic+"excludeOutboundIPRanges",
					strings.Join(scattered(redirect.IPv4, n), ",")).On(matrix.Plain()))
				pod := netns.NewPod(b, netns.Options{})
				apply(b, d, pod.NS, rs)
				pod.Run(b, "table ip quiet {\n chain out {\n type filter hook postrouting "+
					"priority -200;\n drop\n }\n}\n", "nft", "-f", "-")
				pod.Do(b, func() { send(b) })
			})
		}
	}
}

func send(b *testing.B) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = unix.Close(fd) }()
	to := unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 7}}
	for b.Loop() {
		to.Port = 1024 + (to.Port+1)%60000
		_ = unix.Sendto(fd, []byte("x"), 0, &to) // the drop is reported here
	}
}
