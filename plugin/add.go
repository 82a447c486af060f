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
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// add redirects a new pod, if it is ours. What the previous plugins made of it is the answer in any
// case.
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
	n, err := openNamespace(c.netns)
	if err != nil {
		return err
	}
	defer n.Close()
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

// program writes rules and record. The record comes first, unseen: most of what can fail about it
// fails before the kernel was touched. Without a record the rules go again, as far as this call
// wrote them: nobody could verify them.
func (c *call) program(ctx context.Context, n *podns.Namespace, policy redirect.Policy) error {
	c.outcome.backend = backend.For(c.Backend, n)
	tables, err := backend.Find(c.outcome.backend)
	if err != nil {
		return kernelRefused.fail("redirect pod %s: %w", c.podName(), err)
	}
	rules := redirect.Compile(policy)
	began := time.Now()
	draft, err := c.draft(n, rules, policy)
	if err != nil {
		return badState.fail("redirect pod %s: %w", c.podName(), err)
	}
	c.took("record", began)
	began = time.Now()
	err = n.Do(func() error { return c.apply(ctx, tables, rules, draft) })
	c.took("apply", began)
	if err != nil {
		draft.Discard()
		return c.explain(ctx, err)
	}
	c.log.Debug("programmed rules", zap.String("backend", c.outcome.backend), zap.Int("chains", len(rules.Chains)))
	return nil
}

func (c *call) draft(n *podns.Namespace, rules redirect.Ruleset, policy redirect.Policy) (record.Draft, error) {
	return c.records().Draft(record.Record{
		Attachment: c.attachment,
		Network:    c.Network,
		Netns:      record.Netns{Path: c.netns, Device: n.ID.Device, Inode: n.ID.Inode},
		Pod:        record.Pod{Namespace: c.pod.Namespace, Name: c.pod.Name, UID: c.pod.UID},
		Backend:    c.outcome.backend,
		Revision:   record.Revision(rules),
		Policy:     policy,
	})
}

// apply writes the rules into the calling thread's namespace, and shows the record.
func (c *call) apply(ctx context.Context, tables backend.Backend, rules redirect.Ruleset, draft record.Draft) error {
	other, err := backend.OtherRules(ctx, c.outcome.backend)
	if err != nil {
		return err
	}
	if other != "" {
		return foreignRules.fail("redirect pod %s with %s: its network namespace has %s", c.podName(), c.outcome.backend, other)
	}
	undo, warnings, err := tables.Apply(ctx, rules)
	if err != nil {
		return err
	}
	c.Warnings = append(c.Warnings, warnings...)
	if err := draft.Publish(); err != nil {
		undo(c.earlierRules())
		return badState.fail("redirect pod %s: %w", c.podName(), err)
	}
	return nil
}

// earlierRules are those of an earlier call for the same sandbox, whose record still holds; nil
// without one.
func (c *call) earlierRules() *redirect.Ruleset {
	for _, one := range c.records().OfContainer(c.attachment.Container) {
		if one.Backend == c.outcome.backend {
			rules := redirect.Compile(one.Policy)
			return &rules
		}
	}
	return nil
}

// explain gives an error of the kernel, or of the time that ran out, its kind.
func (c *call) explain(ctx context.Context, err error) error {
	if known, ok := errors.AsType[*failure](err); ok {
		return known
	}
	if errors.Is(err, iptables.ErrForeign) {
		return foreignRules.fail("redirect pod %s: %w", c.podName(), err)
	}
	if ctx.Err() != nil {
		return tooSlow.fail("redirect pod %s: %w", c.podName(), err)
	}
	return kernelRefused.fail("redirect pod %s: %w%s", c.podName(), err, c.whyBackend())
}
