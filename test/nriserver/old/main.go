// Old is the runtime's half of NRI as containerd 2.0 has it, for package nriserver.
//
// It is a module of its own, since there is one version of a library in a module. The package that
// it shares with the other program is here by a symbolic link: had this module required the one
// around it, that one's version of the library would win.
package main

import (
	"context"
	"errors"
	"os"

	nri "github.com/containerd/nri/pkg/adaptation"
	nrilog "github.com/containerd/nri/pkg/log"

	"github.com/sidecar-cni/sidecar-cni/test/nriserver/old/line"
)

type program = line.Program[*nri.PodSandbox, *nri.Container]

func main() { os.Exit(line.Main(serve)) }

func serve(s line.Settings, p *program) error {
	if s.Validator {
		return errors.New("this version of NRI has no default validator")
	}
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
		nri.WithSocketPath(s.Socket), nri.WithPluginPath(none), nri.WithPluginConfigPath(none))
	if err != nil {
		return err
	}
	return p.Serve(os.Stdin, library(r))
}

func library(r *nri.Adaptation) line.Library[*nri.PodSandbox, *nri.Container] {
	event := func(send func(context.Context, *nri.StateChangeEvent) error,
	) func(context.Context, *nri.PodSandbox) error {
		return func(ctx context.Context, pod *nri.PodSandbox) error {
			return send(ctx, &nri.StateChangeEvent{Pod: pod})
		}
	}
	return line.Library[*nri.PodSandbox, *nri.Container]{
		Start:  r.Start,
		Block:  func() func() { return r.BlockPluginSync().Unblock },
		Run:    event(r.RunPodSandbox),
		Stop:   event(r.StopPodSandbox),
		Remove: event(r.RemovePodSandbox),
		StartContainer: func(ctx context.Context, pod *nri.PodSandbox,
			container *nri.Container) error {
			return r.StartContainer(ctx,
				&nri.StateChangeEvent{Pod: pod, Container: container})
		},
		Create: func(ctx context.Context, pod *nri.PodSandbox, container *nri.Container) error {
			_, err := r.CreateContainer(ctx,
				&nri.CreateContainerRequest{Pod: pod, Container: container})
			return err
		},
	}
}
