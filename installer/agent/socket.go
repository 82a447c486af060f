package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// Socket is the agent's socket. Only root can connect to it.
type Socket struct {
	// For Addr and Close. Accept is its own: it turns away whoever is not root.
	*net.UnixListener

	path string
	file os.FileInfo // tells our socket from one that came in its place
}

// Listen makes the socket, in place of one that another agent may have there: who connects reaches
// one of the two. The directory is made if it is missing, and closed to all but its owner. One of
// another owner, or one that others may write to, is refused: they could put a socket of theirs in
// our place.
func Listen(path string) (*Socket, error) {
	s, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return s, nil
}

func listen(path string) (*Socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	folder, err := lock(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	if err := tighten(folder); err != nil {
		return nil, err
	}
	// A file of this name was left by an agent that was killed: we hold the lock.
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: temp})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	s := &Socket{UnixListener: l, path: path}
	if err := s.place(temp); err != nil {
		_ = l.Close()
		os.Remove(temp)
		return nil, err
	}
	return s, nil
}

// lock opens a directory and keeps other agents from changing which socket is in it, until it is
// closed.
func lock(dir string) (*os.File, error) {
	folder, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := node.Lock(folder); err != nil {
		folder.Close()
		return nil, &fs.PathError{Op: "lock", Path: dir, Err: err}
	}
	return folder, nil
}

func tighten(folder *os.File) error {
	info, err := folder.Stat()
	if err != nil {
		return err
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case owner == nil || int64(owner.Uid) != int64(os.Geteuid()):
		return fmt.Errorf("directory %s: it is another user's: want one that is the agent's own",
			folder.Name())
	case mode&0o022 != 0:
		return fmt.Errorf("directory %s: mode %04o: want one that no other user may write to",
			folder.Name(), mode)
	case mode != 0o700:
		return folder.Chmod(0o700)
	}
	return nil
}

// place gives the socket its mode and its name.
func (s *Socket) place(temp string) error {
	if err := os.Chmod(temp, 0o600); err != nil {
		return err
	}
	file, err := os.Lstat(temp)
	if err != nil {
		return err
	}
	s.file = file
	return os.Rename(temp, s.path)
}

// remove takes the socket away, if no other agent's has come in its place.
func (s *Socket) remove() {
	folder, err := lock(filepath.Dir(s.path))
	if err != nil {
		return // the directory is gone, and the socket with it
	}
	defer folder.Close()
	if file, err := os.Lstat(s.path); err == nil && os.SameFile(file, s.file) {
		os.Remove(s.path)
	}
}

// lost reports whether nobody reaches the socket by its name any more: it was removed, or another
// agent's is in its place.
func (s *Socket) lost() bool {
	file, err := os.Lstat(s.path)
	return err != nil || !os.SameFile(file, s.file)
}

// Accept returns the next connection of root. Others get none, should the socket's mode ever let
// them through.
func (s *Socket) Accept() (net.Conn, error) {
	for {
		conn, err := s.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := peer(conn); err == nil && uid == 0 {
			return conn, nil
		}
		_ = conn.Close()
	}
}

func peer(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd),
			unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
