package main

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/program"
)

// add redirects a new pod, if it is ours. What the previous plugins made of it is the answer in any
// case.
func add(ctx context.Context, c call, d deps) (o outcome, err error) {
	if o.answer, err = c.result(); err != nil {
		return o, err
	}
	if c.skipUnasked(&o) {
		return o, nil
	}
	n, err := openNamespace(c.netns)
	if err != nil {
		return o, err
	}
	defer n.Close()
	decision, err := ask(ctx, c, d, &o)
	if decision.Skip == redirect.InitRestored {
		o.warnings = append(o.warnings, leaveToInit(n)...)
	}
	if err != nil || decision.Skip != "" {
		return o, err
	}
	o.backend = backend.For(c.conf.Backend, n)
	began := time.Now()
	w, err := program.Prepare(d.records, record.Record{
		Attachment: c.attachment,
		Network:    c.conf.Network,
		Netns:      record.Netns{Path: c.netns, Device: n.ID.Device, Inode: n.ID.Inode},
		Pod:        record.Pod{Namespace: c.pod.Namespace, Name: c.pod.Name, UID: o.uid},
		Backend:    o.backend,
		Policy:     decision.Policy,
	})
	if err != nil {
		return o, explain(ctx, c, o.backend, err)
	}
	o.took("record", began)
	began = time.Now()
	var warnings []string
	err = n.Do(func() (err error) { warnings, err = w.Write(ctx); return err })
	o.took("apply", began)
	o.warnings = append(o.warnings, warnings...)
	if err != nil {
		w.Discard()
		return o, explain(ctx, c, o.backend, err)
	}
	d.logOurs.Debug("programmed rules", zap.String("backend", o.backend),
		zap.Int("chains", len(w.Rules.Chains)))
	o.message, o.word = "redirected pod", "redirected"
	return o, nil
}

// explain gives an error of the kernel, or of the time that ran out, its kind.
func explain(ctx context.Context, c call, backendName string, err error) error {
	var foreign *program.ForeignError
	var unrecorded *program.RecordError
	switch {
	case errors.As(err, &foreign), errors.Is(err, iptables.ErrForeign):
		return foreignRules.fail("redirect pod %s with %s: %w", c.podName(), backendName, err)
	case errors.As(err, &unrecorded):
		return badState.fail("redirect pod %s: %w", c.podName(), err)
	case ctx.Err() != nil:
		return tooSlow.fail("redirect pod %s: %w", c.podName(), err)
	}
	return kernelRefused.fail("redirect pod %s: %w%s", c.podName(), err, c.whyBackend(backendName))
}
