package nriserver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// plugin is one of the library's own plugins, which keeps what it hears.
type plugin struct {
	refuse         string        // the first pod
	entered, leave chan struct{} // around the first pod, if set
	runtime        string
	closed         chan struct{}
	stub           stub.Stub

	mu  sync.Mutex
	all []string
}

// connect returns when the plugin is configured.
func (p *plugin) connect(t *testing.T, socket string) (disconnect func()) {
	t.Helper()
	p.closed = make(chan struct{})
	s, err := stub.New(p, stub.WithSocketPath(socket), stub.WithPluginName("guard"),
		stub.WithPluginIdx("10"), stub.WithLogger(quiet{}),
		stub.WithOnClose(sync.OnceFunc(func() { close(p.closed) })))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.stub = s
	t.Cleanup(s.Stop)
	return s.Stop
}

func (p *plugin) hear(format string, args ...any) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, fmt.Sprintf(format, args...))
	return len(p.all) == 2 // after Synchronize
}

func (p *plugin) heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

func (p *plugin) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	p.runtime = runtime + " " + version
	return 0, nil
}

func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox,
	containers []*api.Container) ([]*api.ContainerUpdate, error) {
	names, ids := []string{}, []string{}
	for _, pod := range pods {
		names = append(names, pod.GetName())
	}
	for _, container := range containers {
		ids = append(ids, container.GetId())
	}
	p.hear("synchronize %s %s", names, ids)
	return nil, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	first := p.hear("run %s", show(pod))
	if first && p.entered != nil {
		close(p.entered)
		<-p.leave
	}
	if first && p.refuse != "" {
		return errors.New(p.refuse)
	}
	return nil
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.hear("stop %s", show(pod))
	return nil
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.hear("remove %s", show(pod))
	return nil
}

func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox,
	c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.hear("create %s: %s %s %s %v %s", show(pod), c.GetPodSandboxId(), c.GetId(), c.GetName(),
		c.GetState(), c.GetEnv())
	return nil, nil, nil
}

func show(pod *api.PodSandbox) string {
	netns := ""
	for _, one := range pod.GetLinux().GetNamespaces() {
		if one.GetType() == "network" {
			netns = one.GetPath()
		}
	}
	return fmt.Sprint(pod.GetNamespace(), "/", pod.GetName(), " ", pod.GetId(), " ", pod.GetUid(),
		" ", pod.GetAnnotations(), " ", pod.GetLabels(), " ", pod.GetRuntimeHandler(), " ", netns,
		" ", pod.GetPid(), " ", pod.GetIps())
}

// quiet is a log that nobody reads.
type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(context.Context, string, ...any) {}
