package main_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/cgroup"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// dearest is a pod that asks for about as many rules as are accepted.
func dearest(name string) *corev1.Pod {
	pod := meshed(name)
	pod.UID = types.UID("uid-of-" + name)
	list := func(bits int) string {
		var b strings.Builder
		for i := range redirect.MaxRules/2 - 60 {
			fmt.Fprintf(&b, ",10.%d.%d.0/%d", i/250, i%250, bits)
		}
		return b.String()[1:]
	}
	pod.Annotations["traffic.sidecar.istio.io/includeOutboundIPRanges"] = list(24)
	pod.Annotations["traffic.sidecar.istio.io/excludeOutboundIPRanges"] = list(25)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.22.0.9"}
	return pod
}

// TestThePassOverTheDearestPods has an agent compare and mend the rules of many such pods within
// its limit, with iptables, whose programs count as well.
func TestThePassOverTheDearestPods(t *testing.T) {
	t.Parallel()
	const whole, open = 8, 4
	r := newRig(t, map[string]string{"10-pods.conflist": bridge})
	tables, err := iptables.Find(iptables.NFT)
	r.must(err)
	for i := range whole + open {
		pod, ns := dearest("web-"+strconv.Itoa(i)), netns.New(t)
		d, err := redirect.Decide(agent.Describe(pod).Facts(), redirect.Defaults())
		r.must(err)
		rules := redirect.Compile(d.Policy)
		if i < whole {
			ns.Do(t, func() { _, _, err = tables.Apply(t.Context(), rules) })
			r.must(err)
		}
		var st unix.Stat_t
		r.must(unix.Fstat(ns.Fd(), &st))
		r.must(record.Dir(r.path("run", "state")).Write(record.Record{
			Attachment: record.Attachment{Container: pod.Name, Interface: "eth0"}, Network: "pods",
			Netns:    record.Netns{Path: ns.Path(), Device: st.Dev, Inode: st.Ino},
			Pod:      record.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
			Backend:  "iptables-nft",
			Revision: record.Revision(rules), Policy: d.Policy,
		}))
		r.api.Put(pod)
	}
	group := cgroup.New(t, chartLimit(t))
	d := r.startBy(group.Command, "--repair", "repair", "--repair-interval", "1s", "--backend",
		"iptables-nft", "--host-root", "/")
	defer d.kill() // before the cgroup goes
	await.Until(t, "all pods are redirected", func() bool {
		return d.metric(`sidecar_cni_checked_pods{finding="redirected"}`) == strconv.Itoa(whole+
			open)
	})
	if kills := group.Kills(t); kills > 0 {
		t.Errorf("the kernel ended %d processes", kills)
	}
	t.Logf("at most %d MiB", group.Most(t)>>20)
}
