package initflags

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// words splits a command line; "" is an empty word.
func words(line string) []string {
	all := strings.Fields(line)
	for i, w := range all {
		if w == `""` {
			all[i] = ""
		}
	}
	return all
}

// injected is the policy of what the injector's template makes of a pod that asks for nothing.
func injected() redirect.Policy {
	p := redirect.Defaults().Basis()
	p.Mode, p.Groups.All, p.Loopback = redirect.ModeRedirect, true, netip.MustParsePrefix("127.0.0.1/32")
	p.Inbound = redirect.Inbound{All: true, ExcludePorts: []uint16{15020, 15021, 15090}}
	p.Outbound = redirect.Outbound{All: true}
	return p
}

// The command lines of the injector's templates, and those that were published with their rules.
func TestTheInjectorsCommandLines(t *testing.T) {
	t.Parallel()
	const usual = `-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x "" -b * -d 15090,15021,15020 `
	for name, row := range map[string]struct {
		line string
		set  func(*redirect.Policy)
	}{
		"published, Istio 1.6": {usual, func(*redirect.Policy) {}},
		"published, Istio 1.0": {
			`-p 15001 -z 15001 -u 1337 -m REDIRECT -i * -x "" -b 80 -d ""`,
			func(p *redirect.Policy) {
				p.Ports.Inbound, p.Inbound = 15001, redirect.Inbound{Ports: []uint16{80}}
			},
		},
		"by the image's entry point": {
			"istio-iptables " + usual + "--log_output_level=default:info", func(*redirect.Policy) {},
		},
		"rules are another's": {
			"istio-iptables " + usual + "--log_as_json --run-validation --skip-rule-apply",
			func(*redirect.Policy) {},
		},
		"backends": {usual + "--force-apply --native-nftables", func(*redirect.Policy) {}},
		"another user of the proxy": {
			`-p 15001 -z 15006 -u 1000700000 -m TPROXY -i * -x "" -b * -d 15090,15021,15020`,
			func(p *redirect.Policy) {
				p.Mode = redirect.ModeTProxy
				p.Proxy = redirect.Identity{UIDs: []uint32{1000700000}, GIDs: []uint32{1000700000}}
			},
		},
		"all there is": {
			`pilot-agent istio-iptables -p15002 -z=15007 -e 15009 -u 2 -g 3 -m REDIRECT
			-i 10.0.0.0/8,2001:db8::/32 -x 10.1.0.0/16 -b 80,443 -d 15090 -q 9000 -o 9001
			-k vm0 -c eth1 -t 5 -r 6 --redirect-dns --drop-invalid=true --dual-stack`,
			func(p *redirect.Policy) {
				p.Ports.Outbound, p.Ports.Inbound, p.Ports.Tunnel = 15002, 15007, 15009
				p.Proxy = redirect.Identity{UIDs: []uint32{2}, GIDs: []uint32{3}}
				p.Inbound.All = false
				p.Inbound.Ports, p.Inbound.ExcludePorts = []uint16{80, 443}, []uint16{15090}
				p.Outbound = redirect.Outbound{
					CIDRs:        prefixes("10.0.0.0/8", "2001:db8::/32"),
					ExcludeCIDRs: prefixes("10.1.0.0/16"),
					Ports:        []uint16{9000}, ExcludePorts: []uint16{9001},
				}
				p.VirtualInterfaces, p.ExcludeInterfaces = []redirect.Interface{"vm0"}, []redirect.Interface{"eth1"}
				p.Marks.TProxy, p.Marks.Table = 5, 6
				p.DNS, p.DropInvalid = redirect.DNS{Capture: true, Everywhere: true}, true
			},
		},
	} {
		want := injected()
		row.set(&want)
		got, err := Policy(words(row.line), nil, redirect.Defaults())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got, byValue); diff != "" {
			t.Errorf("%s: policy (-want +got):\n%s", name, diff)
		}
	}
}

// istio-init reads every flag from a variable too, but for the first.
func TestVariablesStandInForFlags(t *testing.T) {
	t.Parallel()
	got, err := Policy(nil, map[string]string{
		"ENVOY_PORT":                          "1",
		"INBOUND_CAPTURE_PORT":                "2",
		"INBOUND_TUNNEL_PORT":                 "3",
		"PROXY_UID":                           "4",
		"PROXY_GID":                           "5",
		"ISTIO_INBOUND_INTERCEPTION_MODE":     "TPROXY",
		"ISTIO_SERVICE_CIDR":                  "10.0.0.0/8",
		"ISTIO_SERVICE_EXCLUDE_CIDR":          "10.1.0.0/16",
		"ISTIO_INBOUND_PORTS":                 "6",
		"ISTIO_LOCAL_EXCLUDE_PORTS":           "7",
		"ISTIO_OUTBOUND_PORTS":                "8",
		"ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE":  "9",
		"KUBE_VIRT_INTERFACES":                "vm0",
		"ISTIO_EXCLUDE_INTERFACES":            "eth1",
		"ISTIO_INBOUND_TPROXY_MARK":           "10",
		"ISTIO_INBOUND_TPROXY_ROUTE_TABLE":    "11",
		"ISTIO_OUTBOUND_OWNER_GROUPS":         "12",
		"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "13",
		"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR":   "127.0.0.0/8",
		"REDIRECT_DNS":                        "1",
		"CAPTURE_ALL_DNS":                     "1",
		"DROP_INVALID":                        "1",
	}, redirect.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	want := injected()
	want.Ports.Inbound, want.Ports.Tunnel = 2, 3
	want.Proxy = redirect.Identity{UIDs: []uint32{4}, GIDs: []uint32{5}}
	want.Mode, want.Marks.TProxy, want.Marks.Table = redirect.ModeTProxy, 10, 11
	want.Inbound = redirect.Inbound{Ports: []uint16{6}, ExcludePorts: []uint16{7}}
	want.Outbound = redirect.Outbound{
		CIDRs: prefixes("10.0.0.0/8"), ExcludeCIDRs: prefixes("10.1.0.0/16"),
		Ports: []uint16{8}, ExcludePorts: []uint16{9},
	}
	want.VirtualInterfaces, want.ExcludeInterfaces = []redirect.Interface{"vm0"}, []redirect.Interface{"eth1"}
	want.Groups = redirect.Groups{Include: []uint32{12}, Exclude: []uint32{13}}
	want.Loopback = netip.MustParsePrefix("127.0.0.0/8")
	want.DNS, want.DropInvalid = redirect.DNS{Capture: true, Everywhere: true}, true
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
}

func TestAMistakeInAVariableOfIstioInitNamesIt(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PROXY_GID": "staff", "ISTIO_OUTBOUND_PORTS": "80,http"}
	_, err := Policy([]string{"-p", "1"}, env, redirect.Defaults())
	for _, want := range []string{`PROXY_GID: "staff"`, `ISTIO_OUTBOUND_PORTS: "http"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s in it", err, want)
		}
	}
}

func TestStandInsOfTheClusterCountForIstioInitToo(t *testing.T) {
	t.Parallel()
	cfg := redirect.Defaults()
	cfg.Values = map[string]string{
		"ISTIO_META_DNS_CAPTURE": "true", "ISTIO_OUTBOUND_OWNER_GROUPS": "7",
	}
	for want, env := range map[bool]map[string]string{
		true: nil, false: {"ISTIO_META_DNS_CAPTURE": "false"},
	} {
		p, err := Policy(nil, env, cfg)
		if err != nil || p.DNS.Capture != want || !cmp.Equal(p.Groups.Include, []uint32{7}) {
			t.Errorf("variables %v: %+v, %v", env, p, err)
		}
	}
}

// The README lists what istio-init reads from variables of its own container and pods are not asked
// for, but for the variables of flags that the injector's template always writes.
func TestTheReadmeListsTheVariablesThatOnlyIstioInitReads(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, differences, _ := strings.Cut(string(readme), "differs from istio-init")
	differences, _, _ = strings.Cut(differences, "\n## ")
	written := strings.Split("p z u m i x b d", " ")
	for _, f := range flags {
		for _, name := range f.variables() {
			ofPods := slices.Contains(redirect.Variables(), name)
			want := !ofPods && !slices.Contains(written, f.short)
			if listed := strings.Contains(differences, "`"+name+"`"); listed != want && !ofPods {
				t.Errorf("%s: listed %t, want %t", name, listed, want)
			}
		}
	}
}

// Read passes on what it was told as it was told it: what it means is another's matter.
func TestReadJudgesNoValue(t *testing.T) {
	t.Parallel()
	got, err := Read(
		words(`-p http --redirect-dns=1 -i 10.0.0.0/8,,x`),
		map[string]string{"PROXY_UID": "staff", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "7"},
		map[string]string{"PROXY_UID": "1", "INVALID_DROP": "maybe"})
	if err != nil {
		t.Fatal(err)
	}
	want := Values{
		"envoy-port":         {Key: "-p", Text: "http"},
		"redirect-dns":       {Key: "--redirect-dns", Text: "true"},
		"istio-service-cidr": {Key: "-i", Text: "10.0.0.0/8,,x"},
		"proxy-uid":          {Key: "PROXY_UID", Text: "staff"},
		"drop-invalid":       {Key: "INVALID_DROP", Text: "false", Unread: "maybe"},
		OwnerGroups:          {Key: OwnerGroups, Text: "*"},
		OwnerGroupsExclude:   {Key: OwnerGroupsExclude, Text: "7"},
		LoopbackCIDR:         {Key: LoopbackCIDR, Text: "127.0.0.1/32"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestWhichVariablesIstioInitObeys(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"PROXY_UID": true, "ISTIO_META_DNS_CAPTURE": true, "REDIRECT_DNS": true, "DRY_RUN": true,
		OwnerGroups: true, LoopbackCIDR: true, "ENVOY_PORT": false, "HOME": false, "": false,
	} {
		if got := IsVariable(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}
