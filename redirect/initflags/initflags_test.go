package initflags

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// byValue has cmp compare addresses as Go does.
var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestInitFlags(t *testing.T) {
	t.Parallel()
	plain := redirect.Defaults().Basis()
	plain.Mode, plain.Groups.All, plain.Loopback = redirect.ModeRedirect, true,
		netip.MustParsePrefix("127.0.0.1/32")
	plain.Inbound = redirect.Inbound{}
	with := func(set func(*redirect.Policy)) redirect.Policy {
		p := plain
		set(&p)
		return p
	}
	for name, row := range map[string]struct {
		args []string
		env  map[string]string
		want redirect.Policy
	}{
		"nothing captures nothing": {nil, nil, plain},
		"ports": {[]string{"-p", "1", "-z=2", "--inbound-tunnel-port", "3"}, nil,
			with(func(p *redirect.Policy) {
				p.Ports.Outbound, p.Ports.Inbound, p.Ports.Tunnel = 1, 2, 3
			})},
		"excluded ports are those given": {[]string{"-b", "*", "-d", "15090,15021"}, nil,
			with(func(p *redirect.Policy) {
				p.Inbound = redirect.Inbound{All: true,
					ExcludePorts: []uint16{15021, 15090}}
			})},
		"the group is the user's number": {[]string{"-u", "2000,0"}, nil,
			with(func(p *redirect.Policy) {
				p.Proxy = redirect.Identity{UIDs: []uint32{0, 2000}, GIDs: []uint32{0, 2000}}
			})},
		"a group alone": {[]string{"-g", "2000"}, nil,
			with(func(p *redirect.Policy) { p.Proxy.GIDs = []uint32{2000} })},
		"an empty user and group are none": {[]string{"-u", "", "-g", " "}, nil, plain},
		"an empty mode is the default":     {[]string{"-m", ""}, nil, plain},
		"several users and groups": {[]string{"-u", "1337,1", "-g", "2"}, nil,
			with(func(p *redirect.Policy) {
				p.Proxy = redirect.Identity{UIDs: []uint32{1, 1337},
					GIDs: []uint32{2}}
			})},
		"transparent": {[]string{"-m", "TPROXY", "-t", "7", "-r", "8"}, nil,
			with(func(p *redirect.Policy) {
				p.Mode, p.Marks.TProxy, p.Marks.Table = redirect.ModeTProxy, 7, 8
			})},
		"outbound": {[]string{"-i", "10.0.0.0/8", "-x", "10.1.0.0/16", "-q", "80", "-o", "81"}, nil,
			with(func(p *redirect.Policy) {
				p.Outbound = redirect.Outbound{CIDRs: prefixes("10.0.0.0/8"),
					ExcludeCIDRs: prefixes("10.1.0.0/16"), Ports: []uint16{80},
					ExcludePorts: []uint16{81}}
			})},
		"interfaces": {[]string{"-k", "vm0", "-c", "eth1"}, nil,
			with(func(p *redirect.Policy) {
				p.VirtualInterfaces, p.ExcludeInterfaces = []redirect.Interface{"vm0"},
					[]redirect.Interface{"eth1"}
			})},
		"variables": {nil, map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "INVALID_DROP": "1"},
			with(func(p *redirect.Policy) {
				p.DNS, p.DropInvalid = redirect.DNS{Capture: true, Everywhere: true},
					true
			})},
		"the flags' own variables": {
			nil, map[string]string{"REDIRECT_DNS": "true", "DROP_INVALID": "T"},
			with(func(p *redirect.Policy) {
				p.DNS, p.DropInvalid = redirect.DNS{Capture: true, Everywhere: true}, true
			})},
		"of two variables the proxy's wins": {
			nil, map[string]string{
				"REDIRECT_DNS": "true", "ISTIO_META_DNS_CAPTURE": "false",
				"DROP_INVALID": "1", "INVALID_DROP": "0",
			}, plain},
		"a flag wins over its variable": {
			[]string{"--redirect-dns=false", "--drop-invalid", "-g7"},
			map[string]string{"REDIRECT_DNS": "true", "DROP_INVALID": "false", "PROXY_GID": "8"},
			with(func(p *redirect.Policy) { p.DropInvalid, p.Proxy.GIDs = true, []uint32{7} })},
		"a truth that cannot be read is false": {
			nil, map[string]string{"REDIRECT_DNS": "on", "DROP_INVALID": "yes"}, plain},
		"all DNS, though none is captured": {[]string{"--capture-all-dns"}, nil, plain},
	} {
		got, err := Policy(row.args, row.env, redirect.Defaults())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(row.want, got, byValue); diff != "" {
			t.Errorf("%s: policy (-want +got):\n%s", name, diff)
		}
	}
}

func TestInitFlagsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args []string
		want []string
	}{
		{[]string{"-m", "NONE"}, []string{`-m: "NONE": want REDIRECT or TPROXY`}},
		{[]string{"-p", "0", "-t", "0"},
			[]string{`-p: "0": want a port from 1 to 65535`,
				`-t: "0": want a number from 1`}},
		{[]string{"-i", "10.0.0.0/33", "-d", "80,x,81"},
			[]string{`-i: "10.0.0.0/33": want a CIDR`, `-d: "x": want a port`}},
		{[]string{"--nonesuch"}, []string{"read the flags of istio-init", "nonesuch"}},
		{[]string{"-p", "1", "15006"}, []string{`"15006" stands alone`}},
		{[]string{"-p", "1", "--", "-z"}, []string{`"-z" stands alone`}},
		{[]string{"-p"}, []string{`flag "-p" has no value`}},
		{[]string{"-nw"}, []string{`unknown flag "-w" in "-nw"`}},
		{[]string{"--dry-run=maybe"}, []string{`flag "--dry-run": "maybe": want true or false`}},
		{[]string{"--istio-inbound-ports=x"}, []string{`--istio-inbound-ports: "x": want a port`}},
	} {
		policy, err := Policy(row.args, nil, redirect.Defaults())
		if err == nil {
			t.Errorf("%q: no error, %+v", row.args, policy)
			continue
		}
		for _, want := range row.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v: want %s in it", row.args, err, want)
			}
		}
	}
}
