package audit

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// Search finds the network namespaces of a node's pods.
type Search struct {
	host   podns.Host
	census *census
}

// NewSearch returns a search for the pods with these uids. proc is where the host's /proc is, "" if
// it is nowhere.
func NewSearch(host podns.Host, proc string, uids []string) *Search {
	return &Search{host, newCensus(proc, uids)}
}

// Find opens the namespace of a pod: that of its records, else that of its processes.
func (s *Search) Find(pod Pod) (*Place, error) {
	var errs []error
	for i := range pod.Records {
		rec := &pod.Records[i]
		n, err := s.host.Open(s.seen(rec.Netns.Path))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("by record: %w", explain(err)))
		case n.ID != IDOf(rec.Netns):
			n.Close()
			errs = append(errs, fmt.Errorf("by record: %s is %d by now, recorded was %d",
				rec.Netns.Path, n.ID.Inode, rec.Netns.Inode))
		default:
			return &Place{NS: n, Netns: rec.Netns, Record: rec}, nil
		}
	}
	n, netns, age, err := s.byProcess(pod.UID)
	if err != nil {
		return nil, errors.Join(append(errs, fmt.Errorf("by cgroup: %w", err))...)
	}
	p := &Place{NS: n, Netns: netns, Age: age}
	for i := range pod.Records {
		if rec := &pod.Records[i]; IDOf(rec.Netns) == n.ID {
			p.Record = rec
		}
	}
	return p, nil
}

// byProcess opens the namespace that the first processes of a pod's containers are in. Deeper down
// others may be, where a pod runs containers of its own. What a runtime keeps in a pod's cgroup is
// in the host's and does not count.
func (s *Search) byProcess(uid string) (
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
func (s *Search) openProcess(pid int, uid string) (*podns.Namespace, error) {
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
func (s *Search) seen(path string) string {
	if in, ok := strings.CutPrefix(path, "/proc/"); ok {
		return filepath.Join(s.census.proc, in)
	}
	return path
}
