package redirect

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// reasons makes a pod that is skipped for one reason and no other.
var reasons = map[Skip]change{
	NotAPod:           func(p *Pod) { p.Name = "" },
	StaticPod:         annotation("kubernetes.io/config.source", "file"),
	ExcludedNamespace: func(p *Pod) { p.Namespace = "kube-system" },
	OwnAgent:          func(p *Pod) { p.Namespace, p.Name = "mesh-system", "sidecar-cni-x7k2p" },
	HasIstioInit:      first(Container{Name: "istio-init", Init: true}),
	ProxyDisabled:     variable("DISABLE_ENVOY", "true"),
	NoProxy:           without("istio-proxy"),
	NotASidecar:       proxy(func(c *Container) { c.Args = []string{"proxy", "router"} }),
	InjectionDisabled: label(istio+"inject", "false"),
	NotInjected:       func(p *Pod) { delete(p.Annotations, istio+"status") },
	InterceptionNone:  annotation(istio+"interceptionMode", "NONE"),
}

func withAgent() Config {
	cfg := Defaults()
	cfg.Agent = Agent{Namespace: "mesh-system", Name: "sidecar-cni"}
	return cfg
}

func TestEveryReasonSkips(t *testing.T) {
	t.Parallel()
	if len(reasons) != len(Skips) {
		t.Errorf("%d reasons, %d of them shown here", len(Skips), len(reasons))
	}
	for _, want := range Skips {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			d, err := Decide(meshed(reasons[want]), withAgent())
			if diff := cmp.Diff(Decision{Skip: want}, d, byValue); diff != "" || err != nil {
				t.Errorf("error %v, decision (-want +got):\n%s", err, diff)
			}
			if len(want.String()) < 15 {
				t.Errorf("said as %q", want)
			}
		})
	}
}

// A pod that has every reason at once loses one after the other.
func TestReasonsAreLookedForInOrder(t *testing.T) {
	t.Parallel()
	pod := meshed(
		first(Container{Name: "istio-init", Init: true}),
		proxy(func(c *Container) { c.Args = []string{"proxy", "router"} }),
		variable("DISABLE_ENVOY", "true"),
		annotations(map[string]string{"kubernetes.io/config.source": "file", istio + "inject": "false", istio + "interceptionMode": "NONE"}),
	)
	delete(pod.Annotations, istio+"status")
	pod.Namespace, pod.Name = "kube-system", ""
	cfg := Defaults()
	cfg.Agent = Agent{Namespace: "kube-system", Name: "sidecar-cni"}
	steps := []struct {
		peel change
		next Skip
	}{
		{func(*Pod) {}, NotAPod},
		{func(p *Pod) { p.Name = "sidecar-cni-x7k2p" }, StaticPod},
		{annotation("kubernetes.io/config.source", "api"), ExcludedNamespace},
		{func(*Pod) { cfg.ExcludeNamespaces = nil }, OwnAgent},
		{func(p *Pod) { p.Namespace = "shop" }, HasIstioInit},
		{without("istio-init"), ProxyDisabled},
		{without("istio-proxy"), NoProxy},
		{first(Container{Name: "istio-proxy", Args: []string{"proxy", "router"}}), NotASidecar},
		{proxy(func(c *Container) { c.Args = nil }), InjectionDisabled},
		{annotation(istio+"inject", "true"), NotInjected},
		{annotation(istio+"status", "{}"), InterceptionNone},
		{annotation(istio+"interceptionMode", "REDIRECT"), ""},
	}
	var order []Skip
	for i, step := range steps {
		step.peel(&pod)
		if d, err := Decide(pod, cfg); d.Skip != step.next || err != nil {
			t.Fatalf("step %d: skip %q, error %v; want %q", i, d.Skip, err, step.next)
		}
		order = append(order, step.next)
	}
	if diff := cmp.Diff(slices.Concat(Skips, []Skip{""}), order); diff != "" {
		t.Errorf("the list of reasons is in another order than they are looked for (-list +looked for):\n%s", diff)
	}
}

// A pod that is not ours is never held up, however wrong the rest of it is.
func TestSkipIsNeverAnError(t *testing.T) {
	t.Parallel()
	terrible := map[string]string{keyBypass: "please", istio + "inject": "maybe"}
	for _, s := range settings {
		if !s.env {
			terrible[s.key] = "\x00,65536,*,10.0.0.0/99," + strings.Repeat("x", 1<<20)
		}
	}
	for _, want := range Skips {
		pod := meshed(annotations(terrible), reasons[want])
		if want != NoProxy {
			for _, s := range settings {
				if s.env && s.key != "DISABLE_ENVOY" {
					variable(s.key, "\x00*")(&pod)
				}
			}
			proxy(func(c *Container) { c.RunAsUser = id(-1) })(&pod)
		}
		if d, err := Decide(pod, withAgent()); d.Skip != want || err != nil {
			t.Errorf("skip %q, error %v; want %q", d.Skip, err, want)
		}
	}
}

func TestWhichPodsAreOurs(t *testing.T) {
	t.Parallel()
	malformed := Mistakes{{istio + "inject", "maybe", `"true" or "false"`}}
	rows := []struct {
		name     string
		change   change
		skip     Skip
		mistakes Mistakes
	}{
		{"injected", func(*Pod) {}, "", nil},
		{"empty status annotation", annotation(istio+"status", ""), "", nil},
		{"config source api", annotation("kubernetes.io/config.source", "api"), "", nil},
		{"config source http", annotation("kubernetes.io/config.source", "http"), StaticPod, nil},
		{"no namespace", func(p *Pod) { p.Namespace = "" }, NotAPod, nil},
		{"namespace that begins like an excluded one", func(p *Pod) { p.Namespace = "kube-system2" }, "", nil},
		{"named like the agent, elsewhere", func(p *Pod) { p.Name = "sidecar-cni-x7k2p" }, "", nil},
		{"in the agent's namespace", func(p *Pod) { p.Namespace, p.Name = "mesh-system", "sidecar-cnix" }, "", nil},
		{"istio-init among the app containers", first(Container{Name: "istio-init"}), HasIstioInit, nil},
		{"istio-validation", first(Container{Name: "istio-validation", Init: true}), "", nil},

		{"native sidecar", native, "", nil},
		{"native gateway", together(native, proxy(func(c *Container) { c.Args = []string{"proxy", "router"} })), NotASidecar, nil},
		{"native sidecar with DISABLE_ENVOY", together(native, variable("DISABLE_ENVOY", "true")), ProxyDisabled, nil},
		{"init container that is called istio-proxy but ends", proxy(func(c *Container) { c.Init = true }), NoProxy, nil},
		{"waypoint", proxy(func(c *Container) { c.Args = []string{"proxy", "waypoint"} }), NotASidecar, nil},
		{"proxy without arguments", proxy(func(c *Container) { c.Args = nil }), "", nil},
		{"proxy that tells no type", proxy(func(c *Container) { c.Args = []string{"proxy"} }), "", nil},
		{"proxy with another command", proxy(func(c *Container) { c.Args = []string{"wait", "router"} }), "", nil},
		{"DISABLE_ENVOY in the app", first(Container{Name: "a", Env: map[string]string{"DISABLE_ENVOY": "true"}}), "", nil},
		{"DISABLE_ENVOY false", variable("DISABLE_ENVOY", "false"), "", nil},

		{"inject by annotation", annotation(istio+"inject", "true"), "", nil},
		{"not by annotation", annotation(istio+"inject", "false"), InjectionDisabled, nil},
		{"not by annotation, in YAML's words", annotation(istio+"inject", "No"), InjectionDisabled, nil},
		{"label over annotation: true", together(label(istio+"inject", "true"), annotation(istio+"inject", "false")), "", nil},
		{"label over annotation: false", together(label(istio+"inject", "false"), annotation(istio+"inject", "true")), InjectionDisabled, nil},
		{"empty label", together(label(istio+"inject", ""), annotation(istio+"inject", "false")), "", nil},
		{"malformed label", together(label(istio+"inject", "maybe"), annotation(istio+"inject", "false")), "", malformed},
		{"malformed annotation", annotation(istio+"inject", "maybe"), "", malformed},
		{"malformed annotation under a good label", together(label(istio+"inject", "true"), annotation(istio+"inject", "maybe")), "", nil},
		{"malformed and not injected", together(annotation(istio+"inject", "maybe"), reasons[NotInjected]), NotInjected, nil},
		{"malformed and NONE", together(annotation(istio+"inject", "maybe"), reasons[InterceptionNone]), InterceptionNone, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pod := meshed(row.change)
			if row.mistakes != nil {
				if diff := cmp.Diff(row.mistakes, refused(t, pod, withAgent())); diff != "" {
					t.Errorf("mistakes (-want +got):\n%s", diff)
				}
				return
			}
			if d, err := Decide(pod, withAgent()); d.Skip != row.skip || d.AskMore || err != nil {
				t.Errorf("skip %q, ask more %t, error %v; want skip %q", d.Skip, d.AskMore, err, row.skip)
			}
		})
	}
}

func TestPartOfTheFacts(t *testing.T) {
	t.Parallel()
	const askMore = Skip("ask more")
	rows := []struct {
		name string
		pod  Pod
		want Skip
	}{
		{"annotations: injected", meshed(untold), askMore},
		{"annotations: malformed inject", meshed(untold, annotation(istio+"inject", "maybe")), askMore},
		{"annotations: malformed ports", meshed(untold, annotation(traffic+"excludeInboundPorts", "http")), askMore},
		{"annotations: disabled", meshed(untold, annotation(istio+"inject", "false")), InjectionDisabled},
		{"annotations: disabled and not injected", meshed(untold, annotation(istio+"inject", "false"), reasons[NotInjected]), InjectionDisabled},
		{"annotations: not injected", meshed(untold, reasons[NotInjected]), NotInjected},
		{"annotations: not injected and NONE", meshed(untold, reasons[NotInjected], reasons[InterceptionNone]), NotInjected},
		{"annotations: NONE", meshed(untold, reasons[InterceptionNone]), InterceptionNone},
		{"annotations: static", meshed(untold, reasons[StaticPod]), StaticPod},
		{"name alone", Pod{Namespace: "shop", Name: "web-0"}, askMore},
		{"name alone, excluded namespace", Pod{Namespace: "kube-system", Name: "web-0"}, ExcludedNamespace},
		{"name alone, own agent", Pod{Namespace: "mesh-system", Name: "sidecar-cni-x7k2p"}, OwnAgent},
		{"no name", Pod{}, NotAPod},
		{"spec without annotations", meshed(func(p *Pod) { p.Annotations = nil }), askMore},
		{"spec without annotations: disabled", meshed(func(p *Pod) { p.Annotations = nil }, reasons[InjectionDisabled]), InjectionDisabled},
		{"spec without annotations: no proxy", meshed(func(p *Pod) { p.Annotations = nil }, reasons[NoProxy]), NoProxy},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d, err := Decide(row.pod, withAgent())
			want := Decision{Skip: row.want}
			if row.want == askMore {
				want = Decision{AskMore: true}
			}
			if diff := cmp.Diff(want, d, byValue); diff != "" || err != nil {
				t.Errorf("error %v, decision (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestClusterDecidesForPodsThatSayNothing(t *testing.T) {
	t.Parallel()
	cfg := Defaults()
	cfg.Values = map[string]string{istio + "interceptionMode": "NONE", "DISABLE_ENVOY": "true"}
	for want, pod := range map[Skip]Pod{
		ProxyDisabled:    meshed(),
		InterceptionNone: meshed(variable("DISABLE_ENVOY", "false")),
		NoProxy:          meshed(without("istio-proxy")),
		"":               meshed(variable("DISABLE_ENVOY", "false"), annotation(istio+"interceptionMode", "REDIRECT")),
	} {
		if d, err := Decide(pod, cfg); d.Skip != want || err != nil {
			t.Errorf("skip %q, error %v; want %q", d.Skip, err, want)
		}
	}
	if d, _ := Decide(Pod{Namespace: "shop", Name: "web-0"}, cfg); !d.AskMore {
		t.Errorf("decided %+v about a pod of which only the name is told", d)
	}
	cfg.ExcludeNamespaces = []string{"a", "shop"}
	if d, _ := Decide(meshed(), cfg); d.Skip != ExcludedNamespace {
		t.Errorf("skip %q; want %q", d.Skip, ExcludedNamespace)
	}
}
