// Now is the runtime's half of NRI as containerd 2.4 has it, for package nriserver.
package main

import (
	"context"
	"os"

	nri "github.com/containerd/nri/pkg/adaptation"
	nrilog "github.com/containerd/nri/pkg/log"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"

	"github.com/sidecar-cni/sidecar-cni/test/nriserver/line"
)

type program = line.Program[*nri.PodSandbox, *nri.Container]

func main() { os.Exit(line.Main(serve)) }

func serve(s line.Settings, p *program) error {
	nrilog.Set(p.Log)
	if s.RequestTimeout != 0 {
		nri.SetPluginRequestTimeout(s.RequestTimeout)
	}
	synchronize := func(ctx context.Context, call nri.SyncCB) error {
		return p.Synchronize(func(pods []*nri.PodSandbox, containers []*nri.Container) error {
			_, err := call(ctx, pods, containers)
			return err
		})
	}
	update := func(context.Context, []*nri.ContainerUpdate) ([]*nri.ContainerUpdate, error) {
		return nil, nil
	}
	none := s.Socket + ".none" // no plugins of this machine
	r, err := nri.New(s.RuntimeName, s.RuntimeVersion, synchronize, update,
		nri.WithSocketPath(s.Socket), nri.WithPluginPath(none), nri.WithPluginConfigPath(none),
		nri.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: s.Validator}))
	if err != nil {
		return err
	}
	return p.Serve(os.Stdin, library(r))
}

func library(r *nri.Adaptation) line.Library[*nri.PodSandbox, *nri.Container] {
	return line.Library[*nri.PodSandbox, *nri.Container]{
		Start: r.Start,
		Block: func() func() { return r.BlockPluginSync().Unblock },
		Run: func(ctx context.Context, pod *nri.PodSandbox) error {
			return r.RunPodSandbox(ctx, &nri.RunPodSandboxRequest{Pod: pod})
		},
		Stop: func(ctx context.Context, pod *nri.PodSandbox) error {
			return r.StopPodSandbox(ctx, &nri.StopPodSandboxRequest{Pod: pod})
		},
		Remove: func(ctx context.Context, pod *nri.PodSandbox) error {
			return r.RemovePodSandbox(ctx, &nri.RemovePodSandboxRequest{Pod: pod})
		},
		StartContainer: func(ctx context.Context, pod *nri.PodSandbox,
			container *nri.Container) error {
			return r.StartContainer(ctx,
				&nri.StartContainerRequest{Pod: pod, Container: container})
		},
		Create: func(ctx context.Context, pod *nri.PodSandbox, container *nri.Container) error {
			_, err := r.CreateContainer(ctx,
				&nri.CreateContainerRequest{Pod: pod, Container: container})
			return err
		},
	}
}
