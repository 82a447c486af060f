package reconcile

import (
	"os"
	"path/filepath"
	"time"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// Conflict is what goes on with another writer of a file, who takes the entry out of it.
type Conflict struct {
	file  string
	times int
	last  time.Time
	pause time.Duration
	until time.Time
}

const (
	shortPause = time.Second
	longPause  = 30 * time.Second
	// RetryNowAfter is how long our work must have stood for the next time to be mended at once.
	RetryNowAfter = 10 * time.Second
	// forgetAfter is how long nothing must have been undone for the next time to be the first.
	forgetAfter = 5 * time.Minute
	// reportAfter is so many times in a row.
	reportAfter = 3
)

// Undone notes that our work on a file is gone, and returns how long to wait before it is done
// again: nothing the first time.
func (c *Conflict) Undone(file string, now time.Time) time.Duration {
	if file != c.file || now.Sub(c.last) > forgetAfter {
		*c = Conflict{file: file}
	}
	if now.Sub(c.last) > RetryNowAfter {
		c.pause = 0
	}
	pause := c.pause
	c.times++
	c.last, c.until = now.Add(pause), now.Add(pause)
	c.pause = min(max(2*pause, shortPause), longPause)
	return pause
}

// Lasting reports whether it goes on, and somebody should know of it.
func (c *Conflict) Lasting() bool { return c.times >= reportAfter }

// Pausing reports whether it is too early to write again.
func (c *Conflict) Pausing(now time.Time) bool { return now.Before(c.until) }

// ByAnother reports whether it is another writer's doing that a node is in a state, if the entry
// had been in effect before.
func (s State) ByAnother() bool { return othersDoing[s.Why] }

var othersDoing = map[Reason]bool{
	Reason(chain.Absent): true, Reason(chain.Outdated): true, Reason(chain.Misplaced): true,
	Reason(chain.Stale):  true,
	Reason(chain.Broken): true, Reason(chain.NoNetwork): true, Reason(chain.Unreadable): true,
}

// Remedy says what to do about the writer of a file.
func Remedy(conf node.Conf, file string) string {
	data, err := os.ReadFile(filepath.Join(conf.Path, file))
	if w, known := chain.WriterOf(data); err == nil && known {
		return w.Remedy
	}
	return "find who writes the file, or set --way dropin with a runtime that loads drop-ins, " +
		"else --way owned"
}
