package nftrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// ErrRights is the error of a program that may not send as another user.
var ErrRights = errors.New("this needs the capabilities CAP_SETUID and CAP_SETGID, which an " +
	"agent has with the chart's value tool.live")

// as calls f on a thread whose new sockets belong to a user and a group: those are the ids that the
// kernel asks for of a socket's file.
func as(o packet.Owner, f func() error) error {
	runtime.LockOSThread()
	before := ids()
	err := put(o)
	if err == nil {
		err = f()
	}
	if back := put(before); back != nil {
		return back // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

func put(o packet.Owner) error {
	// These calls answer with the ids as they were, whether they worked or not.
	_, _ = unix.SetfsgidRetGid(int(int32(o.GID)))
	_, _ = unix.SetfsuidRetUid(int(int32(o.UID)))
	if now := ids(); now != o {
		return fmt.Errorf("send as user %d of group %d: %w", o.UID, o.GID, ErrRights)
	}
	return nil
}

func ids() packet.Owner {
	// -1 is nobody's id: nothing is set.
	uid, _ := unix.SetfsuidRetUid(-1)
	gid, _ := unix.SetfsgidRetGid(-1)
	return packet.Owner{UID: uint32(uid), GID: uint32(gid)}
}

// outside translates the ids of the pod that has the network namespace of the calling thread to
// those of this program. They differ where the pod has a user namespace of its own: what its ids
// are outside, its processes know.
func outside(o packet.Owner) (packet.Owner, error) {
	if !podns.Foreign() {
		return o, nil
	}
	process, err := processOfOwner()
	if err != nil {
		return o, fmt.Errorf("find the user namespace of the pod: %w", err)
	}
	if o.UID, err = mapped(process, "uid_map", o.UID); err != nil {
		return o, err
	}
	o.GID, err = mapped(process, "gid_map", o.GID)
	return o, err
}

// processOfOwner finds a process in the user namespace that owns the calling thread's network
// namespace.
func processOfOwner() (string, error) {
	opened, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return "", err
	}
	defer opened.Close()
	owner, err := unix.IoctlRetInt(int(opened.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return "", err
	}
	defer unix.Close(owner)
	var want, have unix.Stat_t
	if err := unix.Fstat(owner, &want); err != nil {
		return "", err
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return "", err
	}
	for _, p := range processes {
		if unix.Stat(p+"/ns/user", &have) == nil && have.Dev == want.Dev && have.Ino == want.Ino {
			return p, nil
		}
	}
	return "", errors.New("none of the processes that can be seen here is in it")
}

// mapped translates an id by a map of user_namespaces(7).
func mapped(process, file string, id uint32) (uint32, error) {
	data, err := os.ReadFile(filepath.Join(process, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		var numbers []uint64
		for word := range strings.FieldsSeq(line) {
			n, err := strconv.ParseUint(word, 10, 32)
			if err != nil {
				return 0, fmt.Errorf("read %s/%s: %q is no number", process, file, word)
			}
			numbers = append(numbers, n)
		}
		if len(numbers) != 3 {
			return 0, fmt.Errorf("read %s/%s: want three numbers in %q", process, file, line)
		}
		if in := uint64(id); numbers[0] <= in && in-numbers[0] < numbers[2] {
			return uint32(numbers[1] + in - numbers[0]), nil
		}
	}
	return 0, fmt.Errorf("the pod's user namespace has no id %d", id)
}

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
