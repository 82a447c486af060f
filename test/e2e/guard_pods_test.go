//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// asThePlugin: whether our entry is in the chain or not, a pod has the same rules and the same
// record, and the record goes with the pod.
func (g *guarded) asThePlugin(t *testing.T) {
	capturing := func(name string) *corev1.Pod {
		p := newPod("shop", name)
		mesh{dns: true}.inject(&p.ObjectMeta, &p.Spec)
		p.Spec.InitContainers[0].Args = []string{"look"}
		return on(g.node.Name, p)
	}
	missed := func(name string) *corev1.Pod {
		putBack := g.keepOut(t, g.theirs)
		defer putBack()
		p := capturing(name)
		g.create(t, p)
		p = g.expectLook(t, p, "redirected")
		g.awaitEvent(t, p, guardRedirect, "before its first container")
		return p
	}
	byPlugin := capturing("by-plugin")
	g.create(t, byPlugin)
	byPlugin = g.expectLook(t, byPlugin, "redirected")
	byGuard := missed("by-guard")
	rules := func(p *corev1.Pod) string {
		return g.inNetwork(t, p, "nft", "--stateless", "list", "ruleset")
	}
	if diff := cmp.Diff(rules(byPlugin), rules(byGuard)); diff != "" {
		t.Errorf("the plugin's rules (-) are not the guard's (+):\n%s", diff)
	}
	if !strings.Contains(rules(byGuard), "15053") {
		t.Errorf("questions are not captured:\n%s", rules(byGuard))
	}
	if diff := cmp.Diff(g.recorded(t, byPlugin), g.recorded(t, byGuard)); diff != "" {
		t.Errorf("the plugin's record (-) is not the guard's (+):\n%s", diff)
	}
	g.awaitEntryIn(t, primary)
	g.expectDeleted(t, byGuard)
	g.awaitNoRecord(t, byGuard)
}

// recorded is what the records of a pod say that is not of its sandbox alone.
func (g *guarded) recorded(t *testing.T, pod *corev1.Pod) (all []string) {
	t.Helper()
	for _, one := range g.records(t, pod) {
		policy, err := json.MarshalIndent(one.Policy, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one.Attachment.Interface+" "+one.Backend+" "+one.Revision+" "+
			string(policy))
	}
	return all
}

// guardRedirect is the reason of the guard's Event about a pod that the plugin has missed.
const guardRedirect = "SidecarRedirectedByGuard"

func (g *guarded) awaitNoRecord(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	g.Await(t, "the record of "+pod.Name+" to go", func(context.Context) error {
		if left := g.records(t, pod); len(left) > 0 {
			return fmt.Errorf("it is there, of container %s", left[0].Attachment.Container)
		}
		return nil
	})
}

// foreignPlugin is another mesh's, which the agent does not know.
const foreignPlugin = "mesh-of-others"

// foreign: with our entry out, what another tool redirects passes.
func (g *guarded) foreign(t *testing.T) {
	content, err := os.ReadFile(program(t, "./actor"))
	if err != nil {
		t.Fatal(err)
	}
	plugin := g.node.DiskFile("/opt/cni/bin/" + foreignPlugin)
	if err := os.WriteFile(plugin, content, 0o755); err != nil {
		t.Fatal(err)
	}
	chained := strings.TrimRight(g.theirs, " \n")
	last := strings.LastIndex(chained, "]")
	chained = chained[:last] + `, {"type": "` + foreignPlugin + `"}` + chained[last:]
	putBack := g.keepOut(t, chained)
	l := g.followAgents(t)
	before, err := g.metric(t.Context(), g.node, "sidecar_cni_guard_sandboxes_total",
		`when="start"`, `outcome="foreign"`)
	if err != nil {
		t.Fatal(err)
	}
	p := on(g.node.Name, looking("shop", "foreign"))
	g.create(t, p)
	p = g.expectLook(t, p, "redirected")
	if rules := g.rules(t, p); strings.Contains(rules, "sidecar-cni") ||
		!strings.Contains(rules, "ISTIO_REDIRECT") {
		t.Errorf("the pod, which another tool redirects, has\n%s", rules)
	}
	g.awaitMetric(t, g.node, func(v float64) bool { return v == before+1 },
		"sidecar_cni_guard_sandboxes_total", `when="start"`, `outcome="foreign"`)
	putBack()
	if acted := pick(l.end(t), "redirected", "refused"); len(acted) > 0 {
		t.Errorf("the guard acted: %+v", acted)
	}
}

// brings: with our entry out, a pod that brings istio-init is left to it.
func (g *guarded) brings(t *testing.T) {
	putBack := g.keepOut(t, g.theirs)
	defer putBack()
	p := on(g.node.Name, meshed("lax", "with-init", mesh{init: true}))
	// It leaves things as they are.
	p.Spec.InitContainers[0].Args = []string{"look"}
	g.create(t, p)
	g.expectUntouched(t, g.ready(t, p))
}

// upgraded: two agents are connected for a while; neither refuses, and neither writes what the
// plugin has written.
func (g *guarded) upgraded(t *testing.T) {
	for i := range standstills {
		wrong, stood := g.upgradedOnce(t, fmt.Sprint("upgraded-", i))
		if len(wrong) > 0 && stood > 0 && i < standstills-1 {
			t.Logf("done again, since the machine stood still for %v: %v", stood, wrong)
			continue
		}
		for _, w := range wrong {
			t.Error(w)
		}
		return
	}
}

// upgradedOnce returns what a standstill of the machine makes wrong, and how long that was.
func (g *guarded) upgradedOnce(t *testing.T, space string) (wrong []string, stood time.Duration) {
	t.Helper()
	l, began := g.followAgents(t), time.Now()
	s := g.stream(t, space, often, small)
	g.helmRun(t, "upgrade", chart(t, append(other, inline...)...)...)
	g.awaitProduct(t)
	g.awaitGuard(t)
	all := s.end(t)
	wrong = g.failedSandboxes(t, space)
	said := l.end(t)
	agents := map[string]bool{}
	for _, line := range said {
		agents[line.file] = true
	}
	if len(agents) != 2 {
		wrong = append(wrong, fmt.Sprintf("%d agents were there, want 2", len(agents)))
	}
	if acted := pick(said, "redirected", "refused", "open", "undecided"); len(acted) > 0 {
		wrong = append(wrong, fmt.Sprintf("the guards acted: %+v", acted))
	}
	stood = l.pulse.Stood(began, time.Now())
	for i := range all {
		if its := g.records(t, &all[i]); len(its) != 1 {
			t.Errorf("%s has %d records", all[i].Name, len(its))
		}
	}
	g.expectAllRedirected(t, all)
	g.deletePods(t, space)
	g.upgrade(t)
	g.awaitGuard(t)
	return wrong, stood
}

// refuses: a pod that the plugin has missed is told why it does not start, and starts when the
// plugin is back.
func (g *guarded) refuses(t *testing.T) {
	g.upgrade(t, "guard.mode=refuse")
	g.awaitGuard(t)
	putBack := g.keepOut(t, g.theirs)
	plain, p := on(g.node.Name, lookingPlain("shop", "refuse-plain")),
		on(g.node.Name, looking("shop", "refuse-meshed"))
	g.create(t, plain)
	g.create(t, p)
	g.expectLook(t, plain, "open")
	refusal := []string{"sidecar-cni refused pod shop/refuse-meshed",
		"remedy: find out who took sidecar-cni out of the node's chain"}
	g.awaitEvent(t, p, "FailedCreatePodSandBox", refusal...)
	g.awaitEvent(t, p, "SidecarStartRefused", "nobody redirected it")
	described := g.Kubectl(t, "--namespace=shop", "describe", "pod", p.Name)
	if !containsAll(described, refusal) {
		t.Errorf("no %q in\n%s", refusal, described)
	}
	putBack()
	p = g.expectLook(t, p, "redirected")
	if its := g.records(t, p); len(its) != 1 || its[0].Network == "" {
		t.Errorf("it is not recorded as redirected by the plugin: %+v", its)
	}
}

// withoutNRI: a node that cannot have a guard is as it would be without one, and says nothing.
func (g *guarded) withoutNRI(t *testing.T) {
	g.upgrade(t)
	for _, o := range []cluster.NodeOptions{{Runtime: cluster.Containerd1},
		{Runtime: cluster.Containerd2, NRI: cluster.NRIOff}} {
		t.Run(string(o.Runtime), func(t *testing.T) {
			n := g.join(t, o)
			l := followAgents(t, n)
			loadProduct(t, n)
			g.awaitProduct(t)
			g.awaitEntryOf(t, n, primary)
			plain := on(n.Name, newPod("shop", "no-nri-plain-"+n.Name))
			p := on(n.Name, meshed("shop", "no-nri-"+n.Name, ordinary))
			g.create(t, plain)
			g.create(t, p)
			g.expectUntouched(t, g.ready(t, plain))
			g.expectRedirected(t, g.ready(t, p))
			agent, err := g.agent(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			metrics, err := g.metricsOf(t.Context(), agent)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(metrics, "\nsidecar_cni_guard_connected ") {
				t.Errorf("the agent of %s has a series sidecar_cni_guard_connected", n.Name)
			}
			for _, s := range l.end(t) {
				if s.Level != "info" {
					t.Errorf("the agent of %s said: %+v", n.Name, s)
				}
			}
		})
	}
}

// took is a duration as a test tells it.
func took(since time.Time) time.Duration { return time.Since(since).Round(10 * time.Millisecond) }
