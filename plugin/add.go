package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/plugin/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// add redirects a new pod, if it is ours. What the previous plugins made of it is the answer in any case.
func add(ctx context.Context, c *call) error {
	answer, err := c.result()
	if err != nil {
		return err
	}
	if skip := c.decideUnasked(); skip != "" {
		c.skip(skip)
		c.answer = answer
		return nil
	}
	n, err := openSandbox(c.netns)
	if err != nil {
		return err
	}
	defer n.close()
	decision, err := c.ask(ctx)
	switch {
	case err != nil:
		return err
	case decision.Skip != "":
		c.skip(decision.Skip)
	default:
		if err := c.program(ctx, n, decision.Policy); err != nil {
			return err
		}
		c.outcome.message, c.outcome.word = "redirected pod", "redirected"
	}
	c.answer = answer
	return nil
}

func (c *call) skip(why redirect.Skip) {
	c.outcome.message, c.outcome.word, c.outcome.reason = "skipped pod", "skipped", string(why)
}

// program writes the rules and then the record. Without a record the rules go again: nobody could verify them.
func (c *call) program(ctx context.Context, n *sandbox, policy redirect.Policy) error {
	c.outcome.backend = c.backendFor(n)
	tables, err := findBackend(ctx, c.outcome.backend)
	if err != nil {
		return kernelRefused.fail("redirect pod %s: %w", c.podName(), err)
	}
	rules := redirect.Compile(policy)
	began := time.Now()
	err = c.within(n, func() error { return tables.Apply(rules) })
	c.took("apply", began)
	if err != nil {
		return kernelRefused.fail("redirect pod %s: %w%s", c.podName(), err, c.whyBackend())
	}
	c.log.Debug("programmed rules", zap.String("backend", c.outcome.backend), zap.Int("chains", len(rules.Chains)))
	began = time.Now()
	err = c.records().Write(record.Record{
		Attachment: c.attachment,
		Network:    c.Network,
		Netns:      n.id,
		Pod:        record.Pod{Namespace: c.pod.Namespace, Name: c.pod.Name, UID: c.pod.UID},
		Backend:    c.outcome.backend,
		Revision:   record.Revision(rules),
		Policy:     policy,
	})
	c.took("record", began)
	if err == nil {
		return nil
	}
	tables, undo := findBackend(context.WithoutCancel(ctx), c.outcome.backend)
	if undo == nil {
		undo = c.within(n, func() error { return tables.Remove(rules) })
	}
	if undo != nil {
		return badState.fail("redirect pod %s: %w; remove its rules: %w", c.podName(), err, undo)
	}
	return badState.fail("redirect pod %s: %w", c.podName(), err)
}
