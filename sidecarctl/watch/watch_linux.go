package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/sockets"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// receiveBuffer holds the events that come while others are written, a few ten thousand.
const receiveBuffer = 16 << 20

// Watcher reads the events of one network namespace.
type Watcher struct {
	o       Options
	events  *eventSocket
	ask     *wire.Socket
	sockets *sockets.Reader
	follow  follower
	notes   []string
}

// Open begins to watch the namespace of the calling thread. What happens from now on is reported,
// whatever thread calls Run. It takes CAP_NET_ADMIN there.
func Open(o Options) (*Watcher, error) { return open(o, receiveBuffer) }

func open(o Options, buffer int) (*Watcher, error) {
	w := &Watcher{o: o, follow: follower{o: o, table: newTable[key](maxFollowed)}}
	if err := w.open(buffer); err != nil {
		w.Close()
		return nil, fmt.Errorf("watch connections: %w", err)
	}
	return w, nil
}

func (w *Watcher) open(buffer int) (err error) {
	if w.events, err = listen(buffer); err != nil {
		return err
	}
	if w.ask, err = wire.Dial(unix.NETLINK_NETFILTER); err != nil {
		return err
	}
	entries, err := countEntries(w.ask)
	if err != nil {
		return err
	}
	if w.follow.local, err = localAddresses(); err != nil {
		return err
	}
	if err := w.settings(); err != nil {
		return err
	}
	if entries == 0 {
		if err := w.noteRules(); err != nil {
			return err
		}
	}
	return w.openSockets()
}

// Close ends it.
func (w *Watcher) Close() {
	if w.events != nil {
		w.events.file.Close()
	}
	if w.ask != nil {
		w.ask.Close()
	}
	if w.sockets != nil {
		w.sockets.Close()
	}
}

func (w *Watcher) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// settings reads what connection tracking is told to do.
func (w *Watcher) settings() error {
	const eventsOff, eventsAuto = 0, 2
	switch events := setting("nf_conntrack_events", eventsAuto); {
	case events == eventsOff:
		return errors.New("connection tracking reports no events: set the kernel parameter " +
			"net.netfilter.nf_conntrack_events to 1 in the pod's network namespace")
	case events == eventsAuto && w.o.Existing:
		w.note("the ends of connections that began before anybody watched are not reported: " +
			"net.netfilter.nf_conntrack_events is 2")
	}
	if setting("nf_conntrack_acct", 0) != 0 {
		w.follow.counts = w.counts
	}
	return nil
}

// setting reads a parameter of the namespace, or says what it is where it cannot be read.
func setting(name string, otherwise int) int {
	data, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
	if err != nil {
		return otherwise
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return otherwise
	}
	return value
}

// noteRules warns where nothing makes the kernel track connections.
func (w *Watcher) noteRules() error {
	chains, err := traces.Chains()
	if err != nil {
		return err
	}
	for _, f := range redirect.Families {
		tables, err := traces.LegacyTables(f)
		if err != nil {
			return err
		}
		if len(tables) > 0 {
			return nil
		}
	}
	if len(chains) == 0 {
		w.note("no connection is tracked in this namespace, and it has no rules that redirect: " +
			"nothing will be seen unless rules come")
	}
	return nil
}

func (w *Watcher) openSockets() error {
	if podns.Foreign() {
		w.note("the pod has a user namespace of its own: who has a connection is not told by uid")
		return nil
	}
	r, err := sockets.Open()
	if err == nil {
		w.sockets = r
		_, err = r.Receivers(redirect.TCP)
	}
	if module, ok := errors.AsType[*sockets.ModuleError](err); ok {
		w.note("who has a connection is not known: %s", module)
		return nil
	}
	if err == nil {
		w.follow.sockets = r
	}
	return err
}

// Run calls f with each event until the context ends, which is no error, or f returns one. The last
// event is of kind Done.
func (w *Watcher) Run(ctx context.Context, f func(Event) error) error {
	r := &run{Watcher: w, f: f}
	stop := context.AfterFunc(ctx, func() { _ = w.events.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := r.run(ctx)
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return r.report(Event{Kind: Done, Summary: &r.summary})
}

// errEnough ends a run that has reported what was asked for.
var errEnough = errors.New("enough was reported")

// run is one call of Run.
type run struct {
	*Watcher
	f       func(Event) error
	summary Summary
	shown   int // events of connections
}

func (r *run) run(ctx context.Context) error {
	for _, note := range r.notes {
		if err := r.report(Event{Kind: Note, Text: note}); err != nil {
			return err
		}
	}
	if r.o.Existing {
		if err := r.existing(); err != nil {
			return err
		}
	}
	buf := make([]byte, 64<<10) // the kernel sends one event in a datagram
	for ctx.Err() == nil {
		data, err := r.events.receive(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return r.lost()
		case errors.Is(err, unix.ENOBUFS):
			err = r.lost()
		case err == nil:
			err = wire.Each(data, r.message)
		default:
			err = fmt.Errorf("receive events: %w", err)
		}
		if err != nil {
			return err
		}
	}
	return r.lost()
}

func (r *run) report(e Event) error {
	e.Time = time.Now()
	return r.f(e)
}

// lost reports how many events the kernel has dropped since it was last asked.
func (r *run) lost() error {
	n := r.events.dropped()
	if n == 0 {
		return nil
	}
	r.summary.Lost += n
	return r.report(Event{Kind: Lost, Lost: n})
}

// message reports what one message of the kernel says, if anybody wants to know.
func (r *run) message(h unix.NlMsghdr, data []byte) error {
	e, ok := decode(data)
	if !ok {
		return nil
	}
	now := time.Now()
	switch {
	case h.Type == entryDelete:
		return r.show(Ended, r.follow.gone(e, now))
	case h.Type == entryNew && h.Flags&unix.NLM_F_CREATE != 0:
		return r.show(Began, r.follow.begin(e, now))
	case h.Type == entryNew:
		return r.show(Ended, r.follow.change(e, now))
	}
	return nil
}

// existing reports the connections that there are. Events of theirs that come meanwhile are read
// afterwards.
func (r *run) existing() error {
	objects, err := r.ask.Dump(wire.Message{Type: entryGet, Header: make([]byte, headerLen)})
	if errors.Is(err, wire.ErrTooMuch) {
		return r.report(Event{Kind: Note, Text: "there are too many connections to list them: " +
			"those that begin from now on follow"})
	}
	if err != nil {
		return fmt.Errorf("list connections: %w", err)
	}
	for _, o := range objects {
		e, ok := readEntry(o.Attrs)
		if !ok || e.state == stateTimeWait || e.state == stateClose {
			continue
		}
		c := r.follow.begin(e, time.Time{})
		if c != nil {
			r.follow.receiver(r.follow.table.open[e.key], e)
		}
		if err := r.show(Existing, c); err != nil {
			return err
		}
	}
	return nil
}

// show reports an event of a connection, if there is one.
func (r *run) show(kind Kind, c *Connection) error {
	if c == nil {
		return nil
	}
	switch kind {
	case Began:
		r.summary.Began++
	case Ended:
		r.summary.Ended++
	default:
	}
	r.summary.Forgotten = r.follow.table.forgotten
	if err := r.report(Event{Kind: kind, Connection: c}); err != nil {
		return err
	}
	if r.shown++; r.shown == r.o.Count {
		return errEnough
	}
	return nil
}
