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
	StaticPod:         func(p *Pod) { p.Static = true },
	ExcludedNamespace: func(p *Pod) { p.Namespace = "kube-system" },
	OwnAgent:          func(p *Pod) { p.Namespace, p.Name = "mesh-system", "sidecar-cni-x7k2p" },
	InitRestored: together(annotation(StrippedAnnotation, "true"),
		first(Container{Name: "istio-init", Init: true})),
	HasIstioInit:      first(Container{Name: "istio-init", Init: true}),
	ProxyDisabled:     variable("DISABLE_ENVOY", "true"),
	NoProxy:           without("istio-proxy"),
	NotASidecar:       proxy(func(c *Container) { c.Args = []string{"proxy", "router"} }),
	InjectionDisabled: label(istio+"inject", "false"),
	NotInjected:       func(p *Pod) { delete(p.Annotations, istio+"status") },
	InterceptionNone:  annotation(istio+"interceptionMode", "NONE"),
	OwnKernel:         runtimeClass("vm", "kata-qemu"),
}

func runtimeClass(class, handler string) change {
	return func(p *Pod) { p.Spec.RuntimeClass, p.Spec.RuntimeHandler = class, handler }
}

func withAgent() Config {
	cfg := Defaults()
	cfg.RuntimeHandlers = RuntimeHandlers{"kata*": Leave}
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
			d.Notices = nil
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
		annotations(map[string]string{istio + "inject": "false",
			istio + "interceptionMode": "NONE", StrippedAnnotation: "true"}),
		runtimeClass("vm", "kata-qemu"), reasons[StaticPod],
	)
	delete(pod.Annotations, istio+"status")
	pod.Namespace, pod.Name = "kube-system", ""
	cfg := withAgent()
	cfg.Agent = Agent{Namespace: "kube-system", Name: "sidecar-cni"}
	steps := []struct {
		peel change
		next Skip
	}{
		{func(*Pod) {}, NotAPod},
		{func(p *Pod) { p.Name = "sidecar-cni-x7k2p" }, StaticPod},
		{func(p *Pod) { p.Static = false }, ExcludedNamespace},
		{func(*Pod) { cfg.ExcludeNamespaces = nil }, OwnAgent},
		{func(p *Pod) { p.Namespace = "shop" }, InitRestored},
		{annotation(StrippedAnnotation, "false"), HasIstioInit},
		{without("istio-init"), ProxyDisabled},
		{without("istio-proxy"), NoProxy},
		{first(Container{Name: "istio-proxy", Args: []string{"proxy", "router"}}), NotASidecar},
		{proxy(func(c *Container) { c.Args = nil }), InjectionDisabled},
		{annotation(istio+"inject", "true"), NotInjected},
		{annotation(istio+"status", "{}"), InterceptionNone},
		{annotation(istio+"interceptionMode", "REDIRECT"), OwnKernel},
		{runtimeClass("vm", "runc"), ""},
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
		t.Errorf("the list of reasons is in another order than they are looked for (-list "+
			"+looked for):\n%s", diff)
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
	rows := []struct {
		name   string
		change change
		skip   Skip
	}{
		{"injected", func(*Pod) {}, ""},
		{"empty status annotation", annotation(istio+"status", ""), ""},
		{"its author says that it is static", annotation("kubernetes.io/config.source", "file"),
			""},
		{"no namespace", func(p *Pod) { p.Namespace = "" }, NotAPod},
		{"namespace that begins like an excluded one",
			func(p *Pod) { p.Namespace = "kube-system2" }, ""},
		{"named like the agent, elsewhere", func(p *Pod) { p.Name = "sidecar-cni-x7k2p" }, ""},
		{"in the agent's namespace",
			func(p *Pod) { p.Namespace, p.Name = "mesh-system", "sidecar-cnix" }, ""},
		{"istio-init among the app containers", first(Container{Name: "istio-init"}), HasIstioInit},
		{"istio-init taken out by our webhook", annotation(StrippedAnnotation, "true"), ""},
		{"istio-init, and the webhook has taken out none", together(reasons[HasIstioInit],
			annotation(StrippedAnnotation, "false")), HasIstioInit},
		{"istio-init, and the annotations are not known", together(reasons[InitRestored],
			func(p *Pod) { p.Annotations = nil }), HasIstioInit},
		{"istio-validation", first(Container{Name: "istio-validation", Init: true}), ""},

		{"native sidecar", native, ""},
		{"native gateway", together(native,
			proxy(func(c *Container) { c.Args = []string{"proxy", "router"} })), NotASidecar},
		{"native sidecar with DISABLE_ENVOY", together(native, variable("DISABLE_ENVOY", "true")),
			ProxyDisabled},
		{"init container that is called istio-proxy but ends",
			proxy(func(c *Container) { c.Init = true }), NoProxy},
		{"waypoint", proxy(func(c *Container) { c.Args = []string{"proxy", "waypoint"} }),
			NotASidecar},
		{"proxy without arguments", proxy(func(c *Container) { c.Args = nil }), ""},
		{"proxy that tells no type", proxy(func(c *Container) { c.Args = []string{"proxy"} }), ""},
		{"proxy with another command",
			proxy(func(c *Container) { c.Args = []string{"wait", "router"} }), ""},
		{"DISABLE_ENVOY in the app",
			first(Container{Name: "a", Env: map[string]string{"DISABLE_ENVOY": "true"}}), ""},
		{"DISABLE_ENVOY false", variable("DISABLE_ENVOY", "false"), ""},
		{"DISABLE_ENVOY on, which Envoy's agent does not read", variable("DISABLE_ENVOY", "on"),
			""},
		{"DISABLE_ENVOY with a blank", variable("DISABLE_ENVOY", " true"), ""},
		{"DISABLE_ENVOY T", variable("DISABLE_ENVOY", "T"), ProxyDisabled},

		{"inject by annotation", annotation(istio+"inject", "true"), ""},
		{"not by annotation", annotation(istio+"inject", "false"), InjectionDisabled},
		{"not by annotation, in YAML's words", annotation(istio+"inject", "no"), ""},
		{"off", annotation(istio+"inject", "off"), ""},
		{"n", label(istio+"inject", "n"), ""},
		{"0", annotation(istio+"inject", "0"), ""},
		{"a blank in front", annotation(istio+"inject", " false"), ""},
		{"a blank behind", label(istio+"inject", "false "), ""},
		{"in capitals", annotation(istio+"inject", "FaLsE"), ""},
		{"label over annotation: true",
			together(label(istio+"inject", "true"), annotation(istio+"inject", "false")), ""},
		{"label over annotation: false",
			together(label(istio+"inject", "false"), annotation(istio+"inject", "true")),
			InjectionDisabled},
		{"empty label", together(label(istio+"inject", ""), annotation(istio+"inject", "false")),
			""},
		{"malformed label", together(label(istio+"inject", "maybe"),
			annotation(istio+"inject", "false")), ""},
		{"malformed annotation", annotation(istio+"inject", "maybe"), ""},
		{"malformed annotation under a good label",
			together(label(istio+"inject", "true"), annotation(istio+"inject", "maybe")), ""},
		{"malformed and not injected",
			together(annotation(istio+"inject", "maybe"), reasons[NotInjected]), NotInjected},
		{"malformed and NONE", together(annotation(istio+"inject", "maybe"),
			reasons[InterceptionNone]), InterceptionNone},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if d, err := Decide(meshed(row.change), withAgent()); d.Skip != row.skip || d.AskMore ||
				err != nil {
				t.Errorf("skip %q, ask more %t, error %v; want skip %q", d.Skip, d.AskMore, err,
					row.skip)
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
		{"annotations: malformed inject", meshed(untold, annotation(istio+"inject", "maybe")),
			askMore},
		{"annotations: malformed ports",
			meshed(untold, annotation(traffic+"excludeInboundPorts", "http")), askMore},
		{"annotations: disabled, perhaps", meshed(untold, annotation(istio+"inject", "false")),
			askMore},
		{"annotations: disabled and not injected",
			meshed(untold, annotation(istio+"inject", "false"), reasons[NotInjected]), NotInjected},
		{"annotations: not injected", meshed(untold, reasons[NotInjected]), NotInjected},
		{"annotations: not injected and NONE",
			meshed(untold, reasons[NotInjected], reasons[InterceptionNone]), NotInjected},
		{"annotations: NONE", meshed(untold, reasons[InterceptionNone]), InterceptionNone},
		{"annotations: static", meshed(untold, reasons[StaticPod]), StaticPod},
		{"name alone", Pod{Namespace: "shop", Name: "web-0"}, askMore},
		{"name alone, excluded namespace", Pod{Namespace: "kube-system", Name: "web-0"},
			ExcludedNamespace},
		{"name alone, own agent", Pod{Namespace: "mesh-system", Name: "sidecar-cni-x7k2p"},
			OwnAgent},
		{"no name", Pod{}, NotAPod},
		{"spec without annotations", meshed(func(p *Pod) { p.Annotations = nil }), askMore},
		{"spec without annotations: disabled",
			meshed(func(p *Pod) { p.Annotations = nil }, reasons[InjectionDisabled]),
			InjectionDisabled},
		{"spec without annotations: no proxy",
			meshed(func(p *Pod) { p.Annotations = nil }, reasons[NoProxy]), NoProxy},
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
		"": meshed(variable("DISABLE_ENVOY", "false"),
			annotation(istio+"interceptionMode", "REDIRECT")),
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

func TestRuntimeHandlers(t *testing.T) {
	t.Parallel()
	custom := RuntimeHandlers{"kata*": Refuse, "kata-remote": Allow, "kata-f*": Leave, "*": Allow}
	for _, row := range []struct {
		handlers       RuntimeHandlers
		class, handler string
		want           HandlerAction
	}{
		{Defaults().RuntimeHandlers, "", "", Allow},
		{Defaults().RuntimeHandlers, "nvidia", "nvidia", Allow},
		{Defaults().RuntimeHandlers, "wasm", "runs", Allow},
		{Defaults().RuntimeHandlers, "sandboxed", "runsc", Refuse},
		{Defaults().RuntimeHandlers, "sandboxed", "runsc-kvm", Refuse},
		{Defaults().RuntimeHandlers, "gvisor", "gvisor", Refuse},
		{Defaults().RuntimeHandlers, "vm", "kata-qemu", Refuse},
		{Defaults().RuntimeHandlers, "kata", "runc", Allow},
		{custom, "vm", "kata", Refuse},
		{custom, "vm", "kata-remote", Allow},
		{custom, "vm", "kata-remote2", Refuse},
		{custom, "vm", "kata-fc", Leave},
		{custom, "vm", "runsc", Allow},
		{RuntimeHandlers{"kata*": Refuse, "kata2": Allow}, "vm", "kata2", Allow},
		{RuntimeHandlers{"kata2*": Refuse, "kata2": Leave}, "vm", "kata2", Leave},
		{RuntimeHandlers{"*": Refuse}, "vm", "kata", Refuse},
		{RuntimeHandlers{"*": Refuse, "k*": Leave}, "vm", "kata", Leave},
		{nil, "vm", "kata", Allow},
	} {
		cfg := Defaults()
		cfg.RuntimeHandlers = row.handlers
		d, err := Decide(meshed(runtimeClass(row.class, row.handler)), cfg)
		got := Allow
		if _, ok := err.(*UnsupportedRuntime); ok { //nolint:errorlint // Decide promises the bare type
			got = Refuse
		} else if err != nil {
			t.Fatal(err)
		}
		if d.Skip == OwnKernel && len(d.Notices) == 1 &&
			strings.Contains(d.Notices[0], row.handler) {
			got = Leave
		}
		if got != row.want || got == Allow && d.Policy.Mode != ModeRedirect ||
			got != Allow && d.Policy.Mode != "" {
			t.Errorf("handler %q: %s (%+v), want %s", row.handler, got, d, row.want)
		}
	}
	for asks, handlers := range map[bool]RuntimeHandlers{true: Defaults().RuntimeHandlers,
		false: {"kata*": Allow}} {
		cfg := Defaults()
		cfg.RuntimeHandlers = handlers
		if d, err := Decide(meshed(runtimeClass("vm", "")), cfg); d.AskHandler != asks ||
			err != nil {
			t.Errorf("%v: of the class alone it makes %+v, error %v", handlers, d, err)
		}
	}
}

// Where a container runs as the proxy does, its traffic counts as the proxy's.
func TestContainersThatRunAsTheProxy(t *testing.T) {
	t.Parallel()
	app := func(uid int64) change {
		return func(p *Pod) { p.Spec.Containers[0].RunAsUser = id(uid) }
	}
	podUser := func(uid int64) change { return func(p *Pod) { p.Spec.RunAsUser = id(uid) } }
	noUser := func(p *Pod) { p.Spec.Containers[0].RunAsUser = nil }
	proxyUser := func(uid int64) change {
		return proxy(func(c *Container) { c.RunAsUser = id(uid) })
	}
	const (
		fine    = ""
		told    = `container "web" runs under the proxy's uid`
		refusal = `securityContext.runAsUser: "%s": want a runAsUser of its own on container istio-proxy, other than that of "web"`
	)
	for name, row := range map[string]struct {
		change change
		notice string
		uid    string // of the mistake
	}{
		"another uid":         {app(1000), fine, ""},
		"the usual uid":       {app(1337), told, ""},
		"the proxy's own uid": {together(app(2000), proxyUser(2000)), told, ""},
		"the usual uid, where the proxy has other": {together(app(1337),
			proxyUser(2000)), fine, ""},
		"the pod's, and the proxy has its own": {together(podUser(2000), noUser,
			proxyUser(2000)), told, ""},
		"the pod's, and the proxy has it too": {together(podUser(2000), noUser),
			fine, "2000"},
		"the pod's, written on the container": {together(podUser(2000), app(2000)),
			fine, "2000"},
		"the pod's is the proxy's alone": {together(podUser(2000), app(1000)), fine, ""},
		"nobody knows":                   {noUser, fine, ""},
		"root, like the proxy":           {together(app(0), proxyUser(0)), fine, ""},
		"the usual uid beside a proxy that is root by the pod": {together(podUser(0), app(1337)),
			told, ""},
		"an init container": {
			first(Container{Name: "web", Init: true, RunAsUser: id(1337)}), fine, ""},
		"its group": {
			func(p *Pod) { p.Spec.Containers[0].RunAsGroup = id(1337) },
			`container "web" runs under the proxy's gid 1337`, ""},
		"the group of a proxy that is root": {together(proxyUser(0),
			func(p *Pod) { p.Spec.RunAsGroup = id(3000) }),
			`container "web" runs under the proxy's gid 3000`, ""},
		"another group": {func(p *Pod) { p.Spec.Containers[0].RunAsGroup = id(1000) }, fine, ""},
		"a native sidecar": {first(Container{Name: "web", Init: true, Stays: true,
			RunAsUser: id(1337)}), told, ""},
	} {
		d, err := Decide(meshed(row.change), Defaults())
		notices := strings.Join(d.Notices, "; ")
		if (row.notice == "") != (notices == "") || !strings.HasPrefix(notices, row.notice) {
			t.Errorf("%s: notices %q, want %q", name, notices, row.notice)
		}
		if (err != nil) != (row.uid != "") ||
			err != nil && !strings.HasPrefix(err.Error(),
				strings.Replace(refusal, "%s", row.uid, 1)) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestEveryContainerThatRunsAsTheProxyIsNamed(t *testing.T) {
	t.Parallel()
	user := func(uid *int64) change {
		return func(p *Pod) {
			// This container comes after the proxy.
			p.Spec.Containers = append(p.Spec.Containers, Container{Name: "logs"})
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].RunAsUser = uid
			}
		}
	}
	notices := ours(t, meshed(user(id(1337))), Defaults()).Notices
	if diff := cmp.Diff([]string{"web", "logs"}, quoted(notices)); diff != "" {
		t.Errorf("notices name (-want +got):\n%s", diff)
	}
	var wanted []string
	for _, m := range refused(t, meshed(user(nil), func(p *Pod) { p.Spec.RunAsUser = id(2000) }),
		Defaults()) {
		wanted = append(wanted, m.Want)
	}
	if diff := cmp.Diff([]string{"web", "logs"}, quoted(wanted)); diff != "" {
		t.Errorf("mistakes name (-want +got):\n%s", diff)
	}
}

// quoted returns what each text has between its first quotation marks.
func quoted(texts []string) []string {
	var words []string
	for _, text := range texts {
		words = append(words, strings.Split(text, `"`)[1])
	}
	return words
}

func TestWhichPodsNeedRedirection(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change change
		want   bool
	}{
		"with a sidecar":                     {together(), true},
		"with a native sidecar":              {native, true},
		"skipped, though it has a sidecar":   {reasons[InjectionDisabled], true},
		"with rules by a container":          {reasons[HasIstioInit], false},
		"injected, and without a proxy":      {reasons[NoProxy], false},
		"with a proxy that was not injected": {reasons[NotInjected], false},
		"injected, and no more is known":     {untold, false},
		"of which nothing is known":          {together(untold, reasons[NotInjected]), false},
		"without proxy, rules by a container": {together(reasons[NoProxy], reasons[HasIstioInit]),
			false},
	} {
		if got := meshed(row.change).NeedsRedirection(); got != row.want {
			t.Errorf("a pod %s: %t", name, got)
		}
	}
}
