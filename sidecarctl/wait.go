package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// errEnough ends the following of packets when there were as many as asked for.
var errEnough = errors.New("as many as asked for")

// wait shows packets as the kernel takes them: one after the other, as pages, as an object of JSON
// a line, or as documents of YAML.
func (e env) wait(ctx context.Context, o *options, t talkFlags, all []subject) error {
	if len(all) != 1 {
		return usagef("--wait follows one pod's packets: the target has %d pods", len(all))
	}
	if err := view.Known(view.Format(o.output)); err != nil {
		return &usageError{err}
	}
	one := all[0]
	if one.decision.Skip != "" || one.mistake != nil {
		return fmt.Errorf("pod %s gets no rules of sidecar-cni: explain says why", one.pod.Name)
	}
	asked, err := one.talks(t)
	if err != nil {
		return err
	}
	amiss := false
	var shown uint
	err = one.wait(ctx, t, asked[0], func(found talk) error {
		amiss = amiss || found.parts()
		if err := e.showPacket(view.Format(o.output), found, shown == 0); err != nil {
			return err
		}
		if shown++; shown == t.count {
			return errEnough
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errEnough) && !errors.Is(err, context.Canceled):
		return err
	case amiss:
		return errAmiss
	}
	return nil
}

// showPacket writes one packet of many.
func (e env) showPacket(f view.Format, found talk, first bool) error {
	var b bytes.Buffer
	switch f {
	case view.JSON:
		line, err := json.Marshal(found)
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	case view.YAML:
		document, err := yaml.Marshal(found)
		if err != nil {
			return err
		}
		b.WriteString("---\n")
		b.Write(document)
	case view.Text:
		if !first {
			b.WriteByte('\n')
		}
		if err := view.Show(&b, f, e.colour, found); err != nil {
			return err
		}
	}
	_, err := io.Copy(e.stdout, &b)
	return err
}

// Text writes it for people.
func (t talk) Text(p *view.Page) { t.text(p) }
