package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/redirect/hostroot"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

// A spot is the network namespace of a pod, on this node.
type spot struct {
	subject subject
	place   *audit.Place
	pod     audit.Pod
	auditor audit.Auditor
}

func (s *spot) close() { s.place.Close() }

// A finder finds the network namespaces of some pods.
type finder struct {
	env     env
	options *options
	host    podns.Host
	search  *audit.Search
	err     error // for which none can be found
}

func (e env) newFinder(o *options, subjects []subject) finder {
	var uids []string
	for _, s := range subjects {
		uids = append(uids, s.pod.NodeUID)
	}
	f := finder{env: e, options: o}
	f.host, f.err = podns.FindHost(hostProc, "sidecarctl")
	f.search = audit.NewSearch(f.host, hostProc, uids)
	return f
}

// find opens the network namespace of a pod. The error is errElsewhere where it can be asked for
// on another node.
func (f finder) find(s subject) (*spot, error) {
	e, o := f.env, f.options
	if f.err != nil {
		return nil, f.err
	}
	at := &spot{subject: s, pod: audit.Pod{UID: s.pod.NodeUID, Addrs: s.pod.IPs,
		Policy: s.decision.Policy, Mistake: s.mistake}}
	at.auditor = audit.Auditor{Records: record.Dir(filepath.Join(e.dirs.Run, names.Records)),
		Ports: s.config.Ports, Backend: s.backend}
	if o.hostRoot != "" {
		at.auditor.InRoot = func(do func() error) error { return hostroot.InRoot(o.hostRoot, do) }
	}
	at.pod.Records = s.records
	var err error
	if o.path() != "" {
		at.place, err = o.open(f.host, at.pod.Records)
		return at, err
	}
	elsewhere := o.cluster != nil && !o.here
	switch {
	case s.pod.NodeUID == "":
		return nil, fmt.Errorf("%s: it is no running pod: name one as NAMESPACE/POD, or its "+
			"network namespace by --pid or --netns on its node", s.pod.Name)
	case elsewhere && !e.root:
		return nil, errElsewhere
	case !e.root:
		return nil, fmt.Errorf("%s: looking into its network namespace takes root on its node: "+
			"run this there, or name the pod as NAMESPACE/POD to have its node's agent do it",
			s.pod.Name)
	}
	if at.place, err = f.search.Find(at.pod); err != nil && elsewhere {
		return nil, errElsewhere
	}
	if err != nil {
		return nil, fmt.Errorf("%s: its network namespace was not found: %w", s.pod.Name, err)
	}
	return at, nil
}

// open opens the network namespace that the flags name.
func (o *options) open(host podns.Host, records []record.Record) (*audit.Place, error) {
	n, err := host.Open(o.path())
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.pid != 0:
		return nil, fmt.Errorf("--pid %d: there is no such process on this machine", o.pid)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: this takes root on the node, with the capabilities "+
			"SYS_ADMIN and SYS_PTRACE", err)
	case err != nil:
		return nil, err
	}
	place := &audit.Place{NS: n, Netns: record.Netns{Path: o.path(), Device: n.ID.Device,
		Inode: n.ID.Inode}}
	for i := range records {
		if audit.IDOf(records[i].Netns) == n.ID {
			place.Record = &records[i]
		}
	}
	return place, nil
}

// podAt is the pod of a network namespace that a flag names, as far as a record says whose it is.
func (e env) podAt(o *options) (target.Pod, error) {
	pod := target.Pod{Name: o.path()}
	host, err := podns.FindHost(hostProc, "sidecarctl")
	if err != nil {
		return pod, err
	}
	place, err := o.open(host, nil)
	if err != nil {
		return pod, err
	}
	defer place.Close()
	records, err := record.Dir(filepath.Join(e.dirs.Run, names.Records)).List()
	for _, r := range records {
		if audit.IDOf(r.Netns) == place.NS.ID {
			return recordedPod(r), nil
		}
	}
	return pod, err
}
