package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// skipUnasked reports whether what the runtime passed is enough to say that the pod is not ours,
// and notes why. Nothing is opened or asked for it: most pods of most clusters end here.
func (c call) skipUnasked(o *outcome) bool {
	o.path = "runtime"
	decision, err := redirect.Decide(c.fromRuntime(), c.conf.Redirect)
	if err != nil || decision.Skip == "" {
		return false // a mistake is raised once the whole pod is known
	}
	o.skip(decision.Skip)
	return true
}

// fromRuntime is the pod as far as the runtime knows it.
func (c call) fromRuntime() redirect.Pod {
	pod := redirect.FromRuntime(c.pod.Namespace, c.pod.Name, c.conf.Annotations)
	pod.Nameservers = c.conf.Nameservers
	return pod
}

// ask learns from a source what the pod is, decides, and notes what comes of it. A wrong
// configuration counts for a pod that is ours only, or of which that is not known.
func ask(ctx context.Context, c call, d deps, o *outcome) (redirect.Decision, error) {
	o.asked, o.path = true, ""
	began := time.Now()
	found, err := d.sources.Find(ctx, c.pod)
	o.took("find", began)
	if found.PassedOver != nil {
		d.logOurs.Debug("passed over pod file", zap.Error(found.PassedOver))
	}
	if err != nil {
		o.ours = true
		return redirect.Decision{}, cmp.Or(c.wrong(), err)
	}
	o.path, o.uid = found.From, found.UID
	if o.stale = found.Warning; o.stale != "" {
		o.warnings = append(o.warnings, o.stale)
	}
	pod := c.fromRuntime().Complete(found.Pod)
	decision, err := redirect.Decide(pod, c.conf.Redirect)
	if err == nil && decision.AskHandler {
		o.ours = true
		pod.Spec.RuntimeHandler, err = d.sources.Handler(ctx, pod.Spec.RuntimeClass)
		if err != nil {
			return redirect.Decision{}, err
		}
		decision, err = redirect.Decide(pod, c.conf.Redirect)
	}
	o.notices = decision.Notices
	if err == nil && decision.Skip != "" {
		o.skip(decision.Skip)
		return decision, nil
	}
	o.ours, o.warnings = true, append(o.warnings, decision.Warnings...)
	d.logOurs.Debug("found pod", zap.String("path", found.From),
		zap.Any("annotations", pod.Annotations))
	switch wrong := c.wrong(); {
	case wrong != nil:
		return redirect.Decision{}, wrong
	case isUnsupported(err):
		return redirect.Decision{}, ownKernel.fail("redirect pod %s: %w", c.podName(), err)
	case err != nil:
		return redirect.Decision{}, badPod.fail("read annotations of pod %s: %w", c.podName(), err)
	case decision.AskMore:
		return redirect.Decision{},
			ownFault.fail("decide about pod %s: the %s sent only a part of it", c.podName(),
				found.From)
	}
	return decision, nil
}

func isUnsupported(err error) bool {
	_, ok := errors.AsType[*redirect.UnsupportedRuntime](err)
	return ok
}

// wrong raises what is wrong with the configuration.
func (c call) wrong() error {
	if len(c.conf.Mistakes) == 0 {
		return nil
	}
	return badConf.fail("read configuration of network %q: %s", c.conf.Network,
		strings.Join(c.conf.Mistakes, "; "))
}

// whyBackend says, behind an error, why it was not the configured backend that was tried.
func (c call) whyBackend(tried string) string {
	if tried == c.conf.Backend {
		return ""
	}
	return fmt.Sprintf(" (not %s: the pod has a user namespace of its own, where the kernel "+
		"takes nothing but %s)", c.conf.Backend, tried)
}
