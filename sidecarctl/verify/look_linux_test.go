package verify_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verify"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

func TestAPodThatIsAsItShouldBe(t *testing.T) {
	t.Parallel()
	p := newPod(t, nil, nil)
	p.run(proxy, app)
	const want = `shop/web-0   redirected by nftables, all rules as recorded
  :15001     uid 1337
  :15006     uid 1337
`
	if diff := cmp.Diff(want, text(t, p.look())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Refused at start: nobody listens on 15001 (istio/istio#11130).
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	p := newPod(t, nil, nil)
	p.run(process{Name: "envoy", UID: 1337, GID: 1337, Listen: []string{"tcp :15006"}})
	const want = `shop/web-0   redirected by nftables, all rules as recorded
  :15001     nobody listens: what the app sends is refused
  :15006     uid 1337
`
	answer := p.look()
	if diff := cmp.Diff(want, text(t, answer)); diff != "" || !answer.Amiss() {
		t.Errorf("amiss: %v, (-want +got):\n%s", answer.Amiss(), diff)
	}
}

var (
	tproxy = map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"}
	dns    = map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}
	seeing = process{Name: "envoy", UID: 1337, GID: 1337, Transparent: true,
		Listen: []string{"tcp :15001", "tcp :15006"}}
)

func with(p process, change func(*process)) process {
	p.Listen = append([]string(nil), p.Listen...)
	change(&p)
	return p
}

// Nothing leads to the tunnel's port but what peers send there: it is shown if somebody listens, at
// whichever address.
func TestTheTunnelsPort(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"tcp :15008", "tcp4 127.0.0.1:15008", "tcp4 10.244.0.2:15008"} {
		p := newPod(t, nil, nil)
		p.run(with(proxy, hears(at)))
		answer := p.look()
		if got := text(t, answer); !strings.Contains(got, "  :15008     uid 1337") || answer.Amiss() {
			t.Errorf("%s: got\n%s", at, got)
		}
	}
}

// What is found, by what a pod asks for, what runs in it and what has become of its rules.
func TestFindings(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		annotations map[string]string
		env         map[string]string
		run         []process
		change      func(*pod)
		want        []string // a kind, a colon and words of each finding; "odd " before what is not wrong
	}{
		"all is well": {run: []process{proxy, app}},
		"nobody runs": {want: []string{"listener: port 15001 (outbound): what the app sends is refused",
			"listener: port 15006 (inbound): what enters is refused"},
			run: []process{app}},
		"a proxy for IPv4 alone": {run: []process{{Name: "envoy", UID: 1337, GID: 1337,
			Listen: []string{"tcp4 0.0.0.0:15001", "tcp :15006"}}},
			want: []string{"listener: port 15001 (outbound) at ::1: what the app sends is refused"}},
		"a proxy that hears loopback alone": {run: []process{{Name: "envoy", UID: 1337, GID: 1337,
			Listen: []string{"tcp4 127.0.0.1:15001", "tcp6 [::1]:15001", "tcp :15006"}}}},
		"a proxy that hears what enters at loopback alone": {run: []process{{Name: "envoy", UID: 1337,
			GID: 1337, Listen: []string{"tcp :15001", "tcp4 127.0.0.1:15006", "tcp6 :15006"}}},
			want: []string{"listener: port 15006 (inbound) at 10.244.0.2: what enters is refused"}},
		"an app as the proxy's uid": {run: []process{with(proxy, in("0a1b")),
			{Name: "nginx", UID: 1337, GID: 2000, Container: "0c1d", Listen: []string{"tcp :8080"}}},
			want: []string{`process: "nginx"`, "uid is the proxy's"}},
		"an app as the proxy's gid": {run: []process{with(proxy, in("0a1b")),
			{Name: "nginx", UID: 2000, GID: 1337, Container: "0c1d"}},
			want: []string{`process: "nginx"`, "gid is the proxy's"}},
		"an app as the proxy's uid, in no container": {run: []process{proxy,
			{Name: "nginx", UID: 1337, GID: 1337}}, want: []string{`process: "nginx"`}},
		"an app that is called as the proxy": {run: []process{with(proxy, in("0a1b")),
			{Name: "envoy", UID: 1337, GID: 1337, Container: "0c1d"}},
			want: []string{`process: "envoy"`}},
		"a proxy that has not begun to listen": {run: []process{
			{Name: "pilot-agent", UID: 1337, GID: 1337, Container: "0a1b"},
			{Name: "envoy", UID: 1337, GID: 1337, Container: "0e1f"}},
			want: []string{"listener: port 15001", "listener: port 15006"}},
		"a proxy that does not hear the pod's own calls": {run: []process{{Name: "envoy", UID: 1337,
			GID: 1337, Listen: []string{"tcp :15001", "tcp4 10.244.0.2:15006", "tcp6 [fd00:244::2]:15006"}}},
			want: []string{"listener: port 15006 (inbound) at 127.0.0.1 and ::1: what the pod sends to itself is refused"}},
		"no address of IPv6 but those of links": {run: []process{{Name: "envoy", UID: 1337, GID: 1337,
			Listen: []string{"tcp4 0.0.0.0:15001", "tcp4 0.0.0.0:15006"}}},
			change: func(p *pod) {
				for _, one := range [][]string{{netns.PodIPv6.String(), "eth0"},
					{netns.ExtraIPv6.String(), "extra0"}} {
					p.Run(p.t, "", "ip", "address", "del", one[0]+"/64", "dev", one[1])
				}
			}},
		"the proxy's agent beside it": {run: []process{with(proxy, in("0a1b")),
			{Name: "pilot-agent", UID: 1337, GID: 1337, Container: "0a1b"}}},
		"a shell in the proxy's container": {run: []process{with(proxy, in("0a1b")),
			{Name: "sh", UID: 1337, GID: 1337, Container: "0a1b"}}},
		"a container that is told to be the proxy's": {run: []process{with(proxy, in("0a1b"))},
			change: func(p *pod) { p.ask.Proxy = "0e1f" },
			want:   []string{`process: "envoy"`}},
		"a proxy under another uid": {run: []process{with(proxy, as(1000, 1000))},
			want: []string{`loop: "envoy"`, "runs as uid 1000 and gid 1000, and the rules exempt uid 1337, gid 1337"}},
		"a proxy under another uid, unseen": {run: []process{with(proxy, as(1000, 1000))},
			change: func(p *pod) { p.ask.Proc = "" },
			want:   []string{"odd loop: uid 1000 listens on port 15001"}},
		"a proxy that is root, by its group": {run: []process{with(proxy, as(0, 1337))}},
		"TPROXY":                             {annotations: tproxy, run: []process{seeing}},
		"TPROXY, not transparent": {annotations: tproxy, run: []process{proxy},
			want: []string{"listener: port 15006 is not transparent: what enters is dropped"}},
		"TPROXY, nobody listens": {annotations: tproxy,
			run:  []process{with(seeing, func(p *process) { p.Listen = p.Listen[:1] })},
			want: []string{"listener: nobody listens on port 15006 (inbound): what enters is dropped"}},
		"TPROXY, the route is gone": {annotations: tproxy, run: []process{seeing},
			change: func(p *pod) { p.Run(p.t, "", "ip", "route", "flush", "table", "133") },
			want:   []string{"rules: ip route add local default dev lo table 133"}},
		"TPROXY, the rule for the mark is gone": {annotations: tproxy, run: []process{seeing},
			change: func(p *pod) { p.Run(p.t, "", "ip", "-6", "rule", "del", "fwmark", "1337") },
			want:   []string{"rules: ip -6 rule add fwmark 0x539 lookup 133"}},
		"the proxy's address on lo is gone": {run: []process{proxy},
			change: func(p *pod) { p.Run(p.t, "", "ip", "address", "del", "::6/128", "dev", "lo") },
			want:   []string{"rules: ip address add ::6/128 dev lo"}},
		"DNS": {env: dns, run: []process{with(proxy, hears("tcp :15053", "udp :15053"))}},
		"DNS, no UDP": {env: dns, run: []process{with(proxy, hears("tcp :15053"))},
			want: []string{"listener: port 15053 (DNS): the app's names are not resolved"}},
		"no rule is left": {run: []process{proxy},
			change: func(p *pod) { p.Run(p.t, "", "nft", "flush", "ruleset") },
			want:   []string{"rules: no rule in its network namespace redirects"}},
		"a chain was flushed": {run: []process{proxy},
			change: func(p *pod) {
				p.Run(p.t, "", "nft", "flush", "chain", "inet", "sidecar-cni", "ISTIO_INBOUND")
			},
			want: []string{"rules: its rules are not those that were recorded"}},
		"another pod's namespace": {run: []process{proxy},
			change: func(p *pod) { p.ask.Pod.Addrs = addrs("10.244.0.77") },
			want:   []string{"odd namespace: 10.244.0.77 is on no interface"}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, row.annotations, row.env)
			p.run(row.run...)
			if row.change != nil {
				row.change(p)
			}
			answer := p.look()
			wantFindings(t, answer, row.want)
			wrong := false
			for _, one := range row.want {
				wrong = wrong || !strings.HasPrefix(one, "odd ")
			}
			if answer.Amiss() != wrong {
				t.Errorf("amiss: %v, want %v", answer.Amiss(), wrong)
			}
		})
	}
}

// wantFindings wants those of the rows that begin with a kind; others are words of the one before.
func wantFindings(t *testing.T, a verify.Answer, rows []string) {
	t.Helper()
	at := -1
	for _, row := range rows {
		kind, words, ok := strings.Cut(strings.TrimPrefix(row, "odd "), ": ")
		if ok && !strings.Contains(kind, " ") {
			at++
		} else {
			kind, words = "", row
		}
		if at >= len(a.Findings) || at < 0 {
			t.Fatalf("findings %+v, want one of %q", a.Findings, row)
		}
		f := a.Findings[at]
		if kind != "" && (string(f.Kind) != kind || f.Wrong == strings.HasPrefix(row, "odd ")) {
			t.Errorf("finding %+v, want %q", f, row)
		}
		if !strings.Contains(f.What, words) || f.Wrong && f.Remedy == "" {
			t.Errorf("it lacks %q or a remedy: %q, %q", words, f.What, f.Remedy)
		}
	}
	if at+1 != len(a.Findings) {
		t.Errorf("findings %+v, want %q\n%s", a.Findings, rows, text(t, a))
	}
}
