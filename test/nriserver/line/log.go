package line

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Log writes the library's log. What the library tells its runtime nowhere else, the names of
// plugins and the messages of a Synchronize, is read from there.
type Log struct {
	out *output

	mu         sync.Mutex
	to         io.Writer
	registered map[string]int // connections by the plugin's name
	plugin     string         // of the last Synchronize
	messages   int            // sent by it
}

// Debugf writes a line.
func (l *Log) Debugf(_ context.Context, format string, args ...any) { l.line("D", format, args) }

// Infof writes a line.
func (l *Log) Infof(_ context.Context, format string, args ...any) { l.line("I", format, args) }

// Warnf writes a line.
func (l *Log) Warnf(_ context.Context, format string, args ...any) { l.line("W", format, args) }

// Errorf writes a line.
func (l *Log) Errorf(_ context.Context, format string, args ...any) { l.line("E", format, args) }

func (l *Log) line(level, format string, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.to, time.Now().Format("15:04:05.000"), level, fmt.Sprintf(format, args...))
	switch {
	case strings.HasPrefix(format, "plugin %q registered as %q"):
		l.count(fmt.Sprint(args[1]), +1)
	case format == "connection to plugin %q closed":
		l.count(fmt.Sprint(args[0]), -1)
	case format == "synchronizing plugin %s":
		l.plugin, l.messages = fmt.Sprint(args[0]), 0
	case strings.HasPrefix(format, "sending sync message"):
		l.messages++
	}
}

// count keeps the registered plugins. A connection on which none has registered closes under the
// name of nobody.
func (l *Log) count(plugin string, more int) {
	if plugin == "-" {
		return
	}
	l.registered[plugin] += more
	var names []string
	for _, name := range slices.Sorted(maps.Keys(l.registered)) {
		names = append(names, slices.Repeat([]string{name}, max(0, l.registered[name]))...)
	}
	l.out.write(Message{Event: Plugins, Names: names})
}

// lastSynchronize returns whom the last Synchronize was for, and how many messages it sent. There
// is one at a time.
func (l *Log) lastSynchronize() (plugin string, messages int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.plugin, l.messages
}
