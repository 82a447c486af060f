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
func check(ctx context.Context, c call, d deps) (o outcome, err error) {
	recorded, err := d.records.Read(c.attachment)
	if errors.Is(err, fs.ErrNotExist) {
		return checkUnrecorded(ctx, c, d)
	}
	o.ours = true
	if err != nil {
		return o, badState.fail("check pod %s: %w", c.podName(), err)
	}
	o.path = "record"
	n, err := openNamespace(c.netns)
	if err != nil {
		return o, err
	}
	defer n.Close()
	if n.ID.Device != recorded.Netns.Device || n.ID.Inode != recorded.Netns.Inode {
		return o, rulesDiffer.fail(
			"check pod %s: its network namespace is %d, ADD programmed %d at %s",
			c.podName(), n.ID.Inode, recorded.Netns.Inode, recorded.Netns.Path)
	}
	rules := redirect.Compile(recorded.Policy)
	if record.Revision(rules) != recorded.Revision {
		// programmed by another version of the plugin, and only that one knows what to expect
		o.checked("older_revision")
		return o, nil
	}
	o.backend = recorded.Backend
	return o, o.verify(ctx, c, n, rules)
}

// checkUnrecorded is about a pod that ADD did not redirect, or whose record is lost.
func checkUnrecorded(ctx context.Context, c call, d deps) (o outcome, err error) {
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
	return o, o.verify(ctx, c, n, redirect.Compile(decision.Policy))
}

// verify notes how the rules in a namespace differ from those that should be there.
func (o *outcome) verify(ctx context.Context, c call, n *podns.Namespace,
	rules redirect.Ruleset) error {
	tables, err := backend.Find(o.backend)
	if err != nil {
		return kernelRefused.fail("check pod %s: %w", c.podName(), err)
	}
	began := time.Now()
	err = n.Do(func() (err error) { o.problems, err = tables.Verify(ctx, rules); return err })
	o.took("verify", began)
	if err != nil {
		return kernelRefused.fail("check pod %s: %w", c.podName(), err)
	}
	if len(o.problems) == 0 {
		o.checked("")
		return nil
	}
	var words []string
	for _, p := range o.problems {
		words = append(words, p.String())
	}
	return rulesDiffer.fail("check pod %s: %d differences: %s", c.podName(), len(words),
		strings.Join(words, "; "))
}

func (o *outcome) checked(reason string) {
	o.message, o.word, o.reason = "checked pod", "checked", reason
}
