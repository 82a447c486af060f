package xtables

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// inTable is a listing with one line in a table.
func inTable(table, line string) string {
	return "*" + table + "\n:X - [0:0]\n" + line + "\nCOMMIT\n"
}

// conditions of the rule that a line is.
func conditionsOf(t *testing.T, table, line string) []condition {
	t.Helper()
	tables, err := Read(inTable(table, line), "")
	if err != nil {
		t.Fatal(err)
	}
	for place, c := range tables.chains {
		if place.table == table && len(c.rules) == 1 {
			return c.rules[0].conditions
		}
	}
	t.Fatalf("%s: no rule", line)
	return nil
}

func TestSpellings(t *testing.T) {
	t.Parallel()
	for table, rows := range map[string][][]string{
		"nat": {
			{"-A OUTPUT -s 10.1.0.0/16", "-A OUTPUT --source 10.1.2.3/16",
				"[1:2] -A OUTPUT --src 10.1.2.3/16", "-I OUTPUT -s 10.1.0.0/16", "-I OUTPUT 1 -s 10.1.0.0/16",
				"  -A  OUTPUT\t-s  10.1.0.0/16  "},
			{"-A OUTPUT ! -d 1.2.3.4", "-A OUTPUT ! --destination 1.2.3.4/32", "-A OUTPUT ! --dst 1.2.3.4"},
			{"-A PREROUTING -i eth+", "-A PREROUTING --in-interface eth+"},
			{"-A OUTPUT ! -o lo", "-A OUTPUT ! --out-interface lo", "-A OUTPUT ! -o lo -j ACCEPT", "-A OUTPUT --jump ACCEPT ! -o lo"},
			{"-A OUTPUT -p tcp --dport 80", "-A OUTPUT --protocol TCP -m tcp --destination-port 80",
				"-A OUTPUT --proto 6 --match tcp --dport 0x50", "-A OUTPUT -p tcp -m tcp --dport 80:80", "-A OUTPUT -p tcp --dport 0120"},
			{"-A OUTPUT -p udp ! --sport :99", "-A OUTPUT -p udp -m udp ! --source-port 0:99"},
			{"-A OUTPUT -p udp --sport 99:", "-A OUTPUT -p udp -m udp --source-port 99:65535"},
			{"-A OUTPUT -p tcp -m multiport --dports 1,5:9", "-A OUTPUT -p tcp -m multiport --destination-ports 5:9,1"},
			{"-A OUTPUT -p tcp -m multiport ! --sports 1", "-A OUTPUT -p tcp -m multiport ! --source-ports 1:1", "-A OUTPUT -p tcp ! --sport 1"},
			{"-A OUTPUT -p icmpv6", "-A OUTPUT -p ipv6-icmp", "-A OUTPUT -p 58"},
			{"-A OUTPUT -p all", "-A OUTPUT -p 0", "-A OUTPUT -p ALL"},
			{"-A OUTPUT -m conntrack --ctstate NEW,RELATED", "-A OUTPUT -m conntrack --ctstate related,new"},
			{"-A OUTPUT -m mark --mark 10", "-A OUTPUT -m mark --mark 0xa", "-A OUTPUT -m mark --mark 0xa/0xffffffff"},
			{"-A OUTPUT -m owner --uid-owner 7", "-A OUTPUT -m owner --uid-owner 7-7",
				`-A OUTPUT -m comment --comment "a \"b\" -j DROP" -m owner --uid-owner 7`, "-A OUTPUT -m comment --comment -j -m owner --uid-owner 7"},
		},
	} {
		for _, row := range rows {
			want := conditionsOf(t, table, row[0])
			for _, line := range row[1:] {
				got := conditionsOf(t, table, line)
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(condition{}),
					cmp.Comparer(packet.Set.Equal)); diff != "" {
					t.Errorf("%s and\n%s differ:\n%s", row[0], line, diff)
				}
			}
		}
	}
}

// TestOrder inserts rules, and looks at where they are and what they are called.
func TestOrder(t *testing.T) {
	t.Parallel()
	tables, err := Read("*nat\n[1:2] -A OUTPUT -j ACCEPT\n-I OUTPUT -p udp\n-I OUTPUT 2 -p tcp\n-I OUTPUT 4 -p esp\nCOMMIT", "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range tables.chains[place{redirect.IPv4, "nat", "OUTPUT"}].rules {
		got = append(got, r.String())
	}
	want := []string{"-I OUTPUT -p udp", "-I OUTPUT 2 -p tcp", "-A OUTPUT -j ACCEPT", "-I OUTPUT 4 -p esp"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (- want, + got):\n%s", diff)
	}
}

func TestHarmless(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n\n# nothing\n", "*filter\n:INPUT ACCEPT [0:0]\n:X - [0:0]\nCOMMIT\n",
		"*security\nCOMMIT", "* nat\n:POSTROUTING ACCEPT\n-A POSTROUTING -o lo -j RETURN\n-A INPUT -j ACCEPT\nCOMMIT",
		"*mangle\n:OUTPUT DROP\nCOMMIT"} {
		if _, err := Read(text, text); err != nil {
			t.Errorf("%q: %s", text, err)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	rule := func(line string) string { return inTable("nat", line) }
	for _, row := range [][2]string{
		{rule("-A OUTPUT -j LOG"), `line 3: "-A OUTPUT -j LOG": "-j LOG": want a chain of the table, or a known target with all it needs`},
		{rule("-A OUTPUT -p tcp -j DNAT --to 1.2.3.4"), `line 3: "-A OUTPUT -p tcp -j DNAT --to 1.2.3.4": "-j DNAT --to 1.2.3.4": want a chain of the table, or a known target with all it needs`},
		{rule("-A OUTPUT -m physdev --physdev-in x"), `line 3: "-A OUTPUT -m physdev --physdev-in x": "-m physdev --physdev-in x": unknown, or lacks something`},
		{rule("-A OUTPUT -p tcp --frob 3"), `line 3: "-A OUTPUT -p tcp --frob 3": "--frob 3": unknown, or lacks something`},
		{rule("-A OUTPUT -p tcp --dport http"), `line 3: "-A OUTPUT -p tcp --dport http": "--dport http": "http": want a number of 16 bits`},
		{rule("-A OUTPUT -p tcp --dport 9:3"), `line 3: "-A OUTPUT -p tcp --dport 9:3": "--dport 9:3": "9:3": want the lower number first`},
		{rule("-A OUTPUT -p tcp --dport 65536"), `line 3: "-A OUTPUT -p tcp --dport 65536": "--dport 65536": "65536": want a number of 16 bits`},
		{rule("-A OUTPUT -p tcp --dport"), `line 3: "-A OUTPUT -p tcp --dport": "--dport": unknown, or lacks something`},
		{rule("-A OUTPUT -p tcp --dport 1 --dport 2"), `line 3: "-A OUTPUT -p tcp --dport 1 --dport 2": "--dport 2": given twice`},
		{rule("-A OUTPUT --dport 80"), `line 3: "-A OUTPUT --dport 80": ports need -p tcp or -p udp`},
		{rule("-A OUTPUT -p udp -m tcp --dport 80"), `line 3: "-A OUTPUT -p udp -m tcp --dport 80": "-m tcp --dport 80": needs the same -p before it`},
		{rule("-A OUTPUT ! -p tcp -m tcp --dport 80"), `line 3: "-A OUTPUT ! -p tcp -m tcp --dport 80": "-m tcp --dport 80": needs the same -p before it`},
		{rule("-A OUTPUT -p sctp -m multiport --dports 80"), `line 3: "-A OUTPUT -p sctp -m multiport --dports 80": ports need -p tcp or -p udp`},
		{rule("-A OUTPUT -p tcp -m multiport --dports 1,,2"), `line 3: "-A OUTPUT -p tcp -m multiport --dports 1,,2": "-m multiport --dports 1,,2": "": want a number of 16 bits`},
		{rule("-A OUTPUT -p frob"), `line 3: "-A OUTPUT -p frob": "-p frob": "frob": want a number of 8 bits`},
		{rule("-A OUTPUT -p 256"), `line 3: "-A OUTPUT -p 256": "-p 256": "256": want a number of 8 bits`},
		{rule("-A OUTPUT -s 10.0.0.0/8,11.0.0.0/8"), `line 3: "-A OUTPUT -s 10.0.0.0/8,11.0.0.0/8": "-s 10.0.0.0/8,11.0.0.0/8": unknown, or lacks something`},
		{rule("-A OUTPUT -s 10.0.0.0/33"), `line 3: "-A OUTPUT -s 10.0.0.0/33": "-s 10.0.0.0/33": "10.0.0.0/33": want an IPv4 network`},
		{rule("-A OUTPUT -s 10.0.0.0/255.0.255.0"), `line 3: "-A OUTPUT -s 10.0.0.0/255.0.255.0": "-s 10.0.0.0/255.0.255.0": "10.0.0.0/255.0.255.0": want an IPv4 network`},
		{rule("-A OUTPUT -s example.com"), `line 3: "-A OUTPUT -s example.com": "-s example.com": "example.com": want an IPv4 network`},
		{rule("-A OUTPUT -s fe80::1"), `line 3: "-A OUTPUT -s fe80::1": "-s fe80::1": "fe80::1": want an IPv4 network`},
		{rule("-A OUTPUT -s ! 1.2.3.4"), `line 3: "-A OUTPUT -s ! 1.2.3.4": "-s ! 1.2.3.4": "!": want an IPv4 network`},
		{rule("-A OUTPUT -s 1.2.3.4 -s 1.2.3.4"), `line 3: "-A OUTPUT -s 1.2.3.4 -s 1.2.3.4": "-s 1.2.3.4": given twice`},
		{rule("-A OUTPUT -o abcdefghijklmnop"), `line 3: "-A OUTPUT -o abcdefghijklmnop": "-o abcdefghijklmnop": unknown, or lacks something`},
		{rule("-A OUTPUT -g X"), `line 3: "-A OUTPUT -g X": "-g X": unknown, or lacks something`},
		{rule("-A OUTPUT -j X -j X"), `line 3: "-A OUTPUT -j X -j X": "-j X": given twice`},
		{rule("-A OUTPUT ! -j X"), `line 3: "-A OUTPUT ! -j X": "! -j X": unknown, or lacks something`},
		{rule("-A OUTPUT ! -m mark"), `line 3: "-A OUTPUT ! -m mark": "! -m mark": unknown, or lacks something`},
		{rule("-A OUTPUT !"), `line 3: "-A OUTPUT !": "!": unknown, or lacks something`},
		{rule("-A OUTPUT X"), `line 3: "-A OUTPUT X": "X": unknown, or lacks something`},
		{rule("-A OUTPUT -m mark"), `line 3: "-A OUTPUT -m mark": "-m mark": unknown, or lacks something`},
		{rule("-A OUTPUT -m mark --mark 1/0xff"), `line 3: "-A OUTPUT -m mark --mark 1/0xff": "-m mark --mark 1/0xff": "1/0xff": want a number of 32 bits`},
		{rule("-A OUTPUT -m mark --mark 1 --mark 1"), `line 3: "-A OUTPUT -m mark --mark 1 --mark 1": "--mark 1": unknown, or lacks something`},
		{rule("-A OUTPUT -m owner --uid-owner root"), `line 3: "-A OUTPUT -m owner --uid-owner root": "-m owner --uid-owner root": "root": want a number of 32 bits`},
		{rule("-A OUTPUT -m owner --socket-exists"), `line 3: "-A OUTPUT -m owner --socket-exists": "-m owner --socket-exists": unknown, or lacks something`},
		{rule("-A OUTPUT --gid-owner 5"), `line 3: "-A OUTPUT --gid-owner 5": "--gid-owner 5": unknown, or lacks something`},
		{rule("-A OUTPUT -m owner --uid-owner 1 --gid-owner 2 --uid-owner 3"), `line 3: "-A OUTPUT -m owner --uid-owner 1 --gid-owner 2 --uid-owner 3": "--uid-owner 3": unknown, or lacks something`},
		{inTable("mangle", "-A PREROUTING -p tcp -j TPROXY --tproxy-mark 1 --on-port 2 --tproxy-mark 3"), `line 3: "-A PREROUTING -p tcp -j TPROXY --tproxy-mark 1 --on-port 2 --tproxy-mark 3": "--tproxy-mark 3": unknown, or lacks something`},
		{rule("-A OUTPUT -m conntrack --ctstate NEW,SNAT"), `line 3: "-A OUTPUT -m conntrack --ctstate NEW,SNAT": "-m conntrack --ctstate NEW,SNAT": "SNAT": want new, established, related or invalid`},
		{rule("-A OUTPUT -m conntrack ! --ctstate"), `line 3: "-A OUTPUT -m conntrack ! --ctstate": "-m conntrack ! --ctstate": unknown, or lacks something`},
		{rule("-A OUTPUT -m comment --comment \"open"), `line 3: "-A OUTPUT -m comment --comment \"open": "-m comment --comment \"open": unknown, or lacks something`},
		{rule("-A OUTPUT -j REDIRECT --to-ports 1"), `line 3: "-A OUTPUT -j REDIRECT --to-ports 1": ports need -p tcp or -p udp`},
		{rule("-A OUTPUT -p tcp -j REDIRECT"), `line 3: "-A OUTPUT -p tcp -j REDIRECT": "-j REDIRECT": want a chain of the table, or a known target with all it needs`},
		{rule("-A OUTPUT -p tcp -j REDIRECT --to-ports 0"), `line 3: "-A OUTPUT -p tcp -j REDIRECT --to-ports 0": "-j REDIRECT --to-ports 0": want a chain of the table, or a known target with all it needs`},
		{rule("-A OUTPUT -p tcp -j REDIRECT --to-ports 1-2"), `line 3: "-A OUTPUT -p tcp -j REDIRECT --to-ports 1-2": "-j REDIRECT --to-ports 1-2": want a chain of the table, or a known target with all it needs`},
		{rule("-A OUTPUT -p tcp -j REDIRECT ! --to-ports 1"), `line 3: "-A OUTPUT -p tcp -j REDIRECT ! --to-ports 1": "-j REDIRECT ! --to-ports 1": want a chain of the table, or a known target with all it needs`},
		{rule("-A OUTPUT -j MARK --set-mark 1/1"), `line 3: "-A OUTPUT -j MARK --set-mark 1/1": "-j MARK --set-mark 1/1": "1/1": want a number of 32 bits`},
		{rule("-A OUTPUT -j MARK"), `line 3: "-A OUTPUT -j MARK": "-j MARK": want a chain of the table, or a known target with all it needs`},
		{rule("-A OUTPUT -j CONNMARK --nfmask 0xffffffff"), `line 3: "-A OUTPUT -j CONNMARK --nfmask 0xffffffff": "-j CONNMARK --nfmask 0xffffffff": want a chain of the table, or a known target with all it needs`},
		{rule("-A OUTPUT -j CONNMARK --save-mark --restore-mark"), `line 3: "-A OUTPUT -j CONNMARK --save-mark --restore-mark": "--restore-mark": unknown, or lacks something`},
		{rule("-A OUTPUT -j CONNMARK --save-mark --nfmask 0xff"), `line 3: "-A OUTPUT -j CONNMARK --save-mark --nfmask 0xff": "--nfmask 0xff": unknown, or lacks something`},
		{rule("-A OUTPUT -j CT --zone 1"), `line 3: "-A OUTPUT -j CT --zone 1": "-j CT --zone 1": not evaluated in table nat`},
		{inTable("mangle", "-A OUTPUT -p tcp -j REDIRECT --to-ports 1"), `line 3: "-A OUTPUT -p tcp -j REDIRECT --to-ports 1": "-j REDIRECT --to-ports 1": not evaluated in table mangle`},
		{inTable("mangle", "-A OUTPUT -p tcp -j TPROXY --on-port 1"), `line 3: "-A OUTPUT -p tcp -j TPROXY --on-port 1": reached from OUTPUT, works from PREROUTING only`},
		{inTable("mangle", "-A PREROUTING -p tcp -j TPROXY --on-port 1 --on-ip 1.2.3.4"), `line 3: "-A PREROUTING -p tcp -j TPROXY --on-port 1 --on-ip 1.2.3.4": "--on-ip 1.2.3.4": unknown, or lacks something`},
		{inTable("mangle", "-A PREROUTING -p tcp -j TPROXY --tproxy-mark 1"), `line 3: "-A PREROUTING -p tcp -j TPROXY --tproxy-mark 1": "-j TPROXY --tproxy-mark 1": want a chain of the table, or a known target with all it needs`},
		{inTable("raw", "-A OUTPUT -m state --state NEW"), `line 3: "-A OUTPUT -m state --state NEW": "-m state --state NEW": unknown, or lacks something`},
		{inTable("raw", "-A OUTPUT -j CONNMARK --save-mark"), `line 3: "-A OUTPUT -j CONNMARK --save-mark": "-j CONNMARK --save-mark": not evaluated in table raw`},
		{inTable("raw", "-A OUTPUT -j CT --notrack"), `line 3: "-A OUTPUT -j CT --notrack": "-j CT --notrack": want a chain of the table, or a known target with all it needs`},
		{rule("-A OUTPUT -j OUTPUT"), `line 3: "-A OUTPUT -j OUTPUT": "-j OUTPUT": want a chain of the table, or a known target with all it needs`},
		{rule("-A OUTPUT -j X\n-A X -j X"), `line 4: "-A X -j X": a packet would meet too many rules, or jump in a loop`},
		{rule("-N Y\n-A X -j Y\n-A Y -j X\n-A OUTPUT -j Y"), `line 4: "-A X -j Y": a packet would meet too many rules, or jump in a loop`},
		{rule("-A Y -j X"), `line 3: "-A Y -j X": no such chain in table nat`},
		{rule("-N X"), `line 3: "-N X": "X": exists already, or cannot have policy "-"`},
		{rule(":X - [0:0]"), `line 3: ":X - [0:0]": "X": exists already, or cannot have policy "-"`},
		{rule("-N OUTPUT"), `line 3: "-N OUTPUT": "OUTPUT": exists already, or cannot have policy "-"`},
		{rule("-N FORWARD"), `line 3: "-N FORWARD": "FORWARD": exists already, or cannot have policy "-"`},
		{rule(":REDIRECT -\n-A OUTPUT -p tcp -j REDIRECT"), `line 4: "-A OUTPUT -p tcp -j REDIRECT": "-j REDIRECT": want a chain of the table, or a known target with all it needs`},
		{rule("-P X DROP"), `line 3: "-P X DROP": want -A CHAIN, -I CHAIN, -N CHAIN or :CHAIN POLICY`},
		{rule("-P OUTPUT QUEUE"), `line 3: "-P OUTPUT QUEUE": want -A CHAIN, -I CHAIN, -N CHAIN or :CHAIN POLICY`},
		{rule(":OUTPUT"), `line 3: ":OUTPUT": want -A CHAIN, -I CHAIN, -N CHAIN or :CHAIN POLICY`},
		{rule("-A OUTPUT -p tcp --dport 1_0"), `line 3: "-A OUTPUT -p tcp --dport 1_0": "--dport 1_0": "1_0": want a number of 16 bits`},
		{rule("-A OUTPUT -p tcp -j REDIRECT --to-ports 1/0xffffffff"), `line 3: "-A OUTPUT -p tcp -j REDIRECT --to-ports 1/0xffffffff": "-j REDIRECT --to-ports 1/0xffffffff": want a chain of the table, or a known target with all it needs`},
		{rule(":"), `line 3: ":": want -A CHAIN, -I CHAIN, -N CHAIN or :CHAIN POLICY`},
		{rule(":X - [0:0] y"), `line 3: ":X - [0:0] y": want -A CHAIN, -I CHAIN, -N CHAIN or :CHAIN POLICY`},
		{rule("-A OUTPUT -p tcp -m multiport --dports " + strings.Repeat("1,", 100) + "x"), `line 3: "-A OUTPUT -p tcp -m multiport --dports 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1": "-m multiport --dports 1,1,1,1,1,1,1,1,1,": "x": want a number of 16 bits`},
		{rule("-A POSTROUTING -j DROP"), `line 3: "-A POSTROUTING -j DROP": "-j DROP": not evaluated in table nat`},
		{rule("-A OUTPUT -m connmark --mark 0x1/0x1"), `line 3: "-A OUTPUT -m connmark --mark 0x1/0x1": "-m connmark --mark 0x1/0x1": "0x1/0x1": want a number of 32 bits`},
		{rule("-A OUTPUT -m comment"), `line 3: "-A OUTPUT -m comment": "-m comment": unknown, or lacks something`},
		{rule("-A OUTPUT -j REDIRECT -p tcp --to-ports"), `line 3: "-A OUTPUT -j REDIRECT -p tcp --to-ports": "-j REDIRECT -p tcp --to-ports": want a chain of the table, or a known target with all it needs`},
		{rule(":OUTPUT ACCEPT [0:0"), `line 3: ":OUTPUT ACCEPT [0:0": want -A CHAIN, -I CHAIN, -N CHAIN or :CHAIN POLICY`},
		{rule(":POSTROUTING DROP [0:0]"), `line 3: ":POSTROUTING DROP [0:0]": "POSTROUTING": exists already, or cannot have policy "DROP"`},
		{rule("-A POSTROUTING -j MASQUERADE"), `line 3: "-A POSTROUTING -j MASQUERADE": "-j MASQUERADE": want a chain of the table, or a known target with all it needs`},
		{rule("-A INPUT -p tcp -j X"), `line 3: "-A INPUT -p tcp -j X": INPUT: only RETURN and ACCEPT are evaluated here`},
		{rule("-F OUTPUT"), `line 3: "-F OUTPUT": want -A CHAIN, -I CHAIN, -N CHAIN or :CHAIN POLICY`},
		{rule("-I OUTPUT 2 -j X"), `line 3: "-I OUTPUT 2 -j X": 2: want a place from 1 to 1`},
		{rule("-I OUTPUT 0 -j X"), `line 3: "-I OUTPUT 0 -j X": "0 -j X": unknown, or lacks something`},
		{rule("-A"), `line 3: "-A": want -A CHAIN, -I CHAIN, -N CHAIN or :CHAIN POLICY`},
		{rule("[0:0]"), `line 3: "[0:0]": want -A CHAIN, -I CHAIN, -N CHAIN or :CHAIN POLICY`},
		{rule("\x00\xff\x7fELF"), `line 3: "\x00\xff\x7fELF": want printable ASCII`},
		{rule("*raw"), `line 3: "*raw": "raw": no known table, or a second one, or COMMIT is missing`},
		{rule("# Table `nat' is incompatible, use 'nft' tool."), "line 3: \"# Table `nat' is incompatible, use 'nft' tool.\": the listing lacks the rules of this table"},
		{rule("-A OUTPUT -o lo\x00 -j ACCEPT"), `line 3: "-A OUTPUT -o lo\x00 -j ACCEPT": want printable ASCII`},
		{rule(`-A OUTPUT -m comment --comment x"!" -o lo -j ACCEPT`), `line 3: "-A OUTPUT -m comment --comment x\"!\" -o lo -j ACCEPT": "-m comment --comment x\"!\" -o lo -j ACCEP": unknown, or lacks something`},
		{rule(`-A OUTPUT -o "l\o" -j ACCEPT`), `line 3: "-A OUTPUT -o \"l\\o\" -j ACCEPT": "-o \"l\\o\" -j ACCEPT": unknown, or lacks something`},
		{rule("-A OUTPUT -o lo\r -j ACCEPT"), `line 3: "-A OUTPUT -o lo\r -j ACCEPT": want printable ASCII`},
		{rule("-A OUTPUT -j ACCEPT -o lo\u00a0"), "line 3: \"-A OUTPUT -j ACCEPT -o lo\\u00a0\": want printable ASCII"},
		{"#" + strings.Repeat("x", 10238) + "-A OUTPUT -j DROP\n", `line 1: "#` + strings.Repeat("x", 79) + `": want lines of 4096 bytes, and 65536 of them, at most`},
		{"*filter\n-A INPUT -j DROP\nCOMMIT", `line 2: "-A INPUT -j DROP": "-j DROP": not evaluated in table filter`},
		{"*filter\n:FORWARD DROP [0:0]\nCOMMIT", `line 2: ":FORWARD DROP [0:0]": "FORWARD": exists already, or cannot have policy "DROP"`},
		{"*broute\nCOMMIT", `line 1: "*broute": "broute": no known table, or a second one, or COMMIT is missing`},
		{"*nat\nCOMMIT\n*nat\nCOMMIT", `line 3: "*nat": "nat": no known table, or a second one, or COMMIT is missing`},
		{"*nat\n-A OUTPUT -j ACCEPT\n", `line 2: table nat ends without COMMIT`},
		{"*nat\nCOMMIT\n-A OUTPUT -j ACCEPT\n", `line 3: "-A OUTPUT -j ACCEPT": not in a table`},
		{"table ip nat {", `line 1: "table ip nat {": not in a table`},
		{strings.Repeat("x", 10<<20), `10485760 bytes, and 4194304 are the most that is read`},
		{rule("-A OUTPUT" + strings.Repeat(" -m mark", 1<<10)), `line 3: "-A OUTPUT -m mark -m mark -m mark -m mark -m mark -m mark -m mark -m mark -m mar": want lines of 4096 bytes, and 65536 of them, at most`},
		{rule("-A OUTPUT -j " + strings.Repeat("long", 100)), `line 3: "-A OUTPUT -j longlonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglon": "-j longlonglonglonglonglonglonglonglongl": want a chain of the table, or a known target with all it needs`},
		{rule(strings.Repeat("-I OUTPUT\n", 70_000)), `line 65537: "-I OUTPUT": want lines of 4096 bytes, and 65536 of them, at most`},
		{doubling(40), `line 71: "-A CCCCCCCCCCCCCCCCCCCCCCCC -j CCCCCCCCCCCCCCCCCCCCCCC": a packet would meet too many rules, or jump in a loop`},
	} {
		_, err := Read(row[0], "")
		if err == nil {
			err = errors.New("no error")
		}
		got := strings.TrimPrefix(err.Error(), "read IPv4 rules: ")
		if got != row[1] || strings.Contains(got, "\n") {
			t.Errorf("%.100q:\n got %s\nwant %s", row[0], got, row[1])
		}
	}
	if _, err := Read("", "*nat\n-A OUTPUT -s 1.2.3.4\nCOMMIT"); err == nil ||
		!strings.HasPrefix(err.Error(), "read IPv6 rules: line 2: ") {
		t.Errorf("IPv6: %v", err)
	}
}

// doubling has chains of which each jumps to the next one twice.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString("*nat\n-N C\n")
	name := "C"
	for range n {
		b.WriteString("-N " + name + "C\n-A " + name + "C -j " + name + "\n-A " + name + "C -j " + name + "\n")
		name += "C"
	}
	b.WriteString("-A OUTPUT -j " + name + "\nCOMMIT\n")
	return b.String()
}
