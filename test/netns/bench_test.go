package netns_test

import (
	"fmt"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

func BenchmarkNewPod(b *testing.B) {
	for _, o := range []netns.Options{{}, {UserNamespace: true}} {
		b.Run(fmt.Sprintf("%+v", o), func(b *testing.B) {
			for b.Loop() {
				netns.NewPod(b, o)
			}
		})
	}
}

func BenchmarkDial(b *testing.B) {
	pod := netns.NewPod(b, netns.Options{})
	for _, call := range []netns.Call{tcp("192.0.2.7:80"), tcp("[2001:db8:7::7]:80"),
		udp("192.0.2.7:53")} {
		b.Run(call.Network+" "+call.To.String(), func(b *testing.B) {
			for b.Loop() {
				if got := pod.Dial(b, call); got.Outcome != netns.Answered {
					b.Fatal(got)
				}
			}
		})
	}
}
