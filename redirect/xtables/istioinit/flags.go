package istioinit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
)

// flags holds the items of each flag's value. Of an empty list there are none at all: nil.
type flags map[string][]string

func (f flags) is(name, text string) bool { return slices.Contains(f[name], text) }

// kind is what some flags take.
type kind struct {
	want  string
	valid func(item string) bool
	list  bool   // items between commas, of which empty ones are dropped
	flags string // long names; name=value has a value if absent; name* may also be an asterisk
}

var kinds = []kind{
	{"true or false", isBool, false, "redirect-dns capture-all-dns drop-invalid"},
	{"REDIRECT or TPROXY", isMode, false, "istio-inbound-interception-mode"},
	{"a port from 1 to 65535", between(1, 65535), false,
		"envoy-port=15001 inbound-capture-port=15006 inbound-tunnel-port=15008"},
	{"a number from 1 to 4294967295", between(1, 1<<32-1), false,
		"istio-inbound-tproxy-mark=1337 istio-inbound-tproxy-route-table=133"},
	{"a port from 0 to 65535", between(0, 65535), true, "istio-inbound-ports* " +
		"istio-local-exclude-ports istio-outbound-ports istio-local-outbound-ports-exclude"},
	{"an id from 0 to 4294967294", between(0, 1<<32-2), true,
		"proxy-uid=1337 proxy-gid " + initflags.OwnerGroups + "* " + initflags.OwnerGroupsExclude},
	{"a CIDR such as 10.0.0.0/8 or 2001:db8::/32", isCIDR, true,
		"istio-service-cidr* istio-service-exclude-cidr"},
	{"a CIDR within 127.0.0.0/8 such as 127.0.0.1/32", isLoopback, false, initflags.LoopbackCIDR},
	{"an interface's name of at most 15 characters", isInterface, true,
		"istio-exclude-interfaces kube-virt-interfaces"},
}

func readFlags(args []string, env map[string]string) (flags, error) {
	values, err := initflags.Read(args, env, nil)
	if err != nil {
		return nil, err
	}
	f := flags{}
	var errs []error
	for _, k := range kinds {
		for name := range strings.FieldsSeq(k.flags) {
			name, absent, _ := strings.Cut(name, "=")
			name, wildcard := strings.CutSuffix(name, "*")
			v, told := values[name]
			if !told || k.list && v.Text == "" {
				v.Text = absent
			}
			items := []string{v.Text}
			if k.list {
				items = strings.FieldsFunc(v.Text, func(c rune) bool { return c == ',' })
			}
			for i, item := range items {
				if !k.valid(item) && (v.Text != "*" || !wildcard) {
					errs = append(errs, fmt.Errorf("%s: %q: want %s", v.Key, item, k.want))
				}
				items[i] = strings.TrimSpace(item) // iptables-restore drops blanks
			}
			if !k.list || v.Text != "" {
				f[name] = items
			}
		}
	}
	if n := len(f[initflags.OwnerGroups]); n > 64 {
		errs = append(errs, fmt.Errorf("%s: %d groups: want at most 64", initflags.OwnerGroups, n))
	}
	if f["proxy-gid"] == nil {
		f["proxy-gid"] = f["proxy-uid"]
	}
	for _, kind := range []string{"uid", "gid"} {
		for _, id := range f["proxy-"+kind] {
			f["owners"] = append(f["owners"], "--"+kind+"-owner "+id)
		}
	}
	return f, errors.Join(errs...)
}

func between(least, most uint64) func(string) bool {
	return func(item string) bool {
		n, err := strconv.ParseUint(strings.TrimSpace(item), 10, 64)
		return err == nil && n >= least && n <= most
	}
}

func prefix(cidr string) netip.Prefix {
	p, _ := netip.ParsePrefix(cidr)
	return p
}

func isBool(s string) bool     { return s == "" || s == "true" || s == "false" }
func isMode(s string) bool     { return s == "" || s == "REDIRECT" || s == "TPROXY" }
func isCIDR(s string) bool     { return prefix(s).IsValid() } // with blanks it is not
func isLoopback(s string) bool { return strings.HasPrefix(s, "127.") && prefix(s).Bits() >= 8 }
func isInterface(s string) bool {
	n := strings.TrimSpace(s)
	return n != "" && len(n) < 16 && n[0] != '-' && !strings.ContainsAny(n, "\t\n \"'\\!/$*")
}
