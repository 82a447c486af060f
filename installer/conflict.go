package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// writerConflict is what goes on with another writer of a file.
type writerConflict struct {
	file  string
	times int
	last  time.Time
	pause time.Duration
	until time.Time
}

const (
	shortPause = time.Second
	longPause  = 30 * time.Second
	// retryNowAfter is how long our work must have stood for the next time to be mended at once.
	retryNowAfter = 10 * time.Second
	// forgetAfter is how long nothing must have been undone for the next time to be the first.
	forgetAfter = 5 * time.Minute
	// From this time on in a row it is reported.
	reportAfter = 3
)

// undone notes that our work on a file is gone, and returns how long to wait before it is done
// again: nothing the first time.
func (c *writerConflict) undone(file string, now time.Time) time.Duration {
	if file != c.file || now.Sub(c.last) > forgetAfter {
		*c = writerConflict{file: file}
	}
	if now.Sub(c.last) > retryNowAfter {
		c.pause = 0
	}
	pause := c.pause
	c.times++
	c.last, c.until = now.Add(pause), now.Add(pause)
	c.pause = min(max(2*pause, shortPause), longPause)
	return pause
}

func (c *writerConflict) lasting() bool { return c.times >= reportAfter }

// steady is what a node is shown to be in while another writer goes on: not ready, until our work
// has stood for a while.
func (d *daemon) steady(now state) state {
	if d.contested && now.reason == effective && !d.stands(now) {
		return d.last
	}
	d.contested = false
	return now
}

// stands reports whether our work has outlived the time in which a network that starts, or another
// agent, writes its file again. A file of our own beside the network's is in nobody's way.
func (d *daemon) stands(now state) bool {
	return now.way != chain.Inline && now.way != chain.Owned || time.Since(d.since) >= retryNowAfter
}

// checkConflict looks whether somebody has taken out what the last pass put in. The first time it
// is mended at once: it may be a network plugin that was updated. One that goes on is left alone
// for longer and longer.
func (d *daemon) checkConflict(ctx context.Context) time.Duration {
	if d.placed.reason != effective || d.superseded() {
		return 0
	}
	found := d.onDisk()
	if !undone[found.reason] || found.file != d.placed.file { // another file than the last is nobody's undoing
		return 0
	}
	d.placed = found
	d.metrics.conflicts.WithLabelValues(found.file).Inc()
	pause := d.conflict.undone(found.file, time.Now())
	d.log.Warn("lost place in chain", zap.String("path", filepath.Join(d.conf.Path, found.file)), zap.String("reason", string(found.reason)),
		zap.Duration("pause", pause))
	if d.conflict.lasting() {
		d.events.Warn(d.reference(), "SidecarChainConflict", fmt.Sprintf("%s: %s; another writer does this again and again; %s",
			filepath.Join(d.conf.Path, found.file), found.text, remedy(d.conf, found.file)))
	}
	if pause == 0 {
		return 0
	}
	d.contested = true
	d.metrics.show(found)
	d.publish(ctx, found)
	return pause
}

// remedies are what is known to help against those who write the file, by a word in it.
var remedies = []struct{ word, remedy string }{
	{"cilium", "set cni.exclusive=false in Cilium's configuration"},
	{"aws-cni", "let the AWS VPC CNI's node agent end its updates, or set --way owned"},
	{"azure-vnet", "set --way owned: Azure CNI writes its file anew"},
}

// remedy says what to do about the writer of a file.
func remedy(conf node.Conf, file string) string {
	data, err := os.ReadFile(filepath.Join(conf.Path, file))
	for _, r := range remedies {
		if err == nil && bytes.Contains(data, []byte(r.word)) {
			return r.remedy
		}
	}
	return "find who writes the file, or set --way dropin with a runtime that loads drop-ins, else --way owned"
}

// camel makes of a reason what the API server wants in a condition: no_network becomes NoNetwork.
func camel(r reason) string {
	var b strings.Builder
	for word := range strings.SplitSeq(string(r), "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}
