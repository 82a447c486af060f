package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/othertools"
)

// injectedLines are command lines of injectors' templates.
var injectedLines = map[string]string{
	"Istio 1.6": `-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x "" -b * -d 15090,15021,15020`,
	"Istio 1.0": `-p 15001 -z 15001 -u 1337 -m REDIRECT -i * -x "" -b 80 -d ""`,
	"today's": `-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x "" -b * -d 15090,15021,15020
		--log_output_level=default:info`,
	"TPROXY": `-p 15001 -z 15006 -u 1337 -m TPROXY -i * -x "" -b * -d 15090,15021,15020`,
	"every flag of the contract": `-p 15001 -z 15006 -e 15008 -u 1337 -g 1337 -m REDIRECT
		-i 10.0.0.0/8,fd00::/8 -x 10.1.0.0/16 -b 80,443 -d 15090 -q 9000 -o 9001 -k vm0 -c extra0
		-t 1337 -r 133`,
}

// The lines run as they stand in templates, and leave what the plugin leaves for the same policy.
func TestInitRunsTheLinesOfTemplates(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	for name, line := range injectedLines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, other := netns.NewPod(t, netns.Options{}), netns.NewPod(t, netns.Options{})
			policy, err := initflags.Policy(words(line), nil, redirect.Defaults())
			if err != nil {
				t.Fatal(err)
			}
			apply(t, other.NS, redirect.Compile(policy))
			want := rulesIn(t, other.NS)
			for _, front := range []string{"", "init ", "istio-iptables ",
				"pilot-agent istio-iptables ", "init istio-iptables "} {
				got := initIn(t, pod.NS, netAdmin, nil, words(front+line)...)
				if got.code != 0 || got.stderr != "" {
					t.Fatalf("%s: %+v", front, got)
				}
				if diff := cmp.Diff(want, rulesIn(t, pod.NS)); diff != "" {
					t.Errorf("%s: what the kernel has (-plugin +init):\n%s", front, diff)
				}
				line := front + line + " --run-validation --skip-rule-apply"
				for _, u := range []user{proxyUser, appUser} {
					got := initIn(t, pod.NS, u, nil, words(line)...)
					if got.code != 0 || !strings.HasPrefix(got.stdout, "all ") {
						t.Errorf("%s as uid %d: %+v", front, u.uid, got)
					}
				}
				initIn(t, pod.NS, netAdmin, nil, words(front+line+" --cleanup-only")...)
			}
		})
	}
}

func TestInitTwiceIsOnce(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	const line = "-i * -b * -m TPROXY"
	step := func(line string, code int, want string) {
		t.Helper()
		got := initIn(t, pod.NS, netAdmin, nil, words(line)...)
		if got.code != code || !strings.Contains(got.stdout+got.stderr, want) {
			t.Errorf("%s: %+v, want %d and %q", line, got, code, want)
		}
	}
	clean := rulesIn(t, pod.NS)
	step(line+" --run-validation --skip-rule-apply", 126, "not redirected as they should be")
	step(line+" -n", 0, "table inet sidecar-cni {")
	if diff := cmp.Diff(clean, rulesIn(t, pod.NS)); diff != "" {
		t.Errorf("--dry-run wrote (-before +after):\n%s", diff)
	}
	step(line, 0, "written and read back")
	first := rulesIn(t, pod.NS)
	step(line, 0, "there already")
	step(line+" --force-apply", 0, "in place of others")
	step(line+" --reconcile --native-nftables --dual-stack --run-validation", 0, "all ")
	if diff := cmp.Diff(first, rulesIn(t, pod.NS)); diff != "" {
		t.Errorf("several times is not once (-once +twice):\n%s", diff)
	}
	step("-i 10.0.0.0/8 -b 80 -m TPROXY", 0, "in place of others")
	if diff := cmp.Diff(first, rulesIn(t, pod.NS)); diff == "" {
		t.Error("other flags changed nothing")
	}
	step(line+" --cleanup-only", 0, "rules removed")
	step(line+" --cleanup-only", 0, "rules not there")
	if diff := cmp.Diff(clean, rulesIn(t, pod.NS)); diff != "" {
		t.Errorf("--cleanup-only left something (-before +after):\n%s", diff)
	}
}

// Of the routing nothing is left that an earlier mode needed, by whatever flags it goes.
func TestInitLeavesNoRoutingBehind(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	clean := rulesIn(t, pod.NS)
	redirected := func(line string) string {
		if got := initIn(t, pod.NS, netAdmin, nil, words(line)...); got.code != 0 {
			t.Errorf("%s: %+v", line, got)
		}
		return rulesIn(t, pod.NS)
	}
	want := redirected("-i * -b *")
	redirected("-i * -b * -m TPROXY")
	if diff := cmp.Diff(want, redirected("-i * -b *")); diff != "" {
		t.Errorf("REDIRECT after TPROXY (-by itself +after):\n%s", diff)
	}
	for _, line := range []string{"--cleanup-only", "--cleanup-only -m TPROXY"} {
		redirected("-i * -b * -m TPROXY")
		if diff := cmp.Diff(clean, redirected(line)); diff != "" {
			t.Errorf("%s left something (-before +after):\n%s", line, diff)
		}
	}
}

var comments = regexp.MustCompile(`(?m)^#.*`)

// Rules of istio-init itself, however it wrote them, are not ours to replace or to remove, nor is
// what they need. An image need not have the programs that wrote them.
func TestInitLeavesRulesOfAnotherTool(t *testing.T) {
	t.Parallel()
	for program, text := range map[string]string{"iptables-nft-restore": othertools.IstioInit,
		"iptables-legacy-restore": othertools.IstioInit, "nft -f -": othertools.IstioNFT} {
		pod := netns.NewPod(t, netns.Options{})
		command := strings.Fields(program)
		pod.Run(t, text, command[0], command[1:]...)
		pod.Run(t, "", "ip", "-6", "address", "add", "::6/128", "dev", "lo")
		pod.Run(t, "", "ip", "rule", "add", "fwmark", "1337", "lookup", "133")
		save := func() string {
			legacy := pod.Run(t, "", "iptables-legacy-save")
			return rulesIn(t, pod.NS) + comments.ReplaceAllString(legacy, "")
		}
		before := save()
		for _, line := range []string{"-i * -b *", "-i * -b * --reconcile", "-i * --force-apply",
			"-i * -b * -m TPROXY --cleanup-only"} {
			got := initIn(t, pod.NS, netAdmin, []string{"PATH=/nonexistent"}, words(line)...)
			if got.code != 1 || !strings.Contains(got.stderr, "rules of another tool") ||
				!strings.Contains(strings.ToLower(got.stderr), ": chain istio") {
				t.Errorf("%s, %s: %+v", program, line, got)
			}
		}
		if diff := cmp.Diff(before, save()); diff != "" {
			t.Errorf("%s: they were changed (-before +after):\n%s", program, diff)
		}
	}
}

// What a container lacks is named: not what it has.
func TestInitNamesTheCapabilityThatLacks(t *testing.T) {
	t.Parallel()
	pod, other := netns.NewPod(t, netns.Options{}), netns.NewPod(t, netns.Options{})
	file := filepath.Join(t.TempDir(), "netns") // as `ip netns` has one
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(other.Path(), file, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
	const needs = "needs the capability "
	for _, row := range []struct {
		who        user
		line, want string
	}{
		{user{0, 0, ""}, "-i *", needs + "NET_ADMIN\n"},
		{user{1000, 1000, ",+net_admin"}, "-i *", needs + "NET_ADMIN, and runAsUser 0\n"},
		{netAdmin, "-i * --network-namespace " + file, needs + "SYS_ADMIN\n"},
		{user{0, 0, ""}, "-i * --run-validation --skip-rule-apply --network-namespace " + file,
			needs + "SYS_ADMIN\n"},
	} {
		got := initIn(t, pod.NS, row.who, nil, words("init "+row.line)...)
		if got.code != 1 || !strings.HasSuffix(got.stderr, row.want) {
			t.Errorf("%+v: %+v", row, got)
		}
	}
}

// What is told to no effect is warned about.
func TestInitWarns(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ variable, line, want string }{
		{"ISTIO_META_DNS_CAPTURE=on", "", `ISTIO_META_DNS_CAPTURE: "on" counts as false: want true or false`},
		{"DRY_RUN=yes", "-n", ""}, // the command line wins
		{"SKIP_RULE_APPLY=yes", "", `SKIP_RULE_APPLY: "yes" counts as false: want true or false`},
		{"", "--capture-all-dns", "--capture-all-dns has no effect without --redirect-dns"},
		{"CAPTURE_ALL_DNS=true", "", "CAPTURE_ALL_DNS has no effect without --redirect-dns"},
		{"", "--capture-all-dns --redirect-dns", ""},
	} {
		got := initIn(t, netns.NewPod(t, netns.Options{}).NS, netAdmin, []string{row.variable},
			words("init -n "+row.line)...)
		want := ""
		if row.want != "" {
			want = "sidecarctl: " + row.want + "\n"
		}
		if got.code != 0 || got.stderr != want {
			t.Errorf("%+v: %+v", row, got)
		}
	}
}

func TestInitByIptables(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"nft", "legacy"} {
		pod := netns.NewPod(t, netns.Options{})
		line := "-i * -b * --force-iptables-binary " + variant
		for _, want := range []string{"written and read back", "there already"} {
			got := initIn(t, pod.NS, user{0, 0, ",+net_admin,+net_raw"}, nil, words(line)...)
			if got.code != 0 || !strings.Contains(got.stdout, want) {
				t.Errorf("%s: %+v, want %s", line, got, want)
			}
		}
		line += " --skip-rule-apply --run-validation"
		if got := initIn(t, pod.NS, proxyUser, nil, words(line)...); got.code != 0 {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func TestInitInAnotherNamespace(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	line := "-i * -b * --cni-mode --run-validation --network-namespace " + pod.Path()
	out, stderr, code := run(t.Context(), "", append([]string{"init"}, words(line)...)...)
	if code != 0 || stderr != "" || !strings.Contains(out, "10.244.0.2:15002") {
		t.Errorf("%d, %s, %s", code, out, stderr)
	}
}

// A pod with hostNetwork is in the namespace of its node.
func TestInitRefusesTheNamespaceOfTheNode(t *testing.T) {
	t.Parallel()
	node := netns.NewPod(t, netns.Options{})
	node.Run(t, "add table ip mangle; add chain ip mangle KUBE-KUBELET-CANARY", "nft", "-f", "-")
	before := rulesIn(t, node.NS)
	for _, line := range []string{"-i * -b *", "-i * --cleanup-only", "-i * --run-validation"} {
		got := initIn(t, node.NS, netAdmin, nil, words(line)...)
		for _, want := range []string{"host's network namespace", "KUBE-KUBELET-CANARY",
			"--network-namespace"} {
			if got.code != 1 || !strings.Contains(got.stderr, want) {
				t.Errorf("%s: %+v, want %s", line, got, want)
			}
		}
	}
	if diff := cmp.Diff(before, rulesIn(t, node.NS)); diff != "" {
		t.Errorf("it changed something (-before +after):\n%s", diff)
	}
}

// Killed at any moment it has written all or nothing of the rules, and the next run works.
func TestInitCanBeKilled(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	line := words("-i * -b * -m TPROXY --redirect-dns --capture-all-dns")
	policy, err := initflags.Policy(line, nil, redirect.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		cmd, _, _ := initCommandIn(t, netAdmin, nil, line)
		pod.Do(t, func() { err = cmd.Start() })
		if err != nil {
			t.Fatal(err)
		}
		kill := func() { _ = cmd.Process.Kill() }
		timer := time.AfterFunc(time.Duration(i)*2*time.Millisecond, kill)
		_ = cmd.Wait() // it was killed, or was faster
		timer.Stop()
		problems := problemsIn(t, pod.NS, redirect.Compile(policy))
		whole := pod.Run(t, "", "nft", "list", "tables")
		if len(problems) > 0 && strings.Contains(whole, "sidecar-cni") {
			t.Fatalf("killed after %d ms it left a part: %v", 2*i, problems)
		}
		if got := initIn(t, pod.NS, netAdmin, nil, line...); got.code != 0 {
			t.Fatalf("after it was killed: %+v", got)
		}
		if problems := problemsIn(t, pod.NS, redirect.Compile(policy)); len(problems) > 0 {
			t.Fatalf("after it was killed and run again: %v", problems)
		}
		initIn(t, pod.NS, netAdmin, nil, append(line, "--cleanup-only")...)
	}
}

// What people give it, and what it says: one line with a remedy, and nothing is written.
func TestInitRefusesBadInput(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	clean := rulesIn(t, pod.NS)
	for _, row := range []struct {
		args []string
		env  string
		want string
		code int
	}{
		{[]string{"-x", "-b", "*"}, "", `"*" stands alone: want -flag value; quote an asterisk`, 2},
		{[]string{"-i", "bin", "etc"}, "", `"etc" stands alone`, 2},
		{[]string{"-n", "false"}, "", `"false" stands alone: -n takes no value but as -n=false`, 2},
		{[]string{"--dry-run", "x"}, "", `--dry-run takes no value but as --dry-run=false`, 2},
		{[]string{"-t", "0x539"}, "", `-t: "0x539": want a number from 1 to 4294967294, in decimal`, 2},
		{[]string{"-r", "0"}, "", `-r: "0": want a number from 1`, 2},
		{[]string{"--cleanup-only", "-n"}, "", "contradict each other", 2},
		{[]string{"-i", "bin"}, "", `-i: "bin": want a CIDR`, 2},
		{[]string{"-p"}, "", `flag "-p" has no value`, 2},
		{[]string{"-p", "65536"}, "", `-p: "65536": want a port`, 2},
		{[]string{"-b", "0,70000"}, "", `-b: "70000": want a port`, 2},
		{[]string{"--iptables-probe-port", "0"}, "", `"0": want a port from 1 to 65535`, 2},
		{nil, "IPTABLES_PROBE_PORT=x", `IPTABLES_PROBE_PORT: "x": want a port`, 2},
		{nil, "PROBE_TIMEOUT=5", `PROBE_TIMEOUT: "5": want a duration such as 5s`, 2},
		{[]string{"--probe-timeout=-1s"}, "", `"-1s": want a duration`, 2},
		{[]string{"--nonesuch"}, "", `unknown flag "--nonesuch": see sidecarctl init --help`, 2},
		{[]string{"-m", "NONE"}, "", `want REDIRECT or TPROXY`, 2},
		{[]string{"-m", "TPROXY", "-t", "1338"}, "", "want another mark", 2},
		{[]string{"-m", "TPROXY", "-r", "254"}, "", "want a routing table other than", 2},
		{[]string{"--cleanup-only", "--run-validation"}, "", "contradict each other", 2},
		{[]string{"--cleanup-only", "--skip-rule-apply"}, "", "contradict each other", 2},
		{[]string{"--cleanup-only", "--force-apply"}, "", "contradict each other", 2},
		{[]string{"--skip-rule-apply"}, "FORCE_APPLY=true", "contradict each other", 2},
		{[]string{"--native-nftables"}, "FORCE_IPTABLES_BINARY=nft", "contradict each other", 2},
		{[]string{"--force-iptables-binary", "x"}, "", `"x": want nft or legacy`, 2},
		{[]string{"--cni-mode"}, "", "want --network-namespace, too", 2},
		{[]string{"--network-namespace", "/nowhere"}, "", "read /nowhere: no such file", 1},
		{[]string{"--network-namespace", "/tmp"}, "", "it is no namespace", 1},
		{[]string{"a\x1b[31m"}, "", `"a\x1b[31m" stands alone`, 2},
	} {
		args := append([]string{"init"}, row.args...)
		got := initIn(t, pod.NS, netAdmin, []string{row.env}, args...)
		if got.code != row.code || !strings.Contains(got.stderr, row.want) ||
			strings.Count(got.stderr, "\n") != 1 || got.stdout != "" {
			t.Errorf("%.80q %s: %+v, want %d and %s", row.args, row.env, got, row.code, row.want)
		}
	}
	got := initIn(t, pod.NS, proxyUser, nil, "init", "-b", "*")
	if got.code != 1 || !strings.Contains(got.stderr, "needs the capability NET_ADMIN") {
		t.Errorf("without capabilities: %+v", got)
	}
	if diff := cmp.Diff(clean, rulesIn(t, pod.NS)); diff != "" {
		t.Errorf("something was written (-before +after):\n%s", diff)
	}
}

func TestInitRefusesMoreRulesThanAPodMayHave(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range redirect.MaxRules {
		all = append(all, fmt.Sprintf("1.%d.%d.0/25", i>>8, i&255))
	}
	_, stderr, code := run(t.Context(), "", "init", "-n", "-i", strings.Join(all, ","))
	if code != exitUsage || !strings.Contains(stderr, "at most 10240 are possible: want shorter") {
		t.Errorf("%d, %s", code, stderr)
	}
}

func TestInitHelps(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"init --help", "istio-iptables -h", "init -p 1 --help"} {
		out, stderr, code := run(t.Context(), "", strings.Fields(line)...)
		if code != 0 || stderr != "" || !strings.Contains(out, "--run-validation") ||
			!strings.Contains(out, "-p, --envoy-port") {
			t.Errorf("%s: %d, %s, %s", line, code, out, stderr)
		}
	}
}

// A flag before the name of another command is that one's.
func TestFlagsAloneAreThoseOfInit(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"-n shop explain":             "want a target",
		"-i etc home":                 "read the flags of istio-init",
		"--nonesuch":                  "unknown flag: --nonesuch",
		"pilot-agent proxy sidecar":   "stands alone",
		"istio-iptables -p 1 explain": "stands alone",
	} {
		_, stderr, code := run(t.Context(), "", strings.Fields(line)...)
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d, %s, want %s", line, code, stderr, want)
		}
	}
}
