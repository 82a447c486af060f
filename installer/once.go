package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
)

// single makes one pass. Its error says why the chain is not effective.
func (s *settings) single(ctx context.Context, log *zap.Logger) error {
	client, err := s.agentClient()
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	object, err := nodestatus.New(client, s.nodeName).Info(asking)
	if err != nil {
		log.Warn("node object not read", zap.Error(err))
		object = nil
	}
	i, err := s.installer(ctx, object, client, log)
	if err != nil {
		return err
	}
	for end := time.Now().Add(reloadTimeout); ; {
		now, _ := i.pass(ctx)
		switch {
		case now.ready():
			return nil
		case now.reason != notLoaded || time.Now().After(end) || ctx.Err() != nil:
			return fmt.Errorf("%s: %s", now.reason, now.text)
		}
		time.Sleep(loadPause / 5) // the runtime needs a moment to load what was written
	}
}

// preview prints what a pass would change.
func (s *settings) preview(ctx context.Context, out io.Writer, log *zap.Logger) error {
	p := s.place(nil)
	if runtime, err := p.ask(ctx); err == nil {
		p.runtime = runtime
	} else {
		log.Warn("container runtime not reached", zap.Strings("paths", p.sockets), zap.Error(err))
	}
	probed, err := s.probe(ctx)
	if err != nil {
		return err
	}
	i := &installer{settings: *s, place: p, probed: probed, run: node.RunDir{Path: s.runDir}, log: log}
	marker, marked, err := i.run.Marked()
	if err != nil {
		return err
	}
	if marked && marker.Concerns(i.installation()) {
		fmt.Fprintf(out, "no change: %s\n", i.outState().text)
		return nil
	}
	spec, err := i.spec()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "platform %s (%s), backend %s\n", p.platform.Name, p.why, probed.backend)
	for _, warning := range probed.warnings {
		fmt.Fprintf(out, "warning: backend %s has %s\n", probed.backend, warning)
	}
	if err := i.runtime.Refuses(p.conf.Path, filepath.Dir(p.binary)); err != nil {
		return err
	}
	previewBinary(out, s.source(), p.binary)
	fmt.Fprintf(out, "%s: kubeconfig, token and ca.crt are kept up to date\n", p.credentials.Dir)
	dir, err := p.conf.Read()
	if err != nil {
		return err
	}
	plan, err := chain.Install(dir, spec)
	if err != nil {
		return err
	}
	show(out, p.conf, plan, dir)
	if plan.Way != chain.Standalone {
		return nil
	}
	if dir, err = p.readMultus(); err != nil {
		return err
	}
	if plan, err = chain.InstallStandalone(dir, spec); err != nil {
		return err
	}
	show(out, p.multus, plan, dir)
	return nil
}

func previewBinary(out io.Writer, from, to string) {
	want, err := os.ReadFile(from)
	have, none := os.ReadFile(to)
	switch {
	case err != nil:
		fmt.Fprintf(out, "%s: it would be written, but: %v\n", to, err)
	case errors.Is(none, os.ErrNotExist):
		fmt.Fprintf(out, "%s: it would be written\n", to)
	case !bytes.Equal(want, have):
		fmt.Fprintf(out, "%s: it would be replaced\n", to)
	default:
		fmt.Fprintf(out, "%s: no change\n", to)
	}
}

func show(out io.Writer, conf node.Conf, plan chain.Plan, dir chain.Dir) {
	if len(plan.Steps) == 0 {
		fmt.Fprintf(out, "%s: no change, way %s\n", conf.Path, plan.Way)
		return
	}
	fmt.Fprintf(out, "%s: way %s, network %s of %s\n", conf.Path, plan.Way, plan.Network, plan.Primary)
	for _, step := range plan.Steps {
		fmt.Fprintf(out, "  %s\n", step)
	}
	fmt.Fprintf(out, "\n%s", plan.Diff(dir))
}
