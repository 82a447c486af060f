//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const (
	killFor = 20 * time.Second
	// foundWithin is the product's promise: how long after the agent has connected an open pod is
	// found.
	foundWithin = 2 * time.Second
)

// stopped: while the agent gets no time at all, what is not meshed starts, and what requires the
// guard does not. It starts, redirected, when the agent goes on.
func (g *guarded) stopped(t *testing.T) {
	l := g.followAgents(t)
	if n := signalAgent(t, g.node, "STOP"); n != 1 {
		t.Fatalf("%d agents were stopped", n)
	}
	defer signalAgent(t, g.node, "CONT")
	g.takeOut(t)
	plain := on(g.node.Name, lookingPlain("shop", "stopped-plain"))
	requires := on(g.node.Name, requiring("shop", "stopped-requires"))
	without := on(g.node.Name, looking("shop", "stopped-without"))
	began := time.Now()
	g.create(t, plain)
	g.expectLook(t, plain, "open")
	t.Logf("with the agent stopped, a pod that is not meshed was ready after %s", took(began))
	g.create(t, requires)
	g.create(t, without)
	g.expectLook(t, without, "open") // so it is that NRI fails open
	g.awaitEvent(t, requires, "Failed", `required plugin "sidecar-cni" not present`)
	p := g.AwaitPod(t, "shop", requires.Name, func(*corev1.Pod) error { return nil })
	if found, err := g.tryLooks(p, allLogs); err == nil {
		t.Errorf("its container has found it %q", found)
	}
	began = time.Now()
	signalAgent(t, g.node, "CONT")
	g.expectLook(t, requires, "redirected")
	t.Logf("it was ready %s after the agent went on", took(began))
	g.awaitFound(t, l, "stopped-without")
	g.putBack(t)
	g.awaitEntryIn(t, primary)
}

// foundAs are the guard's words for an open pod that it finds: one whose first container has ended
// already is redirected before the next one.
var foundAs = []string{"open", "redirected"}

// awaitFound waits until the agents have said that they have found open pods, and ends the log.
func (g *guarded) awaitFound(t *testing.T, l *agentLog, names ...string) []said {
	t.Helper()
	g.Await(t, "the guard to find open pods", func(context.Context) error {
		found := byPod(pick(l.sofar(), foundAs...))
		for _, name := range names {
			if found[name] == 0 {
				return fmt.Errorf("%s is not among %v", name, found)
			}
		}
		return nil
	})
	return l.end(t)
}

// killed: pods that are not meshed never fail; what requires the guard is never open; and of the
// others each that is open is counted.
func (g *guarded) killed(t *testing.T) {
	const space = "agent-killed"
	l := g.followAgents(t)
	kinds := []func(space, name string) *corev1.Pod{lookingPlain, looking, requiring}
	made := 0
	see := func(*corev1.Pod) error { return nil } // none is deleted, so that all can be seen then
	pod := func(space, name string) *corev1.Pod {
		made++
		return kinds[made%len(kinds)](space, name)
	}
	s := g.streamSeen(t, &stream{space: space, keeps: 250, seen: see}, 4*often, pod)
	kills := 0
	for end := time.Now().Add(killFor); time.Now().Before(end); kills++ {
		g.killWhenConnected(t, l)
	}
	all := s.end(t)
	g.putBack(t)
	open, total := []string{}, map[string]int{}
	for i := range all {
		p := &all[i]
		kind := kindOf(p)
		total[kind]++
		found, err := g.looks(t.Context(), p, allLogs)
		if err != nil {
			t.Error(err)
		}
		isOpen := slices.Contains(found, "open")
		switch {
		case kind == "plain" && slices.Contains(found, "redirected"):
			t.Errorf("%s, which is not meshed, was touched", p.Name)
		case kind == "requiring" && isOpen:
			t.Errorf("%s, which requires the guard, was open", p.Name)
		case kind == "meshed" && isOpen:
			open = append(open, p.Name)
		}
	}
	g.expectNoFailedPlain(t, space)
	said := g.awaitFound(t, l, open...)
	counted := byPod(pick(said, "open"))
	t.Logf("the agent was killed %d times in %s: of %d meshed pods %d were open, and each of them "+
		"was found; of %d that require the guard none was; %d others started; the guard counted %d "+
		"as open and redirected %d", kills, killFor, total["meshed"], len(open),
		total["requiring"], total["plain"], len(counted), len(byPod(pick(said, "redirected"))))
	g.awaitEntryIn(t, primary)
	g.deletePods(t, space)
}

// kindOf is what a pod is of those here.
func kindOf(p *corev1.Pod) string {
	switch {
	case p.Annotations["sidecar.istio.io/status"] == "":
		return "plain"
	case p.Annotations[required] != "":
		return "requiring"
	}
	return "meshed"
}

// killWhenConnected kills the agent once the runtime asks it, and at the earliest after a second.
// The pod is deleted, since a kubelet would take its time with one that ends often.
func (g *guarded) killWhenConnected(t *testing.T, l *agentLog) {
	t.Helper()
	second := time.NewTimer(time.Second)
	<-second.C
	before := len(connections(l.sofar()))
	killAgent(t, g.node)
	g.takeOut(t)
	g.deleteAgents(t)
	g.awaitConnections(t, l, before+1)
}

// deleteAgents has the DaemonSet make new pods.
func (g *guarded) deleteAgents(t *testing.T) {
	t.Helper()
	g.deletePods(t, home, "app.kubernetes.io/name="+release)
}

// deletePods deletes those with the labels. It does not wait until the node is done with them.
func (g *guarded) deletePods(t *testing.T, space string, labels ...string) {
	t.Helper()
	if err := g.Client().CoreV1().Pods(space).DeleteCollection(t.Context(),
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))},
		metav1.ListOptions{LabelSelector: strings.Join(labels, ",")}); err != nil {
		t.Fatal(err)
	}
}

// awayWithImage takes the agent's image from the node, as if it had to be pulled again.
func (g *guarded) awayWithImage(t *testing.T) {
	t.Helper()
	all := g.node.Run(t, "", "ctr", "--namespace=k8s.io", "images", "list", "--quiet")
	for name := range strings.FieldsSeq(all) {
		if strings.Contains(name, "sidecar-cni/sidecar-cni:") {
			g.node.Run(t, "", "ctr", "--namespace=k8s.io", "images", "remove", "--sync", name)
		}
	}
}

func (g *guarded) awaitConnections(t *testing.T, l *agentLog, wanted int) {
	t.Helper()
	g.Await(t, "the agent to connect", func(context.Context) error {
		if n := len(connections(l.sofar())); n < wanted {
			return fmt.Errorf("it has %d times, want %d", n, wanted)
		}
		return nil
	})
}

// expectNoFailedPlain wants no pod that is not meshed to have failed.
func (g *guarded) expectNoFailedPlain(t *testing.T, space string) {
	t.Helper()
	events, err := g.Client().CoreV1().Events(space).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Type != corev1.EventTypeWarning {
			continue
		}
		p, err := g.Client().CoreV1().Pods(space).Get(t.Context(), e.InvolvedObject.Name,
			metav1.GetOptions{})
		if err != nil || kindOf(p) == "plain" {
			t.Errorf("%s: %s: %s (%v)", e.InvolvedObject.Name, e.Reason, e.Message, err)
		}
	}
}

// rebooted: of the pods that come back while the entry is out and the agent not there yet, those
// that require the guard wait, and the others are found as soon as the agent is connected.
func (g *guarded) rebooted(t *testing.T) {
	const each = 8
	pods := []*corev1.Pod{}
	for i := range each {
		for _, p := range []*corev1.Pod{looking("shop", fmt.Sprintf("boot-meshed-%d", i)),
			requiring("shop", fmt.Sprintf("boot-requiring-%d", i)),
			lookingPlain("shop", fmt.Sprintf("boot-plain-%d", i))} {
			g.create(t, on(g.node.Name, p))
			pods = append(pods, p)
		}
	}
	for i, p := range pods {
		pods[i] = g.ready(t, p)
	}
	l := g.followAgents(t)
	g.awayWithImage(t) // so that it is not there before the pods
	g.node.Kill(t)
	g.takeOut(t)
	g.node.Start(t)
	for _, p := range pods {
		if kindOf(p) != "requiring" {
			g.AwaitPod(t, p.Namespace, p.Name, startedAnew)
		}
	}
	loadProduct(t, g.node)
	g.deleteAgents(t) // or the kubelet would take its time with the image
	g.awaitConnections(t, l, 1)
	open := []string{}
	for _, p := range pods {
		p = g.AwaitPod(t, p.Namespace, p.Name, startedAnew)
		again := fmt.Sprintf("%d.log", p.Status.ContainerStatuses[0].RestartCount)
		found, err := g.looks(t.Context(), p, again)
		if err != nil {
			t.Fatal(err)
		}
		last := found[0]
		switch kind := kindOf(p); {
		case kind == "plain" && last != "open":
			t.Errorf("%s, which is not meshed, was touched", p.Name)
		case kind == "requiring" && last != "redirected":
			t.Errorf("%s, which requires the guard, was open", p.Name)
		case kind == "meshed" && last == "open":
			open = append(open, p.Name)
		}
	}
	if len(open) == 0 {
		t.Error("no pod came up open, so nothing was tested")
	}
	g.expectFoundInTime(t, l, g.awaitFound(t, l, open...), open)
	t.Logf("after the reboot %d of %d meshed pods came up open", len(open), each)
	g.awaitEntryIn(t, primary)
}

// expectFoundInTime compares when the runtime had the agent connected with when it found pods open.
func (g *guarded) expectFoundInTime(t *testing.T, l *agentLog, all []said, open []string) {
	t.Helper()
	found, slowest := 0, time.Duration(0)
	for _, c := range connections(all) {
		for _, s := range pick(all, foundAs...) {
			if _, name, _ := strings.Cut(s.Pod, "/"); s.file == c.file && s.Path == "connect" &&
				slices.Contains(open, name) {
				found++
				slowest = max(slowest, s.at.Sub(c.at)-l.pulse.Stood(c.at, s.at))
			}
		}
	}
	if found < len(open) || slowest > foundWithin {
		t.Errorf("%d of %d open pods were found at connecting, the last %s after it; want all within "+
			"%s", found, len(open), slowest, foundWithin)
	}
}

// startedAnew wants all containers of a pod to have been started a second time.
func startedAnew(p *corev1.Pod) error {
	for _, s := range p.Status.ContainerStatuses {
		if s.RestartCount < 1 {
			return fmt.Errorf("container %s of %s was not started again", s.Name, p.Name)
		}
	}
	return cluster.Ready(p)
}
