package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

const (
	// settle is how long a writer is given for what belongs together.
	settle = 100 * time.Millisecond
	// calm is the least time between two signals, whatever a busy neighbour does.
	calm = time.Second
	// tick is when a signal is sent in any case.
	tick = 30 * time.Second
)

// Watch sends when something changed in one of the directories or directly in their
// sub-directories, soon but at most once a second, and every 30 s besides. Those that are missing,
// or go and come back, are found again. The channel is closed when the context ends. The receiver
// looks itself what changed, if anything did; a signal that it has not taken yet stands for all
// after it.
func Watch(ctx context.Context, paths []string, log *zap.Logger) (<-chan struct{}, error) {
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("watch directory %q: want an absolute path", path)
		}
	}
	w := &watch{paths: paths, log: log, armed: map[string]os.FileInfo{},
		signals: make(chan struct{}, 1)}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.complain(err)
		notify = &fsnotify.Watcher{} // its channels are nil: nothing ever comes from them
	} else {
		w.notify = notify
	}
	w.arm()
	go w.run(ctx, notify)
	return w.signals, nil
}

// watch keeps what is watched in step with what is there.
type watch struct {
	paths      []string
	log        *zap.Logger
	notify     *fsnotify.Watcher // nil where the kernel has none left for us
	armed      map[string]os.FileInfo
	complained bool
	signals    chan struct{}
}

func (w *watch) run(ctx context.Context, notify *fsnotify.Watcher) {
	defer close(w.signals)
	if w.notify != nil {
		defer func() { _ = w.notify.Close() }()
	}
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	var due <-chan time.Time
	var last time.Time
	wake := func() {
		if due == nil {
			due = time.After(max(settle, calm-time.Since(last)))
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-notify.Events:
			if w.concerns(e) {
				wake()
			}
		case err := <-notify.Errors:
			w.log.Warn("lost changes of watched directories", zap.Error(err))
			wake()
		case <-due:
			due, last = nil, time.Now()
			w.signal()
		case <-ticks.C:
			w.signal()
		}
	}
}

// concerns is false of what happens in the parents of missing directories, unless one of those is
// there now.
func (w *watch) concerns(e fsnotify.Event) bool {
	dir := filepath.Dir(e.Name)
	if isTemp(filepath.Base(e.Name)) {
		return false
	}
	for _, path := range w.paths {
		if dir == path || e.Name == path || filepath.Dir(dir) == path || leadsTo(e.Name, path) {
			return true
		}
	}
	return false
}

// leadsTo reports whether a path is on the way to another.
func leadsTo(parent, path string) bool {
	rel, err := filepath.Rel(parent, path)
	return err == nil && filepath.IsLocal(rel)
}

// signal looks first what there is to be watched: what changes after that brings another signal.
func (w *watch) signal() {
	w.arm()
	select {
	case w.signals <- struct{}{}:
	default:
	}
}

// arm watches what shall be watched. A directory may come into being after it was looked for and
// before its parent is watched, so it looks again until it finds what it has found before.
func (w *watch) arm() {
	const enough = 10
	var before map[string]os.FileInfo
	for range enough {
		found := w.find()
		if w.notify == nil || before != nil && maps.EqualFunc(before, found, os.SameFile) {
			return
		}
		w.armAll(found)
		before = found
	}
}

// armAll watches directories, and no others. What is watched already is watched anew: another
// directory of the same name may have got the same inode.
func (w *watch) armAll(found map[string]os.FileInfo) {
	for path, was := range w.armed {
		if is, ok := found[path]; !ok || !os.SameFile(was, is) {
			_ = w.notify.Remove(path) // it may have gone by itself
			delete(w.armed, path)
		}
	}
	for path, is := range found {
		err := w.notify.Add(path)
		switch {
		case err == nil:
			w.armed[path] = is
		case !errors.Is(err, fs.ErrNotExist):
			w.complain(err)
		}
	}
}

// find returns the directories that are to be watched: each of the paths, with its sub-directories,
// or the nearest parent that is there. Of a watched directory an event comes when it goes.
func (w *watch) find() map[string]os.FileInfo {
	found := map[string]os.FileInfo{}
	add := func(path string) bool {
		info, err := os.Stat(path)
		if err == nil {
			found[path] = info
		}
		return err == nil
	}
	for _, path := range w.paths {
		for parent := path; !add(parent) && parent != "/"; {
			parent = filepath.Dir(parent)
		}
		entries, _ := os.ReadDir(path) // without it: what can be watched is watched
		for _, e := range entries {
			if e.IsDir() {
				add(filepath.Join(path, e.Name()))
			}
		}
	}
	return found
}

// complain says once that changes are found later than they could be.
func (w *watch) complain(err error) {
	if !w.complained {
		w.complained = true
		w.log.Warn("could not watch directories, looking every 30 s instead: raise "+
			"fs.inotify.max_user_instances and max_user_watches", zap.Error(err))
	}
}
