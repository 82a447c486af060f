package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// A census knows which process is which pod's. Processes are counted once, and only if somebody
// asks.
type census struct {
	proc  string // the host's
	known map[string]bool
	count func() (map[string][]int, error)
}

func newCensus(proc string, uids []string) *census {
	c := &census{proc: proc, known: map[string]bool{}}
	for _, uid := range uids {
		c.known[uid] = true
	}
	c.count = sync.OnceValues(c.take)
	return c
}

func (c *census) file(pid int, name string) string {
	return filepath.Join(c.proc, strconv.Itoa(pid), name)
}

func (c *census) take() (map[string][]int, error) {
	dir, err := os.Open(c.proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	pids := map[string][]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if uid := c.podOf(pid); uid != "" {
			pids[uid] = append(pids[uid], pid)
		}
	}
	return pids, nil
}

// podOf returns the uid of the pod whose a process is, if it is anybody's.
func (c *census) podOf(pid int) string {
	data, err := os.ReadFile(c.file(pid, "cgroup"))
	if err != nil {
		return "" // it has ended
	}
	return podIn(string(data), c.known)
}

// podIn reads /proc/<pid>/cgroup: a line a hierarchy, or one for cgroup v2. The kubelet calls a
// pod's cgroup
//
//	pod<uid>                           with the driver cgroupfs
//	kubepods[-besteffort]-pod<uid>.slice, the dashes of the uid being underlines   with systemd
//
// and a runtime that is configured with another driver puts both into one name, before a colon. Of
// several, a pod within a pod, the first known one counts: what is below was made by the pod
// itself.
func podIn(cgroups string, known map[string]bool) string {
	for line := range strings.Lines(cgroups) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, path, _ := strings.Cut(rest, ":")
		for part := range strings.FieldsFuncSeq(path,
			func(r rune) bool { return r == '/' || r == ':' }) {
			if uid := uidOf(part); known[uid] {
				return uid
			}
		}
	}
	return ""
}

func uidOf(part string) string {
	uid, ok := strings.CutPrefix(strings.TrimSuffix(part, ".slice"), "pod")
	if !ok {
		_, uid, ok = strings.Cut(strings.TrimSuffix(part, ".slice"), "-pod")
	}
	if !ok {
		return ""
	}
	return strings.ReplaceAll(uid, "_", "-")
}

// ContainerIn reads /proc/<pid>/cgroup and returns the id of the pod's container: what stands below
// the pod, without what runtimes put around it; "" of a process that is in no pod.
func ContainerIn(cgroups string) string {
	for line := range strings.Lines(cgroups) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, path, _ := strings.Cut(rest, ":")
		inPod := false
		for part := range strings.FieldsFuncSeq(path,
			func(r rune) bool { return r == '/' || r == ':' }) {
			switch {
			case !inPod:
				inPod = uidOf(part) != ""
			case part == "cri-containerd": // a runtime's name of its own, before a colon
			default:
				id := strings.TrimSuffix(part, ".scope")
				return id[strings.LastIndexByte(id, '-')+1:]
			}
		}
	}
	return ""
}

// initProcesses are the processes of a pod that were not started by another one in it, but by the
// runtime. CRI-O's conmon can be in the pod's cgroup; then it is in the host's network, and those
// that it started count.
func (c *census) initProcesses(uid string, host podns.Host) ([]int, error) {
	all, err := c.count()
	if err != nil {
		return nil, err
	}
	inside := map[int]bool{}
	for _, pid := range all[uid] {
		id, err := podns.Identify(c.file(pid, "ns/net"))
		inside[pid] = err != nil || !host.Has(id)
	}
	var initProcesses []int
	for _, pid := range all[uid] {
		parent, err := c.parent(pid)
		if err == nil && inside[pid] && !inside[parent] {
			initProcesses = append(initProcesses, pid)
		}
	}
	return initProcesses, nil
}

// parent reads /proc/<pid>/stat, where the name of the program may have anything in it but ends
// with the last parenthesis.
func (c *census) parent(pid int) (int, error) {
	data, err := os.ReadFile(c.file(pid, "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 2 {
		return 0, errors.New("read process: no parent")
	}
	return strconv.Atoi(fields[1])
}

// age is how long ago a process was started, 0 if that is not known. Both files count from the
// boot, the one in hundredths of a second (USER_HZ) in the 22nd field.
func (c *census) age(pid int) time.Duration {
	data, err := os.ReadFile(c.file(pid, "stat"))
	uptime, err2 := os.ReadFile(filepath.Join(c.proc, "uptime"))
	if err != nil || err2 != nil {
		return 0
	}
	const behindName = 22 - 2 // the fields behind the second, which is the name
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < behindName {
		return 0
	}
	began, err := strconv.ParseInt(fields[behindName-1], 10, 64)
	up, err2 := strconv.ParseFloat(strings.Fields(string(uptime) + " 0")[0], 64)
	if err != nil || err2 != nil {
		return 0
	}
	return time.Duration(up*float64(time.Second)) - time.Duration(began)*(time.Second/100)
}

// MountOf returns where the host has a network namespace mounted, which is where the runtime said
// it was.
func (s *Search) MountOf(id podns.ID) (string, bool) {
	data, err := os.ReadFile(s.census.file(1, "mountinfo"))
	if err != nil {
		return "", false
	}
	root := fmt.Sprintf("net:[%d]", id.Inode)
	for line := range strings.Lines(string(data)) {
		// The fields are described in proc_pid_mountinfo(5).
		if fields := strings.Fields(line); len(fields) > 4 && fields[3] == root {
			return fields[4], true
		}
	}
	return "", false
}
