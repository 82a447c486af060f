package redirect

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	istio   = "sidecar.istio.io/"
	traffic = "traffic.sidecar.istio.io/"

	resolver = "10.96.0.10"
)

// byValue has cmp compare addresses as Go does.
var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// change is something that a pod has beside the usual.
type change func(*Pod)

// meshed returns a pod that is ours and asks for nothing, but for the changes.
func meshed(changes ...change) Pod {
	pod := Pod{
		Namespace:   "shop",
		Name:        "web-0",
		Annotations: map[string]string{istio + "status": `{"revision":"default"}`},
		Spec: &Spec{
			Labels: map[string]string{"app": "web"},
			Containers: []Container{
				{Name: "web", RunAsUser: id(1000)},
				{Name: "istio-proxy", Args: []string{"proxy", "sidecar", "--domain",
					"shop.svc.cluster.local"}, Env: map[string]string{}},
			},
		},
	}
	for _, change := range changes {
		change(&pod)
	}
	return pod
}

func id(n int64) *int64 { return new(n) }

func together(changes ...change) change {
	return func(p *Pod) {
		for _, change := range changes {
			change(p)
		}
	}
}

func annotation(key, value string) change {
	return func(p *Pod) { p.Annotations[key] = value }
}

func annotations(values map[string]string) change {
	return func(p *Pod) { maps.Copy(p.Annotations, values) }
}

func label(key, value string) change {
	return func(p *Pod) { p.Spec.Labels[key] = value }
}

// proxy changes the proxy's container.
func proxy(f func(*Container)) change {
	return func(p *Pod) {
		i := slices.IndexFunc(p.Spec.Containers,
			func(c Container) bool { return c.Name == "istio-proxy" })
		f(&p.Spec.Containers[i])
	}
}

func variable(key, value string) change {
	return proxy(func(c *Container) { c.Env[key] = value })
}

// native makes the proxy a native sidecar, behind the init containers that are already there.
func native(p *Pod) {
	i := slices.IndexFunc(p.Spec.Containers,
		func(c Container) bool { return c.Name == "istio-proxy" })
	sidecar := p.Spec.Containers[i]
	sidecar.Init, sidecar.Stays = true, true
	p.Spec.Containers = slices.Delete(p.Spec.Containers, i, i+1)
	first := slices.IndexFunc(p.Spec.Containers, func(c Container) bool { return !c.Init })
	p.Spec.Containers = slices.Insert(p.Spec.Containers, max(first, 0), sidecar)
}

// first puts containers in front of all others.
func first(containers ...Container) change {
	return func(p *Pod) { p.Spec.Containers = slices.Concat(containers, p.Spec.Containers) }
}

func without(container string) change {
	return func(p *Pod) {
		p.Spec.Containers = slices.DeleteFunc(p.Spec.Containers,
			func(c Container) bool { return c.Name == container })
	}
}

func nameservers(servers ...string) change {
	return func(p *Pod) { p.Nameservers = addrs(servers...) }
}

func untold(p *Pod) { p.Spec = nil }

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// ours decides about a pod that has to be ours.
func ours(t testing.TB, pod Pod, cfg Config) Decision {
	t.Helper()
	d, err := Decide(pod, cfg)
	if err != nil || d.Skip != "" || d.AskMore {
		t.Fatalf("not ours: skip %q, ask more %t, error %v", d.Skip, d.AskMore, err)
	}
	return d
}

// refused decides about a pod that is ours and asks for something impossible.
func refused(t testing.TB, pod Pod, cfg Config) Mistakes {
	t.Helper()
	d, err := Decide(pod, cfg)
	mistakes, ok := err.(Mistakes) //nolint:errorlint // Decide promises the bare type
	if !ok || d.Skip != "" || d.AskMore {
		t.Fatalf("not refused: %+v, error %v", d, err)
	}
	return mistakes
}
