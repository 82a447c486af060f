package istioinit

import (
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// listing is a file of testdata: what istio-init is told, and what it writes. It was written by
// hand, from the contract and from what istio-init prints.
type listing struct {
	args []string
	env  map[string]string
	pod  Pod
	want Listing
}

func listings(t *testing.T) map[string]listing {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 30 {
		t.Fatalf("listings: %d, %v", len(files), err)
	}
	all := map[string]listing{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".txtar")] = parse(t, archive)
	}
	return all
}

func parse(t *testing.T, archive *txtar.Archive) listing {
	t.Helper()
	l := listing{env: map[string]string{}}
	for _, f := range archive.Files {
		text := string(f.Data)
		switch f.Name {
		case "args":
			l.args = words(text)
		case "env":
			for line := range strings.Lines(text) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				l.env[name] = value
			}
		case "pod":
			for line := range strings.Lines(text) {
				l.pod.IPv6 = l.pod.IPv6 || line == "ipv6\n"
				if server, ok := strings.CutPrefix(strings.TrimSpace(line), "nameserver "); ok {
					l.pod.Nameservers = append(l.pod.Nameservers, netip.MustParseAddr(server))
				}
			}
		case "ipv4":
			l.want.IPv4 = text
		case "ipv6":
			l.want.IPv6 = text
		case "marks":
			mark, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			l.want.Marks = []uint32{uint32(mark)}
		default:
			t.Fatalf("unknown part %q", f.Name)
		}
	}
	return l
}

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

func TestListings(t *testing.T) {
	t.Parallel()
	for name, l := range listings(t) {
		got, err := Write(l.args, l.env, l.pod)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(l.want, got); diff != "" {
			t.Errorf("%s: %q with %v (-want +got):\n%s", name, l.args, l.env, diff)
		}
	}
}

// Real programs take each line, into a real kernel.
func TestIptablesTakesTheListings(t *testing.T) {
	netns.RequireRoot(t)
	for name, l := range listings(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, variant := range []string{"nft", "legacy"} {
				ns := netns.New(t)
				ns.Run(t, l.want.IPv4, "iptables-"+variant+"-restore", "--noflush")
				if l.want.IPv6 != "" {
					ns.Run(t, l.want.IPv6, "ip6tables-"+variant+"-restore", "--noflush")
				}
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	var many []string
	for gid := range 65 {
		many = append(many, strconv.Itoa(gid))
	}
	groups := map[string]string{"ISTIO_OUTBOUND_OWNER_GROUPS": strings.Join(many, ",")}
	for _, row := range []struct {
		line string
		env  map[string]string
		want string
	}{
		{"-p http", nil, `-p: "http": want a port from 1 to 65535`},
		{"-z 0", nil, `-z: "0": want a port from 1 to 65535`},
		{`-z ""`, nil, `-z: "": want a port from 1 to 65535`},
		{"--inbound-tunnel-port=65536", nil, `--inbound-tunnel-port: "65536": want a port from 1`},
		{"-u root", nil, `-u: "root": want an id from 0 to 4294967294`},
		{"-g 1,4294967295", nil, `-g: "4294967295": want an id from 0 to 4294967294`},
		{"", map[string]string{"PROXY_GID": "staff"}, `PROXY_GID: "staff": want an id`},
		{"-m NONE", nil, `-m: "NONE": want REDIRECT or TPROXY`},
		{"-m TPROXY,TPROXY", nil, `-m: "TPROXY,TPROXY": want REDIRECT or TPROXY`},
		{"-i 10.0.0.0/33", nil, `-i: "10.0.0.0/33": want a CIDR such as`},
		{"-i *,10.0.0.0/8", nil, `-i: "*": want a CIDR`},
		{"-x *", nil, `-x: "*": want a CIDR`},
		{"-x 10.0.0.1", nil, `-x: "10.0.0.1": want a CIDR`},
		{"-b 80,http", nil, `-b: "http": want a port from 0 to 65535`},
		{"-d *", nil, `-d: "*": want a port from 0 to 65535`},
		{"-q 80:90", nil, `-q: "80:90": want a port`},
		{"-o -1", nil, `-o: "-1": want a port`},
		{"-k interface-too-long", nil, `-k: "interface-too-long": want an interface's name of at`},
		{"-c sixteen--letters", nil, `-c: "sixteen--letters": want an interface's name`},
		{"-c eth/1", nil, `-c: "eth/1": want an interface's name`},
		{"-c $mark", nil, `-c: "$mark": want an interface's name`},
		{"-k *", nil, `-k: "*": want an interface's name`},
		{"-c=-eth", nil, `-c: "-eth": want an interface's name`},
		{"-t 0x539", nil, `-t: "0x539": want a number from 1 to 4294967295`},
		{"-t 0", nil, `-t: "0": want a number from 1 to 4294967295`},
		{"-r main", nil, `-r: "main": want a number from 1 to 4294967295`},
		{"-p 1 80", nil, `"80" stands alone`},
		{"-y", nil, `unknown flag "-y"`},
		{"", groups, "ISTIO_OUTBOUND_OWNER_GROUPS: 65 groups: want at most 64"},
		{"", map[string]string{"ISTIO_OUTBOUND_OWNER_GROUPS": "java"}, `"java": want an id`},
		{"", map[string]string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "10.0.0.0/8"},
			`ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: "10.0.0.0/8": want a CIDR within 127.0.0.0/8`},
		{"", map[string]string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.0/7"},
			`"127.0.0.0/7": want a CIDR within 127.0.0.0/8`},
		{"", map[string]string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "::1/128"},
			`"::1/128": want a CIDR within 127.0.0.0/8`},
		{"", map[string]string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": ""},
			`"": want a CIDR within 127.0.0.0/8`},
	} {
		got, err := Write(words(row.line), row.env, Pod{IPv6: true})
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s, %v: %v: want %s in it", row.line, row.env, err, row.want)
		}
		if diff := cmp.Diff(Listing{}, got); diff != "" {
			t.Errorf("%s, %v: a listing beside the error:\n%s", row.line, row.env, diff)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	groups := strings.TrimSuffix(strings.Repeat("1,", 64), ",")
	env := map[string]string{"ISTIO_OUTBOUND_OWNER_GROUPS": groups}
	line := "-p 65535 -z 1 -u 4294967294 -b 0,65535 -c fifteen-letters -t 4294967295"
	l, err := Write(words(line), env, Pod{})
	if err != nil || strings.Count(l.IPv4, "! --gid-owner 1 ") != 64 {
		t.Errorf("%v, %s", err, l.IPv4)
	}
}

func TestAllMistakesComeAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Write([]string{"-p", "x", "-b", "a,80,b"}, nil, Pod{})
	for _, want := range []string{`-p: "x"`, `-b: "a"`, `-b: "b"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s in it", err, want)
		}
	}
}

// iptables-restore passes over blanks, so istio-init's lists may have them.
func TestBlanksAroundItems(t *testing.T) {
	t.Parallel()
	plain, err := Write(words("-b * -d 80,81 -u 1,2 -k vm0"), nil, Pod{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Write([]string{"-b", "*", "-d", "80, 81", "-u", "1, 2", "-k", " vm0"}, nil, Pod{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain, got); diff != "" {
		t.Errorf("listing (-without +with blanks):\n%s", diff)
	}
	if _, err := Write([]string{"-i", "10.0.0.0/8, 10.1.0.0/16"}, nil, Pod{}); err == nil {
		t.Error("a blank before a CIDR: istio-init reads these itself, and refuses it")
	}
}
