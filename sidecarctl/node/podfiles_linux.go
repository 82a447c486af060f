package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

// podFiles says whether the plugin believes the files that the agent has written about its pods.
func (l *look) podFiles() verdict.Row {
	const about = "pod files"
	dir := podfile.Dir(l.runDir)
	for _, path := range []string{l.runDir, dir} {
		info, err := os.Lstat(l.files.at(path))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fine(about, path+" is not there: the plugin asks the agent about each pod")
		case err != nil:
			return unknown(about, err.Error(), "run this as root")
		}
		owner, known := info.Sys().(*syscall.Stat_t)
		if !info.IsDir() || info.Mode()&0o022 != 0 || known && owner.Uid != 0 {
			remedy := "remove " + dir + "; the agent makes it anew"
			if path != dir {
				remedy = "chown root: " + path + " && chmod 0700 " + path
			}
			return wrong(about, fmt.Sprintf("%s has mode %v, or is not root's: the plugin passes "+
				"over the files in it", path, info.Mode()), remedy)
		}
	}
	n, err := l.countPodFiles(dir)
	if err != nil {
		return unknown(about, err.Error(), "run this as root")
	}
	what := fmt.Sprintf("%d in %s", n, dir)
	const remedy = "see the rows agent and ready, and the agent's log; meanwhile the plugin asks " +
		"the agent and the API server first"
	switch age, err := l.refreshed(dir); {
	case errors.Is(err, fs.ErrPermission):
		return unknown(about, err.Error(), "run this as root")
	case err != nil:
		return warning(about, what+", which are stale: "+err.Error(), remedy)
	case age < 0 || age > podfile.FreshFor:
		return warning(about, fmt.Sprintf("%s, which are stale: the agent last refreshed them %s "+
			"ago", what, age.Round(time.Second)), remedy)
	default:
		return fine(about, fmt.Sprintf("%s, refreshed %s ago", what, age.Round(time.Second)))
	}
}

func (l *look) countPodFiles(dir string) (int, error) {
	entries, err := os.ReadDir(l.files.at(dir))
	n := 0
	for _, entry := range entries {
		if podfile.ValidName(entry.Name()) {
			n++
		}
	}
	return n, err
}

var errNotHeld = errors.New("no agent that runs has said that they hold")

// refreshed is how long ago the agent that runs has refreshed the files.
func (l *look) refreshed(dir string) (time.Duration, error) {
	f, err := os.OpenFile(l.files.at(filepath.Join(dir, podfile.FreshFile)),
		os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, errNotHeld
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return 0, errNotHeld
	}
	data := make([]byte, 64)
	n, err := f.Read(data)
	if err != nil {
		return 0, err
	}
	then, err := podfile.DecodeTime(data[:n])
	if err != nil {
		return 0, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, err
	}
	return time.Duration(now.Nano()) - then, nil
}
