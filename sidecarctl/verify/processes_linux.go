package verify

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/sockets"
)

// processes are those in a network namespace.
type processes struct {
	proc string
	all  []process
	ids  identities
}

// A process is one of them.
type process struct {
	shown Process
	// The real, effective and file system's ones, as the pod has them. The last are those of the
	// sockets that it makes, and a process may change from one to another.
	uids, gids []uint32
}

// unseen says why the processes of a pod are not seen.
const unseen = "its processes: none is seen, which takes hostPID and the capability SYS_PTRACE; " +
	"an agent has both unless repair.mode is off, and AppArmor's default profile denies the latter"

// processesIn returns the processes in a namespace, or else why they are not seen. Where all are
// seen there may be none in it.
func processesIn(proc string, in *podns.Namespace) (p processes, lack string) {
	p = processes{proc: proc, ids: identities{whole, whole}}
	if proc == "" {
		return p, unseen
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return p, "its processes: " + err.Error()
	}
	var inside []int
	seen, denied := false, alone(proc)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		its, err := podns.Identify(filepath.Join(proc, entry.Name(), "ns/net"))
		seen = seen || err == nil
		denied = denied || pid != 1 && errors.Is(err, fs.ErrPermission) // that one is no pod's
		if err == nil && its == in.ID {
			inside = append(inside, pid)
		}
	}
	if len(inside) > 0 {
		if p.ids, err = identitiesIn(proc, entries, in); err != nil {
			return p, "its processes: " + err.Error()
		}
	}
	for _, pid := range inside {
		if one, err := p.read(pid); err == nil {
			p.all = append(p.all, one)
		}
	}
	if len(p.all) > 0 || seen && !denied {
		return p, ""
	}
	return p, unseen
}

// read reads a process, unless it has ended.
func (p processes) read(pid int) (process, error) {
	dir := filepath.Join(p.proc, strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return process{}, err
	}
	cgroups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return process{}, err
	}
	one := process{shown: Process{PID: pid, Container: audit.ContainerIn(string(cgroups))}}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		switch key {
		case "Name":
			one.shown.Name = strings.TrimSpace(value)
		case "Uid":
			one.uids = p.ids.users.all(value)
		case "Gid":
			one.gids = p.ids.groups.all(value)
		}
	}
	if len(one.uids) == 0 || len(one.gids) == 0 {
		return process{}, errors.New("read process: no user or group")
	}
	one.shown.UID, one.shown.GID = one.uids[1], one.gids[1]
	return one, nil
}

// all reads the real, effective, saved and file system's ids of a process, and leaves the saved
// one out.
func (m idMap) all(line string) []uint32 {
	fields := strings.Fields(line)
	if len(fields) != 4 {
		return nil
	}
	var ids []uint32
	for _, i := range []int{0, 1, 3} {
		id, err := strconv.ParseUint(fields[i], 10, 32)
		if err != nil {
			return nil
		}
		ids = append(ids, m.inside(uint32(id)))
	}
	return ids
}

// identities translate ids of this program's user namespace into those of the pod's, where rules
// compare them.
type identities struct{ users, groups idMap }

// An idMap has the lines of /proc/PID/uid_map, see user_namespaces(7).
type idMap []idRange

type idRange struct{ inside, outside, length uint32 }

// whole is the map of who has no user namespace of his own.
var whole = idMap{{0, 0, math.MaxUint32}}

// identitiesIn are those of a pod, whose rules compare ids of the user namespace that its network
// namespace belongs to. A process may have made one more for itself, in which it is whoever it
// likes: what counts is the map of one that is in the owner.
func identitiesIn(proc string, entries []os.DirEntry, in *podns.Namespace) (identities, error) {
	if !in.Foreign() {
		return identities{whole, whole}, nil
	}
	owner, err := in.Owner()
	if err != nil {
		return identities{}, err
	}
	for _, entry := range entries {
		dir := filepath.Join(proc, entry.Name())
		if its, err := podns.Identify(filepath.Join(dir, "ns/user")); err == nil && its == owner {
			return identities{readMap(filepath.Join(dir, "uid_map")),
				readMap(filepath.Join(dir, "gid_map"))}, nil
		}
	}
	return identities{}, errors.New("none is seen in the user namespace that its network " +
		"namespace belongs to: what their users are called there is not known")
}

func readMap(path string) idMap {
	data, err := os.ReadFile(path)
	if err != nil {
		return whole
	}
	var m idMap
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var r idRange
		if _, err := fmt.Sscan(lines.Text(), &r.inside, &r.outside, &r.length); err == nil {
			m = append(m, r)
		}
	}
	if m == nil {
		return whole
	}
	return m
}

// inside is an id as the pod has it. One that the pod does not have stays as it is.
func (m idMap) inside(id uint32) uint32 {
	for _, r := range m {
		if id >= r.outside && id-r.outside < r.length {
			return r.inside + (id - r.outside)
		}
	}
	return id
}

// maxFiles is how many open files are looked at in a pod.
const maxFiles = 1 << 17

// owners are the processes that have sockets, by the sockets' inodes; of several the first.
func (p processes) owners(takes map[redirect.Protocol][]sockets.Socket) map[uint32]*Process {
	wanted := map[string]uint32{}
	for _, all := range takes {
		for _, s := range all {
			wanted[fmt.Sprintf("socket:[%d]", s.Inode)] = s.Inode
		}
	}
	owners, files := map[uint32]*Process{}, 0
	for i := range p.all {
		dir := filepath.Join(p.proc, strconv.Itoa(p.all[i].shown.PID), "fd")
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended, or is not ours to look into
		}
		for _, entry := range entries {
			if files++; files > maxFiles || len(owners) == len(wanted) {
				return owners
			}
			to, err := os.Readlink(filepath.Join(dir, entry.Name()))
			inode, ok := wanted[to]
			if err == nil && ok && owners[inode] == nil {
				owners[inode] = &p.all[i].shown
			}
		}
	}
	return owners
}

// exempt reports whether the rules take what a process sends for the proxy's.
func (x process) exempt(proxy redirect.Identity) bool {
	return common(x.uids, proxy.UIDs) || common(x.gids, proxy.GIDs)
}

func common(a, b []uint32) bool {
	return slices.ContainsFunc(a, func(id uint32) bool { return slices.Contains(b, id) })
}
