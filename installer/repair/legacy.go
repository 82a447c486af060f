package repair

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A protocol is a family of legacy iptables: where the kernel lists its tables, how they are asked for, and where in an
// entry the offsets of its target and of the next entry are (linux/netfilter_ipv4/ip_tables.h and its neighbour).
type protocol struct {
	name    string
	tables  string
	domain  int
	level   int
	targets int
}

var protocols = []protocol{
	{"ip", "/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.IPPROTO_IP, 88},
	{"ip6", "/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.IPPROTO_IPV6, 140},
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

var errBroken = errors.New("the kernel's table is not as linux/netfilter_ipv4/ip_tables.h says")

// lookLegacy asks only for tables that are there: the kernel would make the others.
func lookLegacy() ([]sign, error) {
	var signs []sign
	for _, p := range protocols {
		names, err := os.ReadFile(p.tables)
		if errors.Is(err, fs.ErrNotExist) {
			continue // this kernel has none
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("%w: in a namespace of another user namespace this needs CAP_DAC_READ_SEARCH", err)
		}
		if err != nil {
			return nil, err
		}
		for table := range strings.FieldsSeq(string(names)) {
			if !slices.Contains([]string{"nat", "mangle", "raw"}, table) {
				continue
			}
			entries, err := p.read(table)
			if err != nil {
				return nil, fmt.Errorf("table %s %s: %w", p.name, table, err)
			}
			found, err := p.signs(table, entries)
			if err != nil {
				return nil, fmt.Errorf("table %s %s: %w", p.name, table, err)
			}
			signs = append(signs, found...)
		}
	}
	return signs, nil
}

// read returns a table's entries. One that changed its length meanwhile is read again.
func (p protocol) read(table string) ([]byte, error) {
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
		all := make([]byte, headLen+int(size))
		copy(all, table)
		binary.NativeEndian.PutUint32(all[nameLen:], size)
		err := getsockopt(fd, p.level, getEntries, all)
		if err == nil {
			return all[headLen:], nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
	}
	return nil, errors.New("it changed while it was read, again and again")
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

// signs reads entry by entry. Offsets that lead astray are an error: what is not understood must not pass for nothing.
func (p protocol) signs(table string, entries []byte) ([]sign, error) {
	var signs []sign
	chain := "a hook's chain" // those come first
	for len(entries) > 0 {
		if len(entries) < p.targets+4 {
			return nil, errBroken
		}
		target := int(binary.NativeEndian.Uint16(entries[p.targets:]))
		next := int(binary.NativeEndian.Uint16(entries[p.targets+2:]))
		if target <= p.targets || next < target+chainName || next > len(entries) {
			return nil, errBroken
		}
		entry := entries[:next]
		name := text(entry[target+targetName : target+chainName])
		begins := name == "ERROR"
		if begins {
			chain = "chain " + text(entry[target+chainName:])
		}
		if redirectsTarget(name) || begins && strings.HasPrefix(chain, "chain "+meshChains) {
			where := fmt.Sprintf("%s of legacy table %s %s", chain, p.name, table)
			signs = append(signs, sign{where, bytes.Contains(entry, []byte(ownComment))})
		}
		entries = entries[next:]
	}
	return signs, nil
}
