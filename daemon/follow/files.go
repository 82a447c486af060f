package follow

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// lookEvery is when files are looked at in any case: a link may lead to where nobody watches.
const lookEvery = 30 * time.Second

// volumeLink is what the kubelet replaces when the content of a volume changes: the files of a
// mounted ConfigMap are links through it.
const volumeLink = "..data"

// Files calls changed when one of the files may have been written, replaced or removed, and every
// 30 s besides. It ends with ctx. Files and directories that are missing are found later.
func Files(ctx context.Context, paths []string, log *zap.Logger, changed func()) {
	w := fileWatch{log: log, every: lookEvery}
	for _, path := range paths {
		w.paths = append(w.paths, filepath.Clean(path))
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("could not watch files, looking every 30 s instead: raise "+
			"fs.inotify.max_user_instances", zap.Error(err))
		notify = &fsnotify.Watcher{} // its channels are nil: nothing ever comes from them
	} else {
		defer func() { _ = notify.Close() }()
		w.notify = notify
	}
	w.run(ctx, notify, changed)
}

// fileWatch is what Files watches.
type fileWatch struct {
	paths  []string
	every  time.Duration
	notify *fsnotify.Watcher // nil where the kernel has none left for us
	log    *zap.Logger
}

func (w fileWatch) run(ctx context.Context, notify *fsnotify.Watcher, changed func()) {
	ticks := time.NewTicker(w.every)
	defer ticks.Stop()
	w.arm()
	changed() // between its first reading and our watching
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-notify.Events:
			if filepath.Base(e.Name) == volumeLink ||
				slices.Contains(w.paths, filepath.Clean(e.Name)) {
				changed()
			}
		case err := <-notify.Errors:
			w.log.Warn("lost changes of files, looking at them now", zap.Error(err))
			changed()
		case <-ticks.C:
			w.arm()
			changed()
		}
	}
}

// arm watches the files' directories, of which a file that is replaced has still the same.
func (w fileWatch) arm() {
	if w.notify == nil {
		return
	}
	for _, path := range w.paths {
		_ = w.notify.Add(filepath.Dir(path)) // without it there are the ticks
	}
}
