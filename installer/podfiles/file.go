package podfiles

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// state is what became of the file of a pod, and a label of the metric.
type state string

const (
	isWritten  state = "written"
	isTooLarge state = "too_large" // a file of its own would be larger than podfile.MaxFile
	hasNoRoom  state = "no_room"   // the others take podfile.MaxAll
	hasFailed  state = "failed"    // it could not be written, and was removed
)

var states = []state{isWritten, isTooLarge, hasNoRoom, hasFailed}

// file is what was done about the file of a pod.
type file struct {
	pod     *corev1.Pod // by which it was done: no object of the cache ever changes
	handler string      // of the pod's class
	state   state       // "" if another agent has left it
	digest  [sha256.Size]byte
	length  int64 // of its content; 0 if it is not there
	bytes   int64 // that it takes
	wants   int64 // that it would take, if it has no room
}

// size is what a file of so many bytes takes: a tmpfs gives a page at a time.
func (f *Files) size(bytes int64) int64 { return (bytes + f.page - 1) / f.page * f.page }

// room is what the files may take together. The rest of podfile.MaxAll is for a file that is being
// written, and for podfile.FreshFile and the one that comes in its place.
func (f *Files) room() int64 { return podfile.MaxAll - f.size(podfile.MaxFile) - 2*f.page }

// due are the pods that shall have a file.
func due(all []*corev1.Pod) map[types.UID]*corev1.Pod {
	due := make(map[types.UID]*corev1.Pod, len(all))
	for _, pod := range all {
		injected := redirect.Pod{Annotations: pod.Annotations}.Injected()
		mirror := pod.Annotations[corev1.MirrorPodAnnotationKey] != ""
		if injected && !mirror && podfile.ValidName(string(pod.UID)) {
			due[pod.UID] = pod
		}
	}
	return due
}

// update brings the files of all pods up to date. lost is the first reason why a file could not be
// written and was removed; err is why the directory is not what the cache says.
func (f *Files) update() (lost, err error) {
	pods := due(f.cache.pods())
	for uid := range f.files { // first what makes room
		if pods[uid] == nil {
			if err := f.remove(uid); err != nil {
				return nil, err
			}
			delete(f.files, uid)
		}
	}
	for _, pod := range pods {
		failed, err := f.updateOne(pod)
		if err != nil {
			return nil, err
		}
		if lost == nil {
			lost = failed
		}
	}
	return lost, nil
}

func (f *Files) updateOne(pod *corev1.Pod) (lost, err error) {
	was := f.files[pod.UID]
	if was == nil {
		was = &file{}
		f.files[pod.UID] = was
	}
	handler := ""
	if class := pod.Spec.RuntimeClassName; class != nil {
		handler = f.cache.handler(*class)
	}
	if was.pod == pod && was.handler == handler &&
		(was.state == isWritten || was.state == isTooLarge ||
			was.state == hasNoRoom && f.bytes+was.wants > f.room()) {
		return nil, nil
	}
	was.pod, was.handler = pod, handler
	data, fits := encode(pod, handler)
	if !fits {
		was.state = isTooLarge
		return nil, f.remove(pod.UID)
	}
	digest := sha256.Sum256(data)
	if was.state == isWritten && was.digest == digest {
		return nil, nil // what has changed does not decide
	}
	if was.wants = f.size(int64(len(data))); f.bytes-was.bytes+was.wants > f.room() {
		was.state = hasNoRoom
		return nil, f.remove(pod.UID)
	}
	return f.write(was, data, digest)
}

// encode returns the file of a pod, unless it is too large.
func encode(pod *corev1.Pod, handler string) (data []byte, fits bool) {
	texts := 0
	for _, annotation := range pod.Annotations {
		texts += len(annotation)
	}
	if !agent.Complete(pod) || texts > podfile.MaxFile {
		return nil, false
	}
	described := agent.Describe(pod)
	described.RuntimeHandler = handler
	body, err := json.Marshal(described)
	if err != nil {
		return nil, false // no pod that was read from JSON or protobuf
	}
	data = podfile.Encode(body)
	return data, len(data) <= podfile.MaxFile
}

// write puts a file in its place, or removes the one that is there.
func (f *Files) write(of *file, data []byte, digest [sha256.Size]byte) (lost, err error) {
	uid := of.pod.UID
	lost = f.change(func(d *folder) error { return d.write(string(uid), data) })
	switch {
	case errors.Is(lost, node.ErrSuperseded) || errors.Is(lost, errReplaced):
		return nil, lost
	case lost != nil:
		of.state = hasFailed
		return fmt.Errorf("write pod files: %w", lost), f.remove(uid)
	}
	f.bytes += of.wants - of.bytes
	of.state, of.digest, of.length, of.bytes = isWritten, digest, int64(len(data)), of.wants
	return nil, nil
}

// remove removes the file of a pod, if it is there.
func (f *Files) remove(uid types.UID) error {
	of := f.files[uid]
	if of.length == 0 {
		return nil
	}
	if err := f.change(func(d *folder) error { return d.remove(string(uid)) }); err != nil {
		return fmt.Errorf("remove pod files: %w", err)
	}
	f.bytes -= of.bytes
	of.length, of.bytes = 0, 0
	return nil
}
