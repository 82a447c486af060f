package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// Whoever may write rules into a pod's namespace must not be able to keep the agent busy, or to use
// up its memory.
func TestMoreRulesThanAnybodyNeeds(t *testing.T) {
	t.Parallel()
	many := func(n int, line func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i))
		}
		return b.String()
	}
	rows := map[string]struct {
		program, rules string
	}{
		"rules": {"nft -f -", "table ip a {\n chain b {\n type nat hook output priority 0\n" +
			many(40000, func(i int) string {
				return fmt.Sprintf("ip daddr 10.%d.%d.%d accept\n",
					i>>16, i>>8&255, i&255)
			}) + "}\n}\n"},
		"rules with a map of chains": {"nft -f -", "table ip a {\n chain c {\n }\n map m {\n " +
			"type ipv4_addr : verdict\n elements = { " +
			many(5000, func(i int) string {
				return fmt.Sprintf("10.%d.%d.%d : jump c, ", i>>16,
					i>>8&255, i&255)
			}) + "}\n }\n chain b {\n" +
			" type nat hook output priority 0\n" +
			many(500, func(int) string { return "ip daddr vmap @m\n" }) + "}\n}\n"},
		"legacy rules": {"iptables-legacy-restore", "*nat\n" +
			many(120000, func(i int) string {
				return fmt.Sprintf("-A OUTPUT -d 10.%d.%d.%d -j ACCEPT\n", i>>16, i>>8&255, i&255)
			}) + "COMMIT\n"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			n.run("web-0", ns)
			words := strings.Fields(row.program)
			ns.Run(t, row.rules, words[0], words[1:]...)
			n.want(n.pod("web-0", nil), audit.Unreachable, "more of it than anybody needs")
		})
	}
}
