package netns

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// An Identity is the user and group that a socket belongs to, as rules in its namespace see them.
type Identity struct{ UID, GID uint32 }

// outside translates an identity to this process' user namespace.
func (n *NS) outside(id Identity) Identity {
	return Identity{UID: id.UID + n.idOffset, GID: id.GID + n.idOffset}
}

// as calls f on a thread whose new files belong to id. Linux keeps the filesystem ids per thread,
// and setting them takes from root no right that networking asks for.
func as(id Identity, f func()) error {
	runtime.LockOSThread()
	old := filesystemIdentity()
	if err := id.put(); err != nil {
		return err // the thread stays locked, and ends with its goroutine
	}
	f()
	if err := old.put(); err != nil {
		return err
	}
	runtime.UnlockOSThread()
	return nil
}

func (id Identity) put() error {
	// These calls answer with the previous id whether they worked or not.
	_, _ = unix.SetfsgidRetGid(int(id.GID))
	_, _ = unix.SetfsuidRetUid(int(id.UID))
	if now := filesystemIdentity(); now != id {
		return fmt.Errorf("set filesystem ids: wanted %+v, got %+v", id, now)
	}
	return nil
}

func filesystemIdentity() Identity {
	// -1 is no id: nothing is set.
	uid, _ := unix.SetfsuidRetUid(-1)
	gid, _ := unix.SetfsgidRetGid(-1)
	return Identity{UID: uint32(uid), GID: uint32(gid)}
}
