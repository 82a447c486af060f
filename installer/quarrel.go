package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// quarrel is what goes on with another writer of a file.
type quarrel struct {
	file  string
	times int
	last  time.Time
	pause time.Duration
	until time.Time
}

const (
	shortPause = time.Second
	longPause  = 30 * time.Second
	// calm is how long our work must have stood for the next time to be mended at once.
	calm = 10 * time.Second
	// peace is how long nothing must have been undone for the next time to be the first.
	peace = 5 * time.Minute
	// From this time on in a row it is told to people.
	tooOften = 3
)

// undone notes that our work on a file is gone, and returns how long to wait before it is done again: nothing the first time.
func (q *quarrel) undone(file string, now time.Time) time.Duration {
	if file != q.file || now.Sub(q.last) > peace {
		*q = quarrel{file: file}
	}
	if now.Sub(q.last) > calm {
		q.pause = 0
	}
	pause := q.pause
	q.times++
	q.last, q.until = now.Add(pause), now.Add(pause)
	q.pause = min(max(2*pause, shortPause), longPause)
	return pause
}

func (q *quarrel) lasting() bool { return q.times >= tooOften }

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
