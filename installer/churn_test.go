package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/plugin/podsource"
	"github.com/sidecar-cni/sidecar-cni/test/await"
)

const (
	inboundPorts  = "traffic.sidecar.istio.io/excludeInboundPorts"
	outboundPorts = "traffic.sidecar.istio.io/excludeOutboundPorts"
)

// 250 pods come, change and go for a minute. Whatever the plugin finds in their files meanwhile is
// a pod as it was at some time, and in the end the files are those of the pods that are left.
func TestPodsComeAndGoForAMinute(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	r.start()
	r.untilFresh()
	ended, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	c := churn{rig: r, versions: map[string]int{}}
	var reader sync.WaitGroup
	reader.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ended.Err() == nil; <-tick.C {
			c.readAll()
		}
	})
	for tick := time.NewTicker(10 * time.Millisecond); ended.Err() == nil; <-tick.C {
		c.change()
	}
	reader.Wait()
	if len(c.versions) < 100 || c.found < 1000 || c.missed > c.found/10 {
		t.Errorf("%d pods are left; %d files were read, and %d were not; want many, and few",
			len(c.versions), c.found, c.missed)
	}
	want := []string{podfile.FreshFile}
	for name := range c.versions {
		want = append(want, name)
	}
	r.untilPodFiles(want...)
	for name, version := range c.versions {
		await.Until(t, name+" is up to date",
			func() bool { return c.read(name) == portsOf(version) })
	}
}

// churn is what becomes of the pods.
type churn struct {
	*rig
	versions map[string]int // of the pods that are there
	last     atomic.Int64   // the version that was put last

	found, missed int // reads of files that were listed; what is missed may have gone meanwhile
}

// change removes a pod, or puts one or another version of it.
func (c *churn) change() {
	name, version := fmt.Sprint("u", rand.N(250)), int(c.last.Add(1))
	if _, there := c.versions[name]; there && version%3 == 0 {
		c.api.Remove(versioned(name, version))
		delete(c.versions, name)
		return
	}
	c.api.Put(versioned(name, version))
	c.versions[name] = version
}

func (c *churn) readAll() {
	entries, err := os.ReadDir(c.path("run", "pods"))
	if err != nil {
		c.t.Error(err)
	}
	for _, entry := range entries {
		switch name := entry.Name(); {
		case strings.HasPrefix(name, "."): // the agent's own
		case c.read(name) != "":
			c.found++
		default:
			c.missed++
		}
	}
}

// read returns the ports by which the plugin knows a pod from its file; "" without a file.
func (c *churn) read(name string) string {
	// Nobody can be asked instead.
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Millisecond)
	defer cancel()
	got, err := podsource.Sources{PodFiles: c.path("run")}.Find(ctx,
		podsource.Ref{Namespace: "shop", Name: name, UID: name})
	if got.PassedOver != nil {
		c.t.Errorf("passed over %s: %v", name, got.PassedOver)
	}
	if err != nil {
		return ""
	}
	in, out := got.Pod.Annotations[inboundPorts], got.Pod.Annotations[outboundPorts]
	first, _, _ := strings.Cut(in, ",")
	if version, _ := strconv.Atoi(first); version < 1 || version > int(c.last.Load()) ||
		in != out || in != portsOf(version) {
		c.t.Errorf("%s was never so: %.40q and %.40q", name, in, out)
	}
	return in
}

// versioned is a pod that says in two annotations, of a length of its own, which version it is.
func versioned(name string, version int) *corev1.Pod {
	pod := meshed(name)
	pod.UID = types.UID(name)
	pod.Annotations[inboundPorts] = portsOf(version)
	pod.Annotations[outboundPorts] = portsOf(version)
	return pod
}

// portsOf lists the version as a port, between 1 and 200 times.
func portsOf(version int) string {
	return strings.Repeat(fmt.Sprint(version, ","), version%200) + fmt.Sprint(version)
}
