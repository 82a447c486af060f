package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/plugin/podsource"
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
	var readers sync.WaitGroup
	found := 0
	readers.Go(func() {
		for ; ended.Err() == nil; time.Sleep(5 * time.Millisecond) {
			found += r.readPodFiles()
		}
	})
	versions := map[string]int{} // of the pods that are there
	for version := 0; ended.Err() == nil; version++ {
		name := fmt.Sprint("u", rand.N(250))
		if _, there := versions[name]; there && version%3 == 0 {
			r.api.Remove(versioned(name, version))
			delete(versions, name)
		} else {
			r.api.Put(versioned(name, version))
			versions[name] = version
		}
		time.Sleep(10 * time.Millisecond)
	}
	readers.Wait()
	if len(versions) < 100 || found < 1000 {
		t.Errorf("%d pods are left, %d files were read; want many", len(versions), found)
	}
	want := []string{podfile.FreshFile}
	for name := range versions {
		want = append(want, name)
	}
	r.untilPodFiles(want...)
	for name, version := range versions {
		until(t, name+" is up to date", func() bool {
			return r.readPodFile(name) == portsOf(version)
		})
	}
}

// versioned is a pod that says in two annotations, of a length of its own, which version it is.
func versioned(name string, version int) *corev1.Pod {
	pod := meshed(name)
	pod.UID = types.UID(name)
	pod.Annotations[inboundPorts] = portsOf(version)
	pod.Annotations[outboundPorts] = portsOf(version)
	return pod
}

// portsOf lists a port between 1 and 200 times.
func portsOf(version int) string {
	return strings.Repeat(fmt.Sprint(1+version%60_000, ","), version%200) +
		fmt.Sprint(1+version%60_000)
}

// readPodFiles has the plugin look for every pod that has a file, and returns how many it found.
func (r *rig) readPodFiles() (found int) {
	for _, name := range r.podFiles() {
		if name == podfile.FreshFile || strings.HasPrefix(name, ".") {
			continue
		}
		if r.readPodFile(name) != "" {
			found++
		}
	}
	return found
}

// readPodFile returns which version of a pod the plugin finds in its file; "" without a file.
func (r *rig) readPodFile(name string) string {
	// Nobody can be asked instead.
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Millisecond)
	defer cancel()
	got, err := podsource.Sources{PodFiles: r.path("run")}.Find(ctx,
		podsource.Ref{Namespace: "shop", Name: name, UID: name})
	if got.PassedOver != nil {
		r.t.Errorf("passed over %s: %v", name, got.PassedOver)
	}
	if err != nil {
		return ""
	}
	in, out := got.Pod.Annotations[inboundPorts], got.Pod.Annotations[outboundPorts]
	first, _, _ := strings.Cut(in, ",")
	if in != out || strings.Trim(strings.ReplaceAll(in, first, ""), ",") != "" {
		r.t.Errorf("%s is no version of a pod: %.40q and %.40q", name, in, out)
	}
	return in
}
