package audit

import (
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// RecordsOf returns the records of a pod, whole, of which the heads are known. One that cannot be
// read any more is gone.
func RecordsOf(dir record.Dir, heads []record.Record, uid string) []record.Record {
	var its []record.Record
	for _, head := range heads {
		if head.Pod.UID != uid {
			continue
		}
		if one, err := dir.Read(head.Attachment); err == nil {
			its = append(its, one)
		}
	}
	return its
}

// RecordIn returns the record about a namespace, as of now; nil without one.
func RecordIn(dir record.Dir, id podns.ID) *record.Record {
	heads, _ := dir.Heads() // what cannot be read is no record of this namespace
	for _, head := range heads {
		if IDOf(head.Netns) != id {
			continue
		}
		if one, err := dir.Read(head.Attachment); err == nil {
			return &one
		}
	}
	return nil
}

// IDOf returns the ID of a namespace that was recorded.
func IDOf(n record.Netns) podns.ID { return podns.ID{Device: n.Device, Inode: n.Inode} }
