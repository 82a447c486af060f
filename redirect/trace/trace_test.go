package trace_test

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/trace"
)

var addrs = []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:244::2")}

func policyOf(t *testing.T, annotations, env map[string]string) redirect.Policy {
	t.Helper()
	all := map[string]string{"sidecar.istio.io/status": "{}"}
	maps.Copy(all, annotations)
	d, err := redirect.Decide(redirect.Pod{Namespace: "shop", Name: "web", Annotations: all,
		Nameservers: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Spec:        &redirect.Spec{Containers: []redirect.Container{{Name: "istio-proxy", Env: env}}},
	}, redirect.Defaults())
	if err != nil || d.Skip != "" {
		t.Fatalf("decide: %s, %v", d.Skip, err)
	}
	return d.Policy
}

// draw writes a way in a line: who sends what to whom through what, and what becomes of it.
func draw(all []trace.Leg) string {
	var legs []string
	for _, l := range all {
		p := l.Packet
		line := fmt.Sprintf("%s %s→%s in %q out %q: %s", l.Sender.Name,
			p.Source.Addr(), p.Destination, p.In, p.Out, l.Fate.Words())
		if l.Lost {
			line += ", lost"
		}
		legs = append(legs, line)
	}
	return strings.Join(legs, "; ")
}

func TestWays(t *testing.T) {
	t.Parallel()
	app := trace.Sender{Name: "app", UID: 1000, GID: 1000}
	proxy := trace.Sender{Name: "proxy", UID: 1337, GID: 1337}
	peer := trace.Sender{Name: "peer", Peer: true}
	excluded := map[string]string{"traffic.sidecar.istio.io/excludeOutboundPorts": "5432"}
	tproxy := map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"}
	dns := map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}
	for name, row := range map[string]struct {
		annotations, env map[string]string
		talk             trace.Talk
		to, want         string
	}{
		"out": {talk: trace.Talk{From: app}, to: "10.10.0.43:5432",
			want: `app 10.244.0.2→10.10.0.43:5432 in "" out "eth0": redirected to port 15001; ` +
				`proxy 10.244.0.2→10.10.0.43:5432 in "" out "eth0": passes`},
		"out, IPv6": {talk: trace.Talk{From: app}, to: "[2001:db8::7]:443",
			want: `app fd00:244::2→[2001:db8::7]:443 in "" out "eth0": redirected to port 15001; ` +
				`proxy fd00:244::2→[2001:db8::7]:443 in "" out "eth0": passes`},
		"an excluded port": {annotations: excluded, talk: trace.Talk{From: app},
			to:   "10.10.0.43:5432",
			want: `app 10.244.0.2→10.10.0.43:5432 in "" out "eth0": passes`},
		"the proxy itself": {talk: trace.Talk{From: proxy}, to: "10.10.0.43:5432",
			want: `proxy 10.244.0.2→10.10.0.43:5432 in "" out "eth0": passes`},
		"in": {talk: trace.Talk{From: peer}, to: "10.244.0.2:8080",
			want: `peer 192.0.2.1→10.244.0.2:8080 in "eth0" out "": redirected to port 15006; ` +
				`proxy 127.0.0.6→10.244.0.2:8080 in "" out "lo": passes`},
		"in, transparent": {annotations: tproxy, talk: trace.Talk{From: peer},
			to: "10.244.0.2:8080", want: `peer 192.0.2.1→10.244.0.2:8080 in "eth0" out "": ` +
				`handed to the transparent listener on port 15006; ` +
				`proxy 127.0.0.6→10.244.0.2:8080 in "" out "lo": passes`},
		"in by another interface": {talk: trace.Talk{From: peer, Interface: "net1"},
			to: "10.244.0.2:8080",
			want: `peer 192.0.2.1→10.244.0.2:8080 in "net1" out "": redirected to port 15006; ` +
				`proxy 127.0.0.6→10.244.0.2:8080 in "" out "lo": passes`},
		"to itself": {talk: trace.Talk{From: app}, to: "10.244.0.2:8080",
			want: `app 10.244.0.2→10.244.0.2:8080 in "" out "lo": passes`},
		"to itself through the proxy": {annotations: map[string]string{
			"traffic.sidecar.istio.io/includeOutboundIPRanges": "127.0.0.0/8,10.0.0.0/8"},
			talk: trace.Talk{From: app}, to: "10.244.0.2:8080",
			want: `app 10.244.0.2→10.244.0.2:8080 in "" out "lo": redirected to port 15001; ` +
				`proxy 10.244.0.2→10.244.0.2:8080 in "" out "lo": redirected to port 15006; ` +
				`proxy 127.0.0.6→10.244.0.2:8080 in "" out "lo": passes`},
		"on loopback": {talk: trace.Talk{From: app}, to: "127.0.0.1:8080",
			want: `app 127.0.0.1→127.0.0.1:8080 in "" out "lo": passes`},
		"on the link": {talk: trace.Talk{From: app, Interface: "net1"}, to: "[fe80::1]:80",
			want: `app fd00:244::2→[fe80::1]:80 in "" out "net1": redirected to port 15001, lost`},
		"to itself, by its interface": {talk: trace.Talk{From: app, Interface: "lo"},
			to: "10.244.0.2:80", want: `app 10.244.0.2→10.244.0.2:80 in "" out "lo": passes`},
		"a name": {env: dns, talk: trace.Talk{From: app, UDP: true}, to: "10.96.0.10:53",
			want: `app 10.244.0.2→10.96.0.10:53 in "" out "eth0": redirected to port 15053`},
		"UDP else": {env: dns, talk: trace.Talk{From: app, UDP: true}, to: "10.96.0.10:123",
			want: `app 10.244.0.2→10.96.0.10:123 in "" out "eth0": passes`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row.talk.To = netip.MustParseAddrPort(row.to)
			pod := trace.Pod{Policy: policyOf(t, row.annotations, row.env), Addrs: addrs}
			all, err := trace.Follow(pod, row.talk)
			if err != nil {
				t.Fatal(err)
			}
			if got := draw(all); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			if all[0].Fate.Outcome == packet.Redirected && len(all[0].Fate.Met) == 0 {
				t.Error("no rule was met")
			}
		})
	}
}

func TestWhatNobodyCanSay(t *testing.T) {
	t.Parallel()
	pod := trace.Pod{Policy: policyOf(t, nil, nil), Addrs: addrs[:1]}
	for to, want := range map[string]string{
		"[2001:db8::7]:443": "no address of the family",
		"127.0.0.1:80":      "cannot reach loopback",
	} {
		_, err := trace.Follow(pod, trace.Talk{From: trace.Sender{Peer: true},
			To: netip.MustParseAddrPort(to)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", to, err)
		}
	}
}
