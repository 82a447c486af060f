package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/initcontainer"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// What it says of a rule that is gone: the path, where it should end, and where it ended.
func TestValidationNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	line := words("init -i * -b * --redirect-dns --capture-all-dns")
	for where, want := range map[string]string{
		"nat ISTIO_OUTPUT 2 IPv4": "TCP to 10.244.0.2:15002, the pod's own address " +
			"want arrives at 127.0.0.1:15006; seen: arrives at 10.244.0.2:15002",
		"nat ISTIO_OUTPUT 2 IPv6": "TCP from ::1 to [::6]:15002, the address from which the proxy " +
			"calls the app want arrives at [::1]:15006; seen: connection refused",
		"nat ISTIO_OUTPUT_DNS 1": "TCP to 192.0.2.7:53, name service want arrives at " +
			"127.0.0.1:15053; seen: arrives at 127.0.0.1:15001",
		"nat ISTIO_OUTPUT_DNS 2": "UDP to [2001:db8::7]:53, name service want arrives at " +
			"[::1]:15053, answered from [::1]:15053; seen: somebody else answers, from " +
			"[2001:db8::7]:53",
		"raw OUTPUT 5": "UDP to 192.0.2.7:53, name service want arrives at 127.0.0.1:15053, " +
			"answered from 127.0.0.1:15053; seen: arrives at 127.0.0.1:15053, answered from " +
			"192.0.2.7:53",
		"nat ISTIO_REDIRECT 1": "TCP to 192.0.2.7:80, somebody outside want arrives at " +
			"127.0.0.1:15001; seen: somebody else gets it",
	} {
		initIn(t, pod.NS, netAdmin, nil, append(line, "--force-apply")...)
		policy, err := initflags.Policy(line[1:], nil, redirect.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		place := linesOf(redirect.Compile(policy))[where]
		pod.Run(t, "", "nft", "delete", "rule", "inet", nftables.TableName, place.chain, "handle",
			handlesIn(t, pod.NS)[place.chain][place.line])
		who := appUser
		if strings.HasPrefix(where, "nat ISTIO_OUTPUT 2") {
			who = proxyUser
		}
		got := initIn(t, pod.NS, who, nil, append(line, "--skip-rule-apply", "--run-validation",
			"--probe-timeout", "2s")...)
		if got.code != 126 || !strings.Contains(oneSpaced(got.stdout), want) ||
			got.stderr != "sidecarctl: "+errInvalid.Error()+"\n" {
			t.Errorf("without %s: %+v\nwant %s", where, got, want)
		}
	}
}

// Where somebody listens, nothing can be said about who got the connection.
func TestValidationNamesWhatItCannotTry(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	line := words("-i * -b * --run-validation")
	pod.Listen(t, netns.Listener{Who: "proxy", TCP: []uint16{15006}})
	initIn(t, pod.NS, netAdmin, nil, line...)
	got := initIn(t, pod.NS, proxyUser, nil, append(line, "--skip-rule-apply")...)
	for _, want := range []string{"somebody listens on 127.0.0.1:15006 already",
		"nat ISTIO_IN_REDIRECT 1", "could not be tried:"} {
		if got.code != 126 || !strings.Contains(oneSpaced(got.stdout), want) {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	pod.Listen(t, netns.Listener{Who: "all", TCP: []uint16{15001, 15002, 15008}})
	got = initIn(t, pod.NS, proxyUser, nil, append(line, "--skip-rule-apply")...)
	if got.code != 126 || !strings.Contains(got.stdout, "no path could be tried") {
		t.Errorf("nothing can be tried: %+v", got)
	}
}

// In a pod without rules there may be nothing to try that shows it: that is no reason to call them
// right.
func TestValidationOfAPodWithoutRules(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		who      user
		line     string
		listener []uint16
		change   string // of ip's command line
		want     string
	}{
		"the inbound port is taken":  {who: proxyUser, listener: []uint16{15006}},
		"the outbound port is taken": {who: appUser, listener: []uint16{15001}},
		"no default route":           {who: appUser, change: "route del default"},
		"a port below 1024":          {who: proxyUser, line: "-z 81"},
		"no address": {who: appUser, change: "link del eth0",
			want: "no address but those of lo: nothing can be tried"},
	} {
		pod := netns.NewPod(t, netns.Options{IPv6Disabled: true})
		if row.want == "" {
			row.want = "nothing that could be tried shows that connections are redirected"
		}
		if row.listener != nil {
			pod.Listen(t, netns.Listener{Who: "proxy", TCP: row.listener})
		}
		if row.change != "" {
			pod.Run(t, "", "ip", strings.Fields(row.change)...)
		}
		if name == "no address" {
			pod.Run(t, "", "ip", "link", "del", "extra0")
		}
		line := words("init -i * -b * --run-validation --skip-rule-apply " + row.line)
		got := initIn(t, pod.NS, row.who, nil, line...)
		if got.code != 126 || !strings.Contains(got.stderr, row.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func oneSpaced(text string) string { return strings.Join(strings.Fields(text), " ") }

// In each family in which the pod has an address it is tried what is true there.
func TestValidationByFamily(t *testing.T) {
	t.Parallel()
	const line = "-i * -b * --run-validation"
	for name, row := range map[string]struct {
		options        netns.Options
		change         string // of ip's command line
		want, unwanted string
		code           int
	}{
		"both":      {want: "[fd00:244::2]:15002"},
		"IPv4":      {netns.Options{IPv6Disabled: true}, "", "10.244.0.2:15002", "[fd00", 0},
		"IPv6":      {change: "address flush dev eth0 scope global", want: "[::1]:15006", unwanted: "10.244.0.2"},
		"no ::6":    {change: "address del ::6/128 dev lo", want: "to [::6]:15002", code: 126},
		"lo down":   {change: "link set lo down", want: "127.0.0.1:15002", code: 126},
		"no routes": {change: "route flush dev eth0", want: "somebody outside: no route"},
	} {
		pod := netns.NewPod(t, row.options)
		if name == "IPv6" {
			pod.Run(t, "", "ip", "-4", "address", "flush", "dev", "eth0")
			pod.Run(t, "", "ip", "-4", "address", "flush", "dev", "extra0")
			row.change = ""
		}
		initIn(t, pod.NS, netAdmin, nil, words("init "+line)...)
		if row.change != "" {
			pod.Run(t, "", "ip", strings.Fields(row.change)...)
		}
		for _, u := range []user{proxyUser, appUser} {
			if row.code != 0 && u != proxyUser {
				continue
			}
			timeout := "30s"
			if row.code != 0 { // something does not arrive
				timeout = "1s"
			}
			got := initIn(t, pod.NS, u, nil,
				append(words("init --skip-rule-apply "+line), "--probe-timeout", timeout)...)
			text := oneSpaced(got.stdout)
			if got.code != row.code || !strings.Contains(text, row.want) && u == proxyUser ||
				row.unwanted != "" && strings.Contains(text, row.unwanted) {
				t.Errorf("%s as uid %d: %+v", name, u.uid, got)
			}
		}
	}
}

// situation is a policy, and who validates it.
type situation struct {
	line string
	env  string
	who  user
}

var situations = map[string]situation{
	"the proxy": {"-i * -b * -d 15090,15021,15020", "", proxyUser},
	"the app":   {"-i * -b * -d 15090,15021,15020", "", appUser},
	"the app, with name service": {"-i * -b * --redirect-dns --capture-all-dns", "",
		user{1000, 1000, ",+net_bind_service"}},
	"the app, with its nameservers": {"-i * -b * --redirect-dns", "", appUser},
	"the proxy, with name service": {"-i * -b * --redirect-dns --capture-all-dns", "",
		proxyUser},
	"root, with name service": {"-i * -b * --redirect-dns --capture-all-dns", "",
		user{0, 0, ",+net_bind_service"}},
	"the app, with lists": {"-i 10.0.0.0/8,fd00::/8 -x 10.1.0.0/16 -b 80 -q 9000 -o 5432,5433",
		"", appUser},
	"the proxy, with lists": {"-i 10.0.0.0/8,fd00::/8 -b 80 -q 9000 -o 5432", "",
		proxyUser},
	"the proxy, TPROXY": {"-i * -b * -m TPROXY --drop-invalid --redirect-dns --capture-all-dns",
		"", proxyUser},
	"the app, TPROXY":              {"-i * -b * -m TPROXY --drop-invalid", "", appUser},
	"the app, no inbound":          {"-i *", "", appUser},
	"nothing captured":             {"", "", appUser},
	"the app, captured loopback":   {"-i 127.0.0.0/8,0.0.0.0/0 -b *", "", appUser},
	"the proxy, captured loopback": {"-i 127.0.0.0/8 -b *", "", proxyUser},
	"a group of the proxy":         {"-i * -b * -u 1337 -g 2000", "", user{3000, 2000, ""}},
	"an excluded group":            {"-i * -b *", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=1000", appUser},
	"an included group":            {"-i * -b *", "ISTIO_OUTBOUND_OWNER_GROUPS=1000", appUser},
	"excluded interfaces":          {"-i * -b * -c extra0,eth0", "", appUser},
	"several proxies":              {"-i * -b * -u 1337,1338 -g 1337", "", user{1338, 1338, ""}},
	"a wide loopback":              {"-i * -b *", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=127.0.0.0/8", appUser},
}

// Each line of the rules in its turn is deleted: then validation fails, unless it has said that the
// line is not among those that it tries.
func TestValidationMissesEachRuleThatItTries(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	for name, s := range situations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := netns.NewPod(t, netns.Options{})
			env := map[string]string{}
			if key, value, ok := strings.Cut(s.env, "="); ok {
				env[key] = value
			}
			servers, err := os.ReadFile(resolvConf)
			if err != nil {
				t.Fatal(err)
			}
			o, err := initcontainer.Read(words(s.line), env, string(servers))
			if err != nil {
				t.Fatal(err)
			}
			rules := redirect.Compile(o.Policy)
			apply(t, pod.NS, rules)
			line := words("init --run-validation --skip-rule-apply " + s.line)
			whole := initIn(t, pod.NS, s.who, []string{s.env}, line...)
			if whole.code != 0 {
				t.Fatalf("with all rules: %+v", whole)
			}
			listed, lines := untestedLines(whole.stdout), linesOf(rules)
			handles := handlesIn(t, pod.NS)
			port := 20_000
			for where, place := range lines {
				// Connection tracking sends what comes from the same port soon after the same way,
				// whatever the rules are by then: each run has ports of its own.
				port += 400
				pod.Run(t, "", "sysctl", "-qw",
					fmt.Sprintf("net.ipv4.ip_local_port_range=%d %d", port, port+399))
				pod.Run(t, "", "nft", "delete", "rule", "inet", nftables.TableName, place.chain,
					"handle", handles[place.chain][place.line])
				want, timeout := 126, "300ms"
				if slices.Contains(listed, where) {
					want, timeout = 0, "30s"
				}
				got := initIn(t, pod.NS, s.who, []string{s.env},
					append(line, "--probe-timeout", timeout)...)
				if got.code != want {
					t.Errorf("without %s: ended with %d, want %d:\n%s%s", where, got.code, want,
						got.stdout, got.stderr)
				}
				apply(t, pod.NS, rules)
				handles = handlesIn(t, pod.NS)
			}
		})
	}
}

// These are the lines of the usual pod that istio-validation tries.
func TestWhatValidationOfTheUsualPodTries(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	for who, want := range map[user]string{
		proxyUser: "nat ISTIO_IN_REDIRECT 1, nat ISTIO_OUTPUT 1 IPv4, nat ISTIO_OUTPUT 1 IPv6, " +
			"nat ISTIO_OUTPUT 2 IPv4, nat ISTIO_OUTPUT 2 IPv6, nat OUTPUT 1",
		appUser: "nat ISTIO_OUTPUT 4, nat ISTIO_OUTPUT 7, nat ISTIO_REDIRECT 1, nat OUTPUT 1",
	} {
		s := situations["the proxy"]
		initIn(t, pod.NS, netAdmin, nil, words("init "+s.line)...)
		got := initIn(t, pod.NS, who, nil,
			words("init --run-validation --skip-rule-apply "+s.line)...)
		policy, err := initflags.Policy(words(s.line), nil, redirect.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		listed := untestedLines(got.stdout)
		var tried []string
		for where := range linesOf(redirect.Compile(policy)) {
			if !slices.Contains(listed, where) {
				tried = append(tried, where)
			}
		}
		slices.Sort(tried)
		if diff := cmp.Diff(want, strings.Join(tried, ", ")); diff != "" {
			t.Errorf("uid %d tries (-want +got):\n%s", who.uid, diff)
		}
	}
}

var untestedLine = regexp.MustCompile(`(?m)^  ((?:raw|mangle|nat) \S+ \d+(?: IPv[46])?)  `)

func untestedLines(report string) []string {
	var all []string
	_, list, _ := strings.Cut(report, "rules that no tried path depends on:")
	for _, match := range untestedLine.FindAllStringSubmatch(list, -1) {
		all = append(all, match[1])
	}
	return all
}

// kernelLine is a line of a chain as nft lists it.
type kernelLine struct {
	chain string
	line  int
}

// linesOf are the lines of rules in the kernel, by the names that reports give them.
func linesOf(rules redirect.Ruleset) map[string]kernelLine {
	all := map[string]kernelLine{}
	for _, c := range rules.Chains {
		name, line := c.Name, 0
		if c.Hook != redirect.NoHook {
			name = c.Table.String() + "_" + strings.ToLower(c.Name)
		}
		add := func(where string) {
			all[where] = kernelLine{name, line}
			line++
		}
		for i, r := range c.Rules {
			where := c.Table.String() + " " + c.Name + " " + strconv.Itoa(i+1)
			if len(r.If.Source.Prefixes)+len(r.If.Destination.Prefixes) == 0 {
				add(where)
				continue
			}
			for _, f := range redirect.Families {
				if _, possible := r.If.For(f); possible {
					add(where + " " + f.String())
				}
			}
		}
	}
	return all
}

var handle = regexp.MustCompile(`# handle (\d+)$`)

// handlesIn are the handles of the lines of each chain.
func handlesIn(t *testing.T, n *netns.NS) map[string][]string {
	t.Helper()
	all, chain := map[string][]string{}, ""
	text := n.Run(t, "", "nft", "-a", "list", "table", "inet", nftables.TableName)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		number := handle.FindStringSubmatch(line)
		switch fields := strings.Fields(line); {
		case number == nil || fields[0] == "table":
		case fields[0] == "chain":
			chain = fields[1]
		default:
			all[chain] = append(all[chain], number[1])
		}
	}
	return all
}
