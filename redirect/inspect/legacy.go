package inspect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// A protocol is a family of legacy iptables: where the kernel lists its tables, how they are
// asked for, and where in an entry the offsets of its target and of the next entry are, and its
// counter (linux/netfilter_ipv4/ip_tables.h and its neighbour).
type protocol struct {
	name     string
	family   redirect.Family
	domain   int
	level    int
	targets  int
	counters int
}

var protocols = []protocol{
	{"ip", redirect.IPv4, unix.AF_INET, unix.IPPROTO_IP, 88, 96},
	{"ip6", redirect.IPv6, unix.AF_INET6, unix.IPPROTO_IPV6, 140, 152},
}

// The kernel's interface (linux/netfilter/x_tables.h).
const (
	getInfo    = 64
	getEntries = 65
	infoLen    = 84 // struct ipt_getinfo; its last word is the length of the entries
	headLen    = 40 // of struct ipt_get_entries
	nameLen    = 32
	targetName = 2  // in struct xt_entry_target, behind its length
	chainName  = 32 // of an ERROR target, with which a chain begins
)

// maxTable bounds a table, of which the dearest pod's takes 5 MB.
const maxTable = 16 << 20

var errBroken = errors.New("the kernel's table is not as linux/netfilter_ipv4/ip_tables.h says")

// readLegacy reads the chains of the tables in which rules redirect. It asks only for tables that
// are there: the kernel would make the others.
func readLegacy(to Proxy) ([]*chain, error) {
	var chains []*chain
	for _, p := range protocols {
		tables, err := traces.LegacyTables(p.family)
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("%w: in a namespace of another user namespace this needs "+
				"CAP_DAC_READ_SEARCH", err)
		}
		if err != nil {
			return nil, err
		}
		for _, table := range tables {
			if !slices.Contains([]string{"nat", "mangle", "raw"}, table) {
				continue
			}
			t, err := p.read(table)
			if err == nil {
				err = t.parse(to)
			}
			if err != nil {
				return nil, fmt.Errorf("table %s %s: %w", p.name, table, err)
			}
			chains = append(chains, t.chains...)
		}
	}
	return chains, nil
}

// A legacyTable is a table as the kernel keeps it: entry behind entry, each with the offset of
// the next.
type legacyTable struct {
	of   protocol
	name string
	// where the chains of hooks begin; true of those that see the pod's traffic
	hooks   map[int]bool
	entries []byte
	chains  []*chain // what parse has found
}

// read returns a table. One that changed its length meanwhile is read again.
func (p protocol) read(table string) (*legacyTable, error) {
	fd, err := unix.Socket(p.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	const tries = 5
	for range tries {
		info := make([]byte, infoLen)
		copy(info, table)
		if err := getsockopt(fd, p.level, getInfo, info); err != nil {
			return nil, err
		}
		size := binary.NativeEndian.Uint32(info[infoLen-4:])
		if size > maxTable {
			return nil, wire.ErrTooMuch
		}
		all := make([]byte, headLen+int(size))
		copy(all, table)
		binary.NativeEndian.PutUint32(all[nameLen:], size)
		err := getsockopt(fd, p.level, getEntries, all)
		if err == nil {
			return &legacyTable{of: p, name: table, hooks: hooksIn(info), entries: all[headLen:]},
				nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
	}
	return nil, errors.New("it changed while it was read, again and again")
}

// hooksIn reads where the chains of hooks begin: behind the name there is a bit for each hook
// that the table has, and then the offset of each.
func hooksIn(info []byte) map[int]bool {
	hooks := map[int]bool{}
	valid := binary.NativeEndian.Uint32(info[nameLen:])
	for hook := range unix.NF_INET_NUMHOOKS {
		if valid&(1<<hook) != 0 {
			at := int(binary.NativeEndian.Uint32(info[nameLen+4*(1+hook):]))
			hooks[at] = hook == unix.NF_INET_PRE_ROUTING || hook == unix.NF_INET_LOCAL_OUT
		}
	}
	return hooks
}

// getsockopt asks with what is in the buffer, which golang.org/x/sys does not do.
func getsockopt(fd, level, option int, buffer []byte) error {
	length := uint32(len(buffer))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// parse reads entry by entry. Offsets that lead astray are an error: what is not understood must
// not pass for nothing.
func (t *legacyTable) parse(to Proxy) error {
	var now *chain
	for at := 0; at < len(t.entries); {
		entry, err := t.entry(at)
		if err != nil {
			return err
		}
		target := entry[t.targetOf(entry):]
		sees, hook := t.hooks[at]
		if hook {
			now = t.begin(at, "")
			now.hooked = sees
		}
		// The chain begins behind the target ERROR, which has its name.
		if name := wire.Text(target[targetName:chainName]); name == "ERROR" {
			now = t.begin(at+len(entry), wire.Text(target[chainName:]))
		} else if now != nil {
			now.rules = append(now.rules, t.rule(entry, at+len(entry), to))
		}
		at += len(entry)
	}
	for _, c := range t.chains { // each ends with its policy, which nobody has written as a rule
		c.rules = c.rules[:max(0, len(c.rules)-1)]
	}
	return nil
}

// begin makes the chain whose first entry is at an offset.
func (t *legacyTable) begin(at int, name string) *chain {
	c := &chain{key: t.key(at), name: name}
	c.where = fmt.Sprintf("chain %s of legacy table %s %s", name, t.of.name, t.name)
	if name == "" {
		c.where = fmt.Sprintf("a hook's chain of legacy table %s %s", t.of.name, t.name)
	}
	t.chains = append(t.chains, c)
	return c
}

func (t *legacyTable) key(at int) string {
	return fmt.Sprintf("legacy %s %s %d", t.of.name, t.name, at)
}

// entry returns the one at an offset.
func (t *legacyTable) entry(at int) ([]byte, error) {
	rest := t.entries[at:]
	if len(rest) < t.of.counters+16 {
		return nil, errBroken
	}
	target, next := t.targetOf(rest), int(binary.NativeEndian.Uint16(rest[t.of.targets+2:]))
	if target < t.of.counters+16 || next < target+chainName || next > len(rest) {
		return nil, errBroken
	}
	return rest[:next], nil
}

func (t *legacyTable) targetOf(entry []byte) int {
	return int(binary.NativeEndian.Uint16(entry[t.of.targets:]))
}

// rule reads a rule before the offset next. The standard target, which has no name, jumps to an
// offset, or it is a verdict below 0; a rule without a target jumps to the next one.
func (t *legacyTable) rule(entry []byte, next int, to Proxy) rule {
	target := entry[t.targetOf(entry):]
	r := rule{ours: bytes.Contains(entry, []byte(iptables.Tag)), counted: true}
	r.packets = binary.NativeEndian.Uint64(entry[t.of.counters:])
	x := xtTarget{
		name: wire.Text(target[targetName:chainName]), info: target[chainName:],
		ipv6: t.of.domain == unix.AF_INET6,
	}
	switch {
	case x.redirects():
		r.redirects, r.captures = true, x.captures(to)
	case x.name == "" && len(x.info) >= 4:
		verdict := int32(binary.NativeEndian.Uint32(x.info))
		if verdict >= 0 && int(verdict) != next {
			r.jumps = []string{t.key(int(verdict))}
		}
	}
	return r
}
