package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// errEnough ends the following of packets when there were as many as asked for.
var errEnough = errors.New("as many as asked for")

// wait shows packets as the kernel takes them: one after the other, as pages, as an object of JSON
// a line, or as documents of YAML.
func (e env) wait(c *cobra.Command, o *options, t talkFlags, all []subject) error {
	if len(all) != 1 {
		return usagef("--wait follows one pod's packets: the target has %d pods", len(all))
	}
	one := all[0]
	if err := one.known(); err != nil {
		return err
	}
	if one.record == nil && (one.decision.Skip != "" || one.mistake != nil) {
		return fmt.Errorf("pod %s gets no rules of sidecar-cni: explain says why", one.pod.Name)
	}
	if _, err := one.talks(t); err != nil { // before a node is asked
		return err
	}
	amiss := false
	var shown uint
	show := func(found talk) error {
		amiss = amiss || found.parts()
		if err := e.showPacket(view.Format(o.output), found, shown == 0); err != nil {
			return err
		}
		if shown++; shown == t.count {
			return errEnough
		}
		return nil
	}
	err := e.follow(c.Context(), stream{command: c, options: o,
		here: func(ctx context.Context, at *spot) error { return at.wait(ctx, t, show) },
		read: func(r io.Reader) error { return packetsOf(r, show) },
	}, one)
	switch {
	case err != nil && !errors.Is(err, errEnough) && !errors.Is(err, context.Canceled):
		return err
	case amiss:
		return errAmiss
	}
	return nil
}

// packetsOf reads what showPacket has written as JSON.
func packetsOf(r io.Reader, show func(talk) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxPacket)
	for lines.Scan() {
		var found talk
		if err := json.Unmarshal(lines.Bytes(), &found); err != nil {
			return fmt.Errorf("read the agent's answer: %w", err)
		}
		if err := show(found); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("read the agent's answer: a line of it has more than %d MiB, it may be "+
			"of another version", maxPacket>>20)
	}
	return lines.Err()
}

// maxPacket is longer than what showPacket writes about any packet.
const maxPacket = 4 << 20

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
