package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verify"
)

// verifyHere looks at a pod whose network namespace is open.
func verifyHere(ctx context.Context, at *spot) (verify.Answer, error) {
	s := at.subject
	q := verify.Question{Name: s.pod.Name, Place: at.place, Pod: at.pod, Auditor: at.auditor,
		Proc: hostProc, Proxy: s.proxyID()}
	if s.facts.Spec == nil { // a network namespace
		if s.record == nil {
			q.Pod.Mistake = errors.New("no record says which pod's it is: name the pod by " +
				"--filename")
		}
		return verify.Look(ctx, q), nil
	}
	expected, ours := audit.Expect(s.facts, s.config)
	if !ours && s.record == nil {
		return verify.NotOurs(s.pod.Name, s.explain(false).Because), nil
	}
	q.Pod.Policy, q.Pod.Mistake = expected.Policy, expected.Mistake
	if s.record == nil {
		q.Judged = expected.Judged
	}
	return verify.Look(ctx, q), nil
}

// lacksHere names what keeps this program from looking into pods, if it runs on their node.
func lacksHere(o *options) []string {
	if !o.here {
		return nil
	}
	return verify.Lacks(hostProc)
}

// podsRecorded are those of this node's records.
func (e env) podsRecorded() ([]target.Pod, error) {
	records, err := record.Dir(filepath.Join(e.dirs.Run, names.Records)).List()
	if len(records) == 0 {
		return nil, err
	}
	var pods []target.Pod
	known := map[string]bool{}
	for _, r := range records {
		if !known[r.Pod.UID] {
			known[r.Pod.UID] = true
			pods = append(pods, recordedPod(r))
		}
	}
	return pods, nil
}

// recordedPod is as much of a pod as a record says.
func recordedPod(r record.Record) target.Pod {
	pod := target.Pod{Name: r.Pod.Namespace + "/" + r.Pod.Name, NodeUID: r.Pod.UID}
	pod.Facts.Namespace, pod.Facts.Name = r.Pod.Namespace, r.Pod.Name
	return pod
}
