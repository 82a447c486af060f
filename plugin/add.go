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
	if err != nil || decision.Skip != "" {
		return o, err
	}
	o.backend = backend.For(c.conf.Backend, n)
	w := writing{name: o.backend, rules: redirect.Compile(decision.Policy)}
	if w.tables, err = backend.Find(w.name); err != nil {
		return o, kernelRefused.fail("redirect pod %s: %w", c.podName(), err)
	}
	// The record comes first, unseen: most of what can fail about it fails before the kernel was
	// touched.
	began := time.Now()
	w.record, err = d.records.Draft(record.Record{
		Attachment: c.attachment,
		Network:    c.conf.Network,
		Netns:      record.Netns{Path: c.netns, Device: n.ID.Device, Inode: n.ID.Inode},
		Pod:        record.Pod{Namespace: c.pod.Namespace, Name: c.pod.Name, UID: o.uid},
		Backend:    w.name,
		Revision:   record.Revision(w.rules),
		Policy:     decision.Policy,
	})
	if err != nil {
		return o, badState.fail("redirect pod %s: %w", c.podName(), err)
	}
	o.took("record", began)
	began = time.Now()
	var warnings []string
	err = n.Do(func() (err error) { warnings, err = w.write(ctx, c, d); return err })
	o.took("apply", began)
	o.warnings = append(o.warnings, warnings...)
	if err != nil {
		w.record.Discard()
		return o, explain(ctx, c, o.backend, err)
	}
	d.logOurs.Debug("programmed rules", zap.String("backend", o.backend),
		zap.Int("chains", len(w.rules.Chains)))
	o.message, o.word = "redirected pod", "redirected"
	return o, nil
}

// writing is what is about to be written for a pod.
type writing struct {
	name   string // of the backend
	tables backend.Backend
	rules  redirect.Ruleset
	record record.Draft
}

// write writes the rules into the calling thread's namespace, and shows the record. Without a
// record the rules go again, as far as this call wrote them: nobody could verify them.
func (w writing) write(ctx context.Context, c call, d deps) (warnings []string, err error) {
	other, err := backend.OtherRules(ctx, w.name)
	if err != nil {
		return nil, err
	}
	if other != "" {
		return nil, foreignRules.fail("redirect pod %s with %s: its network namespace has %s",
			c.podName(), w.name, other)
	}
	undo, warnings, err := w.tables.Apply(ctx, w.rules)
	if err != nil {
		return nil, err
	}
	if err := w.record.Publish(); err != nil {
		undo(earlierRules(d.records.OfContainer(c.attachment.Container), w.name))
		return warnings, badState.fail("redirect pod %s: %w", c.podName(), err)
	}
	return warnings, nil
}

// earlierRules are those of an earlier call for the same sandbox, whose record still holds; nil
// without one.
func earlierRules(records []record.Record, backendName string) *redirect.Ruleset {
	for _, one := range records {
		if one.Backend == backendName {
			rules := redirect.Compile(one.Policy)
			return &rules
		}
	}
	return nil
}

// explain gives an error of the kernel, or of the time that ran out, its kind.
func explain(ctx context.Context, c call, backendName string, err error) error {
	if known, ok := errors.AsType[*failure](err); ok {
		return known
	}
	if errors.Is(err, iptables.ErrForeign) {
		return foreignRules.fail("redirect pod %s: %w", c.podName(), err)
	}
	if ctx.Err() != nil {
		return tooSlow.fail("redirect pod %s: %w", c.podName(), err)
	}
	return kernelRefused.fail("redirect pod %s: %w%s", c.podName(), err, c.whyBackend(backendName))
}
