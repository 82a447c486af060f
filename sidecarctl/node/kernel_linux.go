package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

// attempt is what came of a backend.
type attempt struct {
	name    string
	usable  bool   // it works, or nothing speaks against it
	what    string // was found, in a sentence
	lacking bool   // it was found not to work; neither this nor usable is that nobody knows

	modules []string // that are lacking, or may be
	blocked []string // that are there and may not be loaded
	minor   []string // what some pods need and do not get
}

// auto lets the agent choose the backend.
const auto = "auto"

// kernel says which backends work, and where the modules are that they need.
func (l *look) kernel(ctx context.Context) ([]Module, []verdict.Row) {
	from := l.files.modules(l.release())
	modules := moduleList(from)
	var attempts []attempt
	for _, name := range redirect.Backends {
		a := l.attempt(ctx, name, modules, from.fixed)
		for i, m := range modules {
			if from.fixed && a.usable && slices.Contains(m.Backends, name) {
				modules[i].State = BuiltIn
			}
		}
		attempts = append(attempts, a)
	}
	wanted := cmp.Or(l.options.Backend, l.configured)
	if wanted == "" || wanted == auto {
		wanted = preferred(attempts)
	}
	var rows []verdict.Row
	for _, a := range attempts {
		rows = append(rows, a.row(wanted, attempts))
	}
	return modules, rows
}

// preferred is the backend that the agent chooses: the first that works, else the first.
func preferred(attempts []attempt) string {
	for _, a := range attempts {
		if a.usable {
			return a.name
		}
	}
	return attempts[0].name
}

// attempt tries a backend out where that loads no module: where all that it needs is there or
// nowhere, and where the agent has tried it before.
func (l *look) attempt(ctx context.Context, name string, modules []Module, fixed bool) attempt {
	a := attempt{name: name}
	missing := in(modules, name, Absent, Blocked)
	later := in(modules, name, Loadable)
	unseen := in(modules, name, Unseen)
	if fixed {
		unseen = nil
	}
	if blocked := in(modules, name, Blocked); len(blocked) > 0 {
		a.lacking, a.blocked = true, blocked
		a.what = "modules that may not be loaded, by modprobe.d or kernel.modules_disabled: " +
			strings.Join(blocked, ", ")
		return a
	}
	if !l.options.Probe && l.process.pid == 0 && len(later)+len(unseen) > 0 {
		return untried(a, later, unseen)
	}
	lacks, err := l.try(ctx, name)
	switch {
	case errors.Is(err, unix.EPERM):
		a.what = "not tried out: " + err.Error()
		return a
	case err != nil:
		a.lacking, a.what = true, err.Error()
		return a
	}
	for _, lack := range lacks {
		if lack.Minor {
			a.minor = append(a.minor, lack.String())
			continue
		}
		a.lacking = true
		a.what = cmp.Or(a.what, lack.String())
		a.modules = append(a.modules, strings.Split(lack.Module, ", ")...)
	}
	if a.lacking {
		a.modules = slices.Compact(slices.Sorted(slices.Values(append(a.modules, missing...))))
		return a
	}
	a.usable = true
	a.what = "tried out in a network namespace of its own: all that rules may need is there"
	return a
}

// untried is an attempt that would have loaded modules.
func untried(a attempt, later, unseen []string) attempt {
	if len(unseen) > 0 {
		a.modules = unseen
		a.what = "not tried out, which might load modules: the node's /lib/modules cannot be read"
		return a
	}
	a.usable = true
	a.what = "not tried out, which would load modules; they are on the disk: " +
		strings.Join(later, ", ")
	return a
}

// row judges: what nobody needs may be missing.
func (a attempt) row(wanted string, all []attempt) verdict.Row {
	switch {
	case a.usable && len(a.minor) > 0 && a.name == wanted:
		return warning(a.name, "pods that need it are refused: "+strings.Join(a.minor, "; "),
			"load what is named, or choose another backend")
	case a.usable:
		return fine(a.name, a.what)
	case a.name != wanted:
		return fine(a.name, "not needed here, and not usable or not tried: "+a.what)
	case !a.lacking:
		return unknown(a.name, a.what, "run this as root with --probe, or ask the agent: "+
			"sidecarctl cluster")
	}
	return wrong(a.name, a.what, a.remedy(all))
}

func (a attempt) remedy(all []attempt) string {
	remedy := "install what is named on the node"
	names := slices.DeleteFunc(slices.Clone(a.modules), func(name string) bool {
		return name == "" || strings.Contains(name, " ")
	})
	switch {
	case len(a.blocked) > 0:
		remedy = "take what forbids them out of the node's modprobe.d; where " +
			"kernel.modules_disabled is 1, name them in /etc/modules-load.d/sidecar-cni.conf " +
			"and boot the node anew"
	case len(names) > 0:
		remedy = "modprobe -a " + strings.Join(names, " ") + ", and name them in " +
			"/etc/modules-load.d/sidecar-cni.conf"
	}
	for _, other := range all {
		if other.usable {
			return remedy + "; or set the chart's backend to " + other.name + ", which works here"
		}
	}
	return remedy + "; a kernel without them cannot redirect pods"
}

// tryOut tries a backend out in a network namespace of its own, in the host's root directory where
// that is mounted.
func (l *look) tryOut(ctx context.Context, name string) (lacks []redirect.Lack, err error) {
	root := ""
	if backend.RunsPrograms(name) {
		root = l.files.host
	}
	err = inNewNetwork(root, func() error {
		found, err := backend.Find(name)
		if err == nil {
			lacks = found.Probe(ctx)
		}
		return err
	})
	return lacks, err
}

// inNewNetwork calls a function on a thread of its own, in a new network namespace and perhaps
// another root directory. The thread ends with it.
func inNewNetwork(root string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread cannot go back
		if unix.Gettid() == unix.Getpid() {
			// The main thread would not end. While it is kept, the next one gets another.
			done <- inNewNetwork(root, do)
			runtime.UnlockOSThread()
			return
		}
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_FS); err != nil {
				return fmt.Errorf("make a network namespace, which takes SYS_ADMIN: %w", err)
			}
			if root == "" {
				return do()
			}
			if err := unix.Chroot(root); err != nil {
				return fmt.Errorf("change root to %s, which takes SYS_CHROOT: %w", root, err)
			}
			if err := unix.Chdir("/"); err != nil {
				return err
			}
			return do()
		}()
	}()
	return <-done
}
