package strip

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
)

func texts(words []any) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = w.(string)
	}
	return all
}

// withOpenPorts returns a command line that also leaves the ports alone that always are.
func withOpenPorts(t *testing.T, args []string, env map[string]string) []string {
	t.Helper()
	p, err := initflags.Policy(args, env, redirect.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	ports := []string{"15020", "15021", "15090"}
	for _, port := range p.Inbound.ExcludePorts {
		ports = append(ports, strconv.Itoa(int(port)))
	}
	return append(args, "-d", strings.Join(ports, ","))
}

// hosts returns the captured nameservers as networks.
func hosts(p redirect.Policy) (all []netip.Prefix) {
	for _, s := range p.DNS.Servers {
		all = append(all, netip.PrefixFrom(s, s.BitLen()))
	}
	return all
}
