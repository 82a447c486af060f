package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/test/await"
)

const (
	cgroupFolder = "/sys/fs/cgroup"
	cgroupPrefix = "sidecar-cni-cluster-" // and the id of the process whose cluster it is
)

// hierarchies returns where cgroups are: one place on a machine of cgroup v2 alone, else one for
// each controller.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(cgroupFolder + "/cgroup.controllers"); err == nil {
		return []string{cgroupFolder}, nil
	}
	return filepath.Glob(cgroupFolder + "/*")
}

// makeCgroup makes a cgroup everywhere: the kubelet wants its root to be there already.
func makeCgroup(name string) error {
	places, err := hierarchies()
	if err != nil {
		return err
	}
	for _, place := range places {
		folder := place
		for part := range strings.SplitSeq(name, "/") {
			if err := delegate(folder); err != nil {
				return err
			}
			parent := folder
			folder = filepath.Join(folder, part)
			if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return fmt.Errorf("make cgroup: %w", err)
			}
			if err := inheritCPUs(parent, folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate lets the children of a v2 cgroup use its controllers.
func delegate(folder string) error {
	controllers, _ := os.ReadFile(folder + "/cgroup.controllers") // v1 has none
	for c := range strings.FieldsSeq(string(controllers)) {
		if err := os.WriteFile(folder+"/cgroup.subtree_control", []byte("+"+c), 0); err != nil {
			return fmt.Errorf("delegate cgroup controller: %w", err)
		}
	}
	return nil
}

// inheritCPUs does what v2 does by itself: a v1 cpuset without processors takes no process.
func inheritCPUs(parent, folder string) error {
	for _, file := range []string{"/cpuset.cpus", "/cpuset.mems"} {
		content, _ := os.ReadFile(parent + file)
		if len(content) == 0 { // v2, or another controller's
			continue
		}
		if err := os.WriteFile(folder+file, content, 0); err != nil {
			return fmt.Errorf("set cgroup's processors: %w", err)
		}
	}
	return nil
}

// removeCgroup removes a cgroup whose processes are dead or dying.
func removeCgroup(name string) error {
	places, err := hierarchies()
	if err != nil {
		return err
	}
	for _, place := range places {
		var err error
		if !await.Within(time.Minute, func() bool {
			err = removeTree(filepath.Join(place, name))
			return err == nil
		}) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}

// removeTree removes folders without their files, which belong to the kernel.
func removeTree(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(folder, e.Name())))
		}
	}
	return errors.Join(err, unix.Rmdir(folder))
}

// removeStaleCgroups removes those of processes that are no more.
func removeStaleCgroups() error {
	places, err := hierarchies()
	if err != nil {
		return err
	}
	for _, place := range places {
		stale, err := filepath.Glob(filepath.Join(place, cgroupPrefix+"*"))
		if err != nil {
			return err
		}
		for _, s := range stale {
			owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(s), cgroupPrefix), "-")
			if _, err := os.Stat("/proc/" + owner); err == nil {
				continue
			}
			if err := removeCgroup(filepath.Base(s)); err != nil {
				return err
			}
		}
	}
	return nil
}
