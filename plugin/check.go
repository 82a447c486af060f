package main

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// check compares the kernel with what ADD recorded, and changes nothing. What the annotations say
// by now does not count.
func check(ctx context.Context, c *call) error {
	recorded, err := c.records().Read(c.attachment)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.checkUnrecorded(ctx)
	case err != nil:
		c.claim()
		return badState.fail("check pod %s: %w", c.podName(), err)
	}
	c.claim()
	c.outcome.path = "record"
	n, err := openNamespace(c.netns)
	if err != nil {
		return err
	}
	defer n.Close()
	if n.ID.Device != recorded.Netns.Device || n.ID.Inode != recorded.Netns.Inode {
		return rulesDiffer.fail("check pod %s: its network namespace is %d, ADD programmed %d at %s",
			c.podName(), n.ID.Inode, recorded.Netns.Inode, recorded.Netns.Path)
	}
	rules := redirect.Compile(recorded.Policy)
	if record.Revision(rules) != recorded.Revision {
		c.checked("older_revision") // programmed by another version of the plugin, which alone could tell
		return nil
	}
	c.outcome.backend = recorded.Backend
	return c.verify(ctx, n, rules)
}

// checkUnrecorded is about a pod that ADD did not redirect, or whose record is lost.
func (c *call) checkUnrecorded(ctx context.Context) error {
	if skip := c.decideUnasked(); skip != "" {
		c.skip(skip)
		return nil
	}
	n, err := openNamespace(c.netns)
	if err != nil {
		return err
	}
	defer n.Close()
	decision, err := c.ask(ctx)
	if err != nil {
		return err
	}
	if decision.Skip != "" {
		c.skip(decision.Skip)
		return nil
	}
	c.outcome.backend = backend.For(c.Backend, n)
	return c.verify(ctx, n, redirect.Compile(decision.Policy))
}

func (c *call) verify(ctx context.Context, n *podns.Namespace, rules redirect.Ruleset) error {
	tables, err := backend.Find(c.outcome.backend)
	if err != nil {
		return kernelRefused.fail("check pod %s: %w", c.podName(), err)
	}
	began := time.Now()
	err = n.Do(func() error {
		c.outcome.problems, err = tables.Verify(ctx, rules)
		return err
	})
	c.took("verify", began)
	if err != nil {
		return kernelRefused.fail("check pod %s: %w", c.podName(), err)
	}
	if len(c.outcome.problems) == 0 {
		c.checked("")
		return nil
	}
	var words []string
	for _, p := range c.outcome.problems {
		words = append(words, p.String())
	}
	return rulesDiffer.fail("check pod %s: %d differences: %s", c.podName(), len(words), strings.Join(words, "; "))
}

func (c *call) checked(reason string) {
	c.outcome.message, c.outcome.word, c.outcome.reason = "checked pod", "checked", reason
}
