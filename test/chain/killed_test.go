package chain

import (
	"context"
	"errors"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// The kernel is asked, not the plugin's word: another pod's rules would do as well as none.
func TestKilledAtAnyMoment(t *testing.T) {
	netns.RequireRoot(t)
	rows := map[string]struct {
		backend string
		times   int
		verify  func(context.Context, redirect.Ruleset) ([]redirect.Problem, error)
	}{
		"nftables":        {"nftables", 200, nftables.Verify},
		"iptables-nft":    {"iptables-nft", 20, tables(t, iptables.NFT).Verify},
		"iptables-legacy": {"iptables-legacy", 20, tables(t, iptables.Legacy).Verify},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			pod := Meshed("web-0", map[string]string{
				"sidecar.istio.io/interceptionMode":                "TPROXY",
				"traffic.sidecar.istio.io/excludeOutboundIPRanges": "192.0.2.0/24,2001:db8::/32",
			})
			n.agent.Put(pod)
			add := call{command: "ADD", conf: Object{"backend": row.backend}}
			add.at = Attachment(pod, netns.New(t))
			began := time.Now()
			if _, err := n.run(add); err != nil {
				t.Fatal(err)
			}
			whole := time.Since(began)
			killed := 0
			for range row.times {
				ns := netns.New(t)
				add.at = Attachment(pod, ns)
				began := time.Now()
				cmd := n.start(add)
				bomb := time.AfterFunc(rand.N(whole+whole/4), func() { _ = cmd.Process.Kill() })
				var ended *exec.ExitError
				if err := cmd.Wait(); errors.As(err, &ended) && signaled(ended) {
					killed++
				} else if took := time.Since(began); took < whole/2 {
					whole = took // the machine stood still in the one that was measured
				}
				bomb.Stop()
				if out, err := n.run(add); err != nil {
					t.Fatalf("ADD after a killed one: %v: %s", err, out)
				}
				var problems []redirect.Problem
				var err error
				ns.Do(t, func() { problems, err = row.verify(t.Context(), n.Rules(add.at)) })
				if len(problems) > 0 || err != nil {
					t.Fatalf("after a killed ADD and another: %v, %v", problems, err)
				}
			}
			if killed == 0 {
				t.Error("none was killed")
			}
			if _, err := n.run(call{command: "DEL", at: add.at}); err != nil {
				t.Error(err)
			}
			if got := n.records(); got != nil {
				t.Errorf("records after DEL: %q", got)
			}
		})
	}
}

func tables(t *testing.T, v iptables.Variant) *iptables.Tables {
	t.Helper()
	tables, err := iptables.Find(v)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// Each of the plugin's steps is its last, once. A goroutine goes on in another thread now and then,
// and no thread may get to its nth call: such an ADD tells nothing, and another one is made.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := Meshed("web-0", map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"})
	n.agent.Put(pod)
	for step, least := range map[string]int{"setns": 2, "sendto": 5, "recvfrom": 5, "openat": 4,
		"write": 3, "renameat": 1} {
		killed, missed := 0, 0
		for missed == 0 || killed < least && missed < 50 {
			if n.killedAt(step, killed+1, pod) {
				killed++
			} else {
				missed++
			}
		}
		if killed < least {
			t.Errorf("%s: killed %d times only", step, killed)
		}
	}
}

// killedAt has strace kill an ADD at a thread's nth system call of a kind, and makes another ADD
// behind it. It reports whether there was an nth.
func (n *Node) killedAt(step string, nth int, pod *corev1.Pod) bool {
	n.t.Helper()
	ns := netns.New(n.t)
	at := Attachment(pod, ns)
	out, err := n.run(call{command: "ADD", at: at, within: []string{
		"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + step,
		"-e", "inject=" + step + ":signal=SIGKILL:when=" + strconv.Itoa(nth),
	}})
	if err == nil {
		return false
	}
	var ended *exec.ExitError
	if !errors.As(err, &ended) || !signaled(ended) {
		n.t.Fatalf("ADD under strace: %v: %s", err, out)
	}
	if out, err := n.run(call{command: "ADD", at: at}); err != nil {
		n.t.Fatalf("ADD after one killed at %s %d: %v: %s", step, nth, err, out)
	}
	for _, p := range Verify(n.t, ns, n.Rules(at)) {
		n.t.Fatalf("after an ADD killed at %s %d, and another: %s", step, nth, p)
	}
	return true
}

func signaled(ended *exec.ExitError) bool {
	status, ok := ended.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}
