package initcontainer

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
)

var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

const manyNameservers = "# by the kubelet\nsearch svc.cluster.local\nnameserver 10.96.0.10\n" +
	"nameserver fd00::a%eth0\nnameserver ::ffff:10.96.0.11\nnameserver\noptions edns0\nnameserver dns.example\n" +
	"options ndots:5\nnameservers 10.0.0.1\n"

// What is redirected is what package initflags says, but for the nameservers.
func TestThePolicyIsThatOfTheFlags(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"", "-p 1 -z 2 -e 3 -u 4 -g 5", "-i * -b * -d 80,90", "-i 10.0.0.0/8 -x 10.1.0.0/16 -q 1 -o 2",
		"-m TPROXY -t 5 -r 6 -b 80", "-k vm0 -c eth1 --drop-invalid", "--redirect-dns --capture-all-dns",
		"--redirect-dns", "--reconcile --run-validation --force-apply",
	} {
		args := strings.Fields(line)
		env := map[string]string{"ISTIO_OUTBOUND_OWNER_GROUPS": "7,8"}
		want, err := initflags.Policy(args, env, redirect.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(args, env, manyNameservers)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if line == "--redirect-dns" {
			want.DNS = redirect.DNS{Capture: true, Servers: []netip.Addr{
				netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("10.96.0.11"),
				netip.MustParseAddr("fd00::a")}}
		}
		if diff := cmp.Diff(want, got.Policy, byValue); diff != "" {
			t.Errorf("%s (-flags +init):\n%s", line, diff)
		}
	}
}

func TestNameserversAreThoseOfTheContainer(t *testing.T) {
	t.Parallel()
	args := []string{"--redirect-dns"}
	got, err := Read(args, nil, manyNameservers)
	if err != nil || len(got.Warnings) > 0 {
		t.Fatal(got.Warnings, err)
	}
	want := []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::a"),
		netip.MustParseAddr("10.96.0.11")}
	if diff := cmp.Diff(want, got.Nameservers, byValue); diff != "" {
		t.Errorf("nameservers (-want +got):\n%s", diff)
	}
	for _, empty := range []string{"", "search x\n", "nameserver ns.example"} {
		got, err := Read(args, nil, empty)
		if err != nil || !got.Policy.DNS.Everywhere || len(got.Warnings) != 1 {
			t.Errorf("%q: %+v, %v, want all of port 53, and a warning", empty, got, err)
		}
	}
	got, err = Read(append(args, "--capture-all-dns"), nil, "")
	if err != nil || !got.Policy.DNS.Everywhere || len(got.Warnings) > 0 {
		t.Errorf("asked for all: %+v, %v, want no warning", got, err)
	}
}

func TestWhoIsTheProxyIsWarnedAbout(t *testing.T) {
	t.Parallel()
	got, err := Read([]string{"-u", "0,1337"}, nil, "")
	if err != nil || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "uid is 0") {
		t.Errorf("%+v, %v", got.Warnings, err)
	}
}

func TestWhatWritesTheRules(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                               redirect.NFTables,
		"--native-nftables":              redirect.NFTables,
		"--force-iptables-binary nft":    redirect.IptablesNFT,
		"--force-iptables-binary legacy": redirect.IptablesLegacy,
	} {
		o, err := Read(strings.Fields(line), nil, "")
		if err != nil || o.Backend() != want {
			t.Errorf("%s: %s, %v, want %s", line, o.Backend(), err, want)
		}
	}
}
