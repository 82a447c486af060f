package verify

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// Lacks names what looking into pods takes and this program does not have: mounts, rights, and the
// host's processes. proc is where the node's /proc is, "" if nowhere.
func Lacks(proc string) []string {
	var all []string
	if !anyDir("/run/netns", "/var/run/netns") {
		all = append(all, "the network namespaces: they take the mount /run/netns, or "+
			"/var/run/netns, where the node has it")
	}
	if lacks := lackingRights(); len(lacks) > 0 {
		all = append(all, "the inside of network namespaces: that takes the capabilities "+
			strings.Join(lacks, ", "))
	}
	if proc == "" || alone(proc) {
		all = append(all, "the node's processes: they take hostPID")
	}
	return all
}

func anyDir(paths ...string) bool {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return true
		}
	}
	return false
}

// initialPIDs is the inode of the first namespace of processes (PROC_PID_INIT_INO in the kernel's
// sources), in which all are seen.
const initialPIDs = 0xEFFFFFFC

// alone reports whether process 1 is in this program's own container: then no others are seen.
func alone(proc string) bool {
	if id, err := podns.Identify(filepath.Join(proc, "self/ns/pid")); err == nil &&
		id.Inode == initialPIDs {
		return false
	}
	first, err := os.ReadFile(filepath.Join(proc, "1/cgroup"))
	own, err2 := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	root, err3 := os.Stat(filepath.Join(proc, "1/root/."))
	ours, err4 := os.Stat("/.")
	return err == nil && err2 == nil && string(first) == string(own) &&
		err3 == nil && err4 == nil && os.SameFile(root, ours)
}

// rights are what it takes to look into a namespace.
var rights = []struct {
	name string
	bit  uint
}{
	{"NET_ADMIN", unix.CAP_NET_ADMIN},
	{"SYS_ADMIN", unix.CAP_SYS_ADMIN},
	{"SYS_PTRACE", unix.CAP_SYS_PTRACE},
}

// lackingRights are those that this program does not have.
func lackingRights() []string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return nil
	}
	var all []string
	for _, r := range rights {
		if data[r.bit/32].Effective&(1<<(r.bit%32)) == 0 {
			all = append(all, r.name)
		}
	}
	return all
}
