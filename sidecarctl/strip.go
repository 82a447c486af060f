package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/strip"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/manifest"
)

const stripAbout = `Takes istio-init out of the pods of a manifest that an injector has filled. What its command line
says becomes annotations, by which the plugin redirects the same traffic. Where that is not possible
the container stays, a warning says why, and the command ends with 3.`

const uninjectAbout = `Takes out of a manifest what inject or strip put in. If nothing else was changed since, it is the
file as it was, byte for byte; also an object that went through the API server gets its own values
back. A pod that another tool filled is refused.`

func injected(w manifest.Workload) bool {
	return podtree.Get(w.Pod, "metadata", "annotations", redirect.StatusAnnotation) != nil
}

func (e env) stripCommand() *cobra.Command {
	c := &cobra.Command{Use: "strip", Short: "take istio-init out of the pods of a manifest",
		Long: stripAbout}
	kept := false
	var v validated
	v.addTo(c.Flags())
	e.rewriteCommand(c, func(_ context.Context, name string, data []byte) (
		manifest.Output, []string, error) {
		var notes []string
		out, err := manifest.Rewrite(name, data, "strip", func(w manifest.Workload) (
			podtree.Object, error) {
			pod, err := stripOne(w, v.container())
			refusal, refused := errors.AsType[*strip.Refusal](err)
			switch {
			case refused:
				kept = true
				e.warn(w.Where + ": istio-init stays: " + strings.Join(refusal.Reasons, "; "))
				return nil, nil
			case pod != nil:
				notes = append(notes, "took istio-init out of "+w.Where)
			}
			return pod, err
		})
		return out, notes, err
	})
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := run(c, args); err != nil || !kept {
			return err
		}
		return errAmiss
	}
	return c
}

// stripOne returns a workload's pod without istio-init, nil if it has none. A *strip.Refusal says
// why it has to stay.
func stripOne(w manifest.Workload, v *validation.Container) (podtree.Object, error) {
	pod, found, err := strip.Strip(w.Pod, redirect.Defaults())
	if !found || err != nil {
		return nil, err
	}
	if !injected(w) {
		return nil, &strip.Refusal{Reasons: []string{"without the annotation " +
			redirect.StatusAnnotation + " nothing redirects the pod: write it, with the value " +
			"'{}'"}}
	}
	if v != nil {
		if err := validation.Add(pod, *v); err != nil {
			return nil, &strip.Refusal{Reasons: []string{
				err.Error() + "; or leave out --validationImage"}}
		}
	}
	return pod, nil
}

func (e env) uninjectCommand() *cobra.Command {
	c := &cobra.Command{Use: "uninject", Short: "take out of a manifest what inject put in",
		Long: uninjectAbout}
	return e.rewriteCommand(c, func(_ context.Context, name string, data []byte) (
		manifest.Output, []string, error) {
		out, err := manifest.Restore(name, data, injected)
		return out, nil, err
	})
}
