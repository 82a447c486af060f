// Package legacy reads the tables of legacy iptables as the kernel keeps them: entry behind entry,
// in the namespace of the calling thread.
//
//	table, err := legacy.Layouts[0].Read("nat")
//	entries, err := table.Entries()
//
// Be aware: the kernel makes a table that is asked for. Ask for those that package traces lists.
package legacy

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// Layout is how the kernel keeps the entries of a family (struct ipt_entry,
// linux/netfilter_ipv4/ip_tables.h, and its neighbour for IPv6).
type Layout struct {
	Name   string          // as nft calls the family: ip or ip6
	Family redirect.Family // the same as a value of ours

	domain, level int
	targets       int // the offset of the target's, and behind it that of the next entry
	counters      int // behind them are the matches
}

// Layouts are those of both families.
var Layouts = []Layout{
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
	countersOf = 16 // packets and bytes
)

// ExtensionHead is what a match or a target begins with: its length, its name, its revision.
const ExtensionHead = 32

// maxTable bounds a table, of which the dearest pod's takes 5 MB.
const maxTable = 16 << 20

var (
	errBroken   = errors.New("the kernel's table is not as linux/netfilter_ipv4/ip_tables.h says")
	errUnsteady = errors.New("it changed while it was read, again and again")
)

// Table is one as the kernel keeps it.
type Table struct {
	Layout // of the table's family

	Name  string      // such as nat
	Hooks map[int]int // where the chains of hooks begin: hooks, as NF_INET_PRE_ROUTING, by offset
	Data  []byte      // entry behind entry
}

// Read reads a table. One that changed its length meanwhile is read again.
func (l Layout) Read(table string) (Table, error) {
	fd, err := unix.Socket(l.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Table{}, err
	}
	defer unix.Close(fd)
	const tries = 5
	for range tries {
		info := make([]byte, infoLen)
		copy(info, table)
		if err := wire.Getsockopt(fd, l.level, getInfo, info); err != nil {
			return Table{}, err
		}
		size := binary.NativeEndian.Uint32(info[infoLen-4:])
		if size > maxTable {
			return Table{}, wire.ErrTooMuch
		}
		all := make([]byte, headLen+int(size))
		copy(all, table)
		binary.NativeEndian.PutUint32(all[nameLen:], size)
		err := wire.Getsockopt(fd, l.level, getEntries, all)
		if err == nil {
			return Table{l, table, hooksIn(info), all[headLen:]}, nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return Table{}, err
		}
	}
	return Table{}, errUnsteady
}

// hooksIn reads where the chains of hooks begin: behind the name there is a bit for each hook that
// the table has, and then the offset of each.
func hooksIn(info []byte) map[int]int {
	hooks := map[int]int{}
	valid := binary.NativeEndian.Uint32(info[nameLen:])
	for hook := range unix.NF_INET_NUMHOOKS {
		if valid&(1<<hook) != 0 {
			hooks[int(binary.NativeEndian.Uint32(info[nameLen+4*(1+hook):]))] = hook
		}
	}
	return hooks
}

// Entry is one of a table: a rule, or the beginning of a chain.
type Entry struct {
	At   int    // its offset, which jumps name it by
	Data []byte // from the addresses that it matches to the end of its target

	layout Layout
}

// Entries are those of a table. Offsets that lead astray are an error: what is not understood must
// not pass for nothing.
func (t Table) Entries() ([]Entry, error) {
	var all []Entry
	for at := 0; at < len(t.Data); {
		rest := t.Data[at:]
		matches := t.counters + countersOf
		if len(rest) < matches {
			return nil, errBroken
		}
		e := Entry{at, rest, t.Layout}
		next := int(binary.NativeEndian.Uint16(rest[t.targets+2:]))
		if e.target() < matches || next < e.target()+ExtensionHead || next > len(rest) {
			return nil, errBroken
		}
		e.Data = rest[:next]
		all = append(all, e)
		at = e.Next()
	}
	return all, nil
}

func (e Entry) target() int { return int(binary.NativeEndian.Uint16(e.Data[e.layout.targets:])) }

// Next is the offset of the entry behind it.
func (e Entry) Next() int { return e.At + len(e.Data) }

// Matches are its extensions before the target, one behind the other.
func (e Entry) Matches() []byte { return e.Data[e.layout.counters+countersOf : e.target()] }

// Target is what it does, and its parameters, of which there may be none.
func (e Entry) Target() (name string, info []byte) { return Extension(e.Data[e.target():]) }

// Begins returns the name of the chain that begins behind the entry, which then is no rule.
func (e Entry) Begins() (chain string, ok bool) {
	name, info := e.Target()
	return wire.Text(info), name == "ERROR"
}

// Verdict returns what the standard target does: an offset that it jumps to, or a verdict below 0.
// Other targets have a name.
func (e Entry) Verdict() (to int, ok bool) {
	name, info := e.Target()
	if name != "" || len(info) < 4 {
		return 0, false
	}
	return int(int32(binary.NativeEndian.Uint32(info))), true
}

// Counter is what has met the entry.
func (e Entry) Counter() (packets, bytes uint64) {
	c := e.Data[e.layout.counters:]
	return binary.NativeEndian.Uint64(c), binary.NativeEndian.Uint64(c[8:])
}

// Extension is the name of a match or a target, and its parameters.
func Extension(data []byte) (name string, info []byte) {
	const afterLength = 2
	return wire.Text(data[afterLength : ExtensionHead-1]), data[ExtensionHead:]
}
