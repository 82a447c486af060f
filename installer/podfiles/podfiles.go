// Package podfiles writes down on the node what the agent in charge knows of its meshed pods, where
// the plugin reads it before it asks anybody (contract/podfile has the form of a file).
//
//	files := podfiles.New(podfiles.Deps{Run: "/run/sidecar-cni", Pods: pods, Classes: classes, ...})
//	files.Run(ctx)
//
// The directory belongs to the agent that joined the node last. One that takes over writes
// everything anew from its own cache, and before that first removes what says that the files are
// fresh. Every change is made while nobody else can join or uninstall, so a change of an old agent
// never comes after one of a new agent.
//
// Be aware: between an event of the API server and the change of a file there is a moment, as there
// is between the event and the cache. A file that could not be written is removed; where not even
// that is possible, this agent lets go of the lock of FreshFile, and no file counts as fresh.
package podfiles

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// Deps are the parts of the agent that it needs.
type Deps struct {
	Run     string         // the agents' run directory
	Pods    *agent.Pods    // of the node
	Classes *agent.Classes // of the cluster
	// Member returns the agent's membership; nil as long as it has not taken charge.
	Member   func() *node.Membership
	Registry prometheus.Registerer // gets the metrics
	Log      *zap.Logger           // must not be nil
}

// Files are the files of a node's pods.
type Files struct {
	cache  cache
	dir    string
	page   int64 // of the node's memory, in bytes: 4 KiB, or up to 64 KiB
	member func() *node.Membership
	counts counts
	log    *zap.Logger

	taken     *node.Membership // as which the directory was taken over; nil if it was not
	mark      *os.File         // what it was marked with then
	files     map[types.UID]*file
	bytes     int64         // what they take together
	fresh     *os.File      // the FreshFile that is locked; nil if there is none
	refreshed time.Duration // the time in it
	trouble   string        // what was logged last
}

// cache is what the files are made of.
type cache struct {
	pods    func() []*corev1.Pod
	handler func(class string) string
	synced  func() bool // the pods were listed once
	follows func() bool // pods and classes are what the API server has
	// signal that pods or handler may return something else
	podsChanged, classesChanged <-chan struct{}
}

// New returns the files of a node. Nothing is read or written before Run.
func New(d Deps) *Files {
	return &Files{
		cache: cache{
			pods: d.Pods.List, handler: d.Classes.Handler, synced: d.Pods.Synced,
			follows:     func() bool { return d.Pods.Follows() && d.Classes.Follows() },
			podsChanged: d.Pods.Changed(), classesChanged: d.Classes.Changed(),
		},
		dir: podfile.Dir(d.Run), page: int64(os.Getpagesize()), member: d.Member,
		counts: newCounts(d.Registry), log: d.Log,
	}
}

// turnPause is between two looks whether this agent is in charge.
const turnPause = time.Second

// Run keeps the files up to date until ctx ends, and leaves them there: an agent that comes later
// writes them anew, and until then they are the plugin's last resort.
func (f *Files) Run(ctx context.Context) {
	defer f.unmark()
	defer f.release()
	timer := time.NewTimer(turnPause)
	defer timer.Stop()
	for {
		due := false
		select {
		case <-ctx.Done():
			return
		case <-f.cache.podsChanged:
		case <-f.cache.classesChanged:
		case <-timer.C:
			due = true
		}
		f.report(f.pass(due))
		switch {
		case f.taken == nil:
			timer.Reset(turnPause)
		case due || f.refreshed == 0:
			timer.Reset(podfile.FreshEvery)
		}
	}
}

// pass brings the files up to date, and says that they are fresh if that is due. Its error says
// what is not as it should be; no file that is not what the cache says counts as fresh then.
func (f *Files) pass(due bool) error {
	member := f.member()
	if member == nil || !f.cache.synced() {
		return nil
	}
	// Read before the cache is: the files are as old as what they were made of.
	now := sinceBoot()
	due = due || now-f.refreshed >= podfile.FreshEvery
	if err := f.begin(member, due); err != nil {
		return f.giveUp(err)
	}
	lost, err := f.update()
	if err != nil {
		return f.giveUp(err)
	}
	f.counts.show(f.files)
	if !due || !f.cache.follows() {
		return lost
	}
	err = f.refresh(now)
	if errors.Is(err, node.ErrSuperseded) || errors.Is(err, errReplaced) {
		return f.giveUp(err)
	}
	return cmp.Or(err, lost) // the last refresh holds for a while: the files are up to date
}

// begin sees to it that f.files is what is in the directory, where this agent has just taken charge
// or a refresh is due.
func (f *Files) begin(member *node.Membership, due bool) error {
	switch {
	case member != f.taken:
		return f.takeOver(member)
	case due:
		return f.look()
	}
	return nil
}

// giveUp lets go of the directory, which the next pass takes over again: nobody takes a file for
// fresh meanwhile.
func (f *Files) giveUp(err error) error {
	f.release()
	f.unmark()
	f.taken, f.files, f.bytes, f.refreshed = nil, nil, 0, 0
	f.counts.show(nil)
	f.counts.fresh.Set(0)
	if errors.Is(err, node.ErrSuperseded) {
		return nil
	}
	return err
}

// release lets go of the lock, which makes all files stale.
func (f *Files) release() {
	if f.fresh != nil {
		f.fresh.Close()
		f.fresh = nil
	}
}

func (f *Files) unmark() {
	if f.mark != nil {
		f.mark.Close()
		f.mark = nil
	}
}

// report logs what went wrong, once as long as it is the same.
func (f *Files) report(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	switch {
	case said == f.trouble:
	case err != nil:
		f.log.Warn("pod files not up to date", zap.String("path", f.dir), zap.Error(err))
	default:
		f.log.Info("pod files up to date again", zap.String("path", f.dir))
	}
	f.trouble = said
}

// sinceBoot is the time by the clock that plugin and agent share, and that nobody sets.
func sinceBoot() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // Linux has it since 2.6.39
	return time.Duration(now.Nano())
}
