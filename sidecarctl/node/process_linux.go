package node

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

const (
	installer    = "sidecar-cni-installer"
	defaultPages = "9466"
)

// process is the agent that runs on the node. Its zero value is none.
type process struct {
	pid     int
	args    []string
	version string // as the Go toolchain has written it into the program; "" if it cannot be read
	listen  string // the port of its pages
}

// findAgent returns the process that listens at the agent's socket: during an update, that of the
// agent in charge. Only root can make a socket in that directory. What a process is called proves
// nothing: one in a pod may be called like the agent, too, with flags that have root read its files
// and send them to its server.
func (f files) findAgent(ctx context.Context, runDir string) (process, error) {
	pid, err := listener(ctx, f.at(runDir), names.AgentSocket)
	if err != nil {
		return process{}, err
	}
	data, err := os.ReadFile(f.at(fmt.Sprintf("/proc/%d/cmdline", pid)))
	if err != nil {
		return process{}, err
	}
	args := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
	if len(args) < 2 || filepath.Base(args[0]) != installer || args[1] != "run" {
		return process{}, fmt.Errorf("process %d, which listens at %s, is no %s", pid,
			filepath.Join(runDir, names.AgentSocket), installer)
	}
	found := process{pid: pid, args: args,
		version: versionOf(f.at(fmt.Sprintf("/proc/%d/exe", pid)))}
	found.listen = f.portOf(found)
	return found, nil
}

// listener is the process of root that has made a socket in a directory which is root's.
func listener(ctx context.Context, dir, name string) (int, error) {
	path := filepath.Join(dir, name)
	for _, path := range []string{dir, path} {
		if err := rootsOwn(path); err != nil {
			return 0, err
		}
	}
	conn, err := (&net.Dialer{Timeout: askTimeout}).DialContext(ctx, "unix", path)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn() //nolint:forcetypeassert // by the network's name
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	switch err = errors.Join(err, failed); {
	case err != nil:
		return 0, err
	case cred.Uid != 0:
		return 0, fmt.Errorf("who listens at %s is uid %d, not root", path, cred.Uid)
	case cred.Pid == 0: // unix(7): as it is called in the pid namespace of who asks
		return 0, fmt.Errorf("who listens at %s is in another pid namespace: run this on the node "+
			"itself, or in the agent", path)
	}
	return int(cred.Pid), nil
}

// rootsOwn is the error about a path that others than root may change.
func rootsOwn(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if info.Mode().Type() == fs.ModeSymlink || info.Mode()&0o022 != 0 || !known || owner.Uid != 0 {
		return fmt.Errorf("%s has mode %v, or is not root's: what is there may be anybody's", path,
			info.Mode())
	}
	return nil
}

// portOf is the port of the agent's pages, by its command line, else by its environment.
func (f files) portOf(p process) string {
	address := p.flag("listen")
	environ, _ := os.ReadFile(f.at(fmt.Sprintf("/proc/%d/environ", p.pid))) // it may be another's
	for one := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(one, []byte("SIDECAR_CNI_LISTEN=")); ok {
			address = cmp.Or(address, string(value))
		}
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return defaultPages
	}
	return port
}

// flag is the value of one of the agent's flags; "" if the command line does not have it.
func (p process) flag(name string) string {
	for i, arg := range p.args {
		word := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
		if value, ok := strings.CutPrefix(word, name+"="); ok && word != arg {
			return value
		}
		if word == name && word != arg && i+1 < len(p.args) {
			return p.args[i+1]
		}
	}
	return ""
}

// versionOf is the version and the commit that the Go toolchain has written into a program.
func versionOf(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return ""
	}
	version := info.Main.Version
	if version != "" && version != "(devel)" {
		return version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 12)]
		}
	}
	return version
}
