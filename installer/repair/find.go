package repair

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// A search finds the network namespaces of pods.
type search struct {
	host    podns.Host
	records []record.Record
	census  *census
}

// A place is where a pod's network namespace was found.
type place struct {
	ns     *podns.Namespace
	netns  record.Netns
	record *record.Record // the one about this very namespace; nil without
	age    time.Duration  // of the oldest process that it was found by; 0 with a record
}

// find opens the namespace of a pod: that of its records, else that of its processes.
func (s search) find(one *subject) (*place, error) {
	var errs []error
	for i := range one.records {
		rec := &one.records[i]
		n, err := s.host.Open(s.seen(rec.Netns.Path))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("by record: %w", explain(err)))
		case n.ID != idOf(rec.Netns):
			n.Close()
			errs = append(errs, fmt.Errorf("by record: %s is %d by now, recorded was %d",
				rec.Netns.Path, n.ID.Inode, rec.Netns.Inode))
		default:
			return &place{ns: n, netns: rec.Netns, record: rec}, nil
		}
	}
	n, netns, age, err := s.byProcess(one.pod.UID)
	if err != nil {
		return nil, errors.Join(append(errs, fmt.Errorf("by cgroup: %w", err))...)
	}
	p := &place{ns: n, netns: netns, age: age}
	for i := range one.records {
		if rec := &one.records[i]; idOf(rec.Netns) == n.ID {
			p.record = rec
		}
	}
	return p, nil
}

// byProcess opens the namespace that the first processes of a pod's containers are in. Deeper down
// others may be, where a pod runs containers of its own. What a runtime keeps in a pod's cgroup is
// in the host's and does not count.
func (s search) byProcess(uid types.UID) (
	found *podns.Namespace, netns record.Netns, age time.Duration, err error) {
	if s.host.Unknown != nil {
		return nil, record.Netns{}, 0,
			fmt.Errorf("identify the host's network namespace: %w", explain(s.host.Unknown))
	}
	pids, err := s.census.initProcesses(uid, s.host)
	if err != nil {
		return nil, record.Netns{}, 0, err
	}
	why := errors.New("the pod has no process")
	for _, pid := range pids {
		n, err := s.openProcess(pid, uid)
		if err == nil {
			age = max(age, s.census.age(pid))
		}
		switch {
		case err != nil:
			why = err
		case found == nil:
			found, netns = n, record.Netns{Path: fmt.Sprintf("/proc/%d/ns/net", pid),
				Device: n.ID.Device, Inode: n.ID.Inode}
		case found.ID != n.ID:
			n.Close()
			found.Close()
			return nil, record.Netns{}, 0, fmt.Errorf("its containers are in two network "+
				"namespaces, %d and %d: which is the pod's is not known",
				found.ID.Inode, n.ID.Inode)
		default:
			n.Close()
		}
	}
	if found == nil {
		return nil, record.Netns{}, 0, why
	}
	return found, netns, age, nil
}

// openProcess opens the namespace of a process, which is still the pod's when that is done: ids are
// used again.
func (s search) openProcess(pid int, uid types.UID) (*podns.Namespace, error) {
	n, err := s.host.Open(s.census.file(pid, "ns/net"))
	if err != nil {
		return nil, explain(err)
	}
	if s.census.podOf(pid) != uid {
		n.Close()
		return nil, fmt.Errorf("process %d ended meanwhile", pid)
	}
	return n, nil
}

// seen is a path of the host's, as it is seen here.
func (s search) seen(path string) string {
	if in, ok := strings.CutPrefix(path, "/proc/"); ok {
		return filepath.Join(s.census.proc, in)
	}
	return path
}
