package audit

import (
	"os"
	"strings"
	"testing"
	"time"
)

func FuzzCgroups(f *testing.F) {
	f.Add("0::/kubepods/pod1/a")
	f.Add("::\n:::\n/")
	known := map[string]bool{"1": true}
	f.Fuzz(func(t *testing.T, cgroups string) {
		if uid := podIn(cgroups, known); uid != "" && uid != "1" {
			t.Errorf("pod %q", uid)
		}
	})
}

func TestContainersByTheirCgroups(t *testing.T) {
	t.Parallel()
	const pod = "0f6f3c1e-2f6a-4d0e-9a53-7765622d3030"
	for cgroups, want := range map[string]string{
		"0::/kubepods.slice/kubepods-pod0f6f_3c1e.slice/cri-containerd-0a1b.scope":             "0a1b",
		"0::/kubepods.slice/kubepods-pod0f6f.slice/crio-0a1b.scope/container":                  "0a1b",
		"0::/kubepods/burstable/pod" + pod + "/0a1b":                                           "0a1b",
		"0::/../../kubepods-burstable-pod0f6f.slice/cri-containerd-0a1b.scope":                 "0a1b",
		"12:cpu,cpuacct:/kubepods.slice/kubepods-pod0f6f.slice/docker-0a1b.scope\n0::/system":  "0a1b",
		"3:memory:/system.slice/containerd.service/kubepods-pod0f6f.slice:cri-containerd:0a1b": "0a1b",
		"0::/kubepods/pod" + pod + "/0a1b/docker/77":                                           "0a1b",
		"0::/docker/77/kubelet.slice/kubelet-kubepods-pod0f6f.slice/cri-containerd-0a1b.scope": "0a1b",
		"0::/kubepods/pod" + pod: "",
		"0::/init.scope":         "",
		"0::/":                   "",
		"":                       "",
	} {
		if got := ContainerIn(cgroups + "\n"); got != want {
			t.Errorf("%s: container %q, want %q", cgroups, got, want)
		}
	}
}

func TestAgeOfAProcess(t *testing.T) {
	t.Parallel()
	c := newCensus("/proc", nil)
	first, own := c.age(1), c.age(os.Getpid())
	if own < 0 || first <= own || own > time.Hour {
		t.Errorf("process 1 is %v old, this one %v", first, own)
	}
	if got := c.age(1 << 30); got != 0 {
		t.Errorf("no process is %v old", got)
	}
}

// Ids of processes are used again: by the time a namespace is open, its process may be another
// pod's.
func TestAProcessThatBecameAnothersIsNotThePods(t *testing.T) {
	t.Parallel()
	c := newCensus("/proc", nil)
	pid := os.Getpid()
	c.count = func() (map[string][]int, error) { return map[string][]int{"gone": {pid}}, nil }
	_, _, _, err := (&Search{census: c}).byProcess("gone")
	if err == nil || !strings.Contains(err.Error(), "ended meanwhile") {
		t.Errorf("error %v", err)
	}
}
