package podns

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// Do calls a function in the namespace, on the caller's thread, and returns its error, or a *Panic.
// The thread comes back; one that cannot stays locked to the goroutine, so that nothing else ever
// runs on it, and that is an error as well.
func (n *Namespace) Do(do func() error) error {
	return n.DoOn(func(do func() error) error { return do() }, do)
}

// DoOn does the same on the thread of a goroutine that another function chooses. That one calls
// what it is given once, in the network namespace that the caller is in, and returns its error.
// Apart is such a function.
func (n *Namespace) DoOn(thread func(do func() error) error, do func() error) error {
	home, err := ns.GetCurrentNS() // here: there may be no /proc where the other thread is
	if err != nil {
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer func() { _ = home.Close() }()
	return thread(func() error {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.opened.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			return fmt.Errorf("enter network namespace: %w", err)
		}
		err := Guard(do)
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			return errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
		}
		runtime.UnlockOSThread()
		return err
	})
}

// Apart calls a function on a goroutine of its own. If its thread cannot come back from a
// namespace, it ends with the goroutine.
func Apart(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return <-done
}

// Panic is the error of a function that panicked.
type Panic struct {
	Value any    // of the panic
	Stack []byte // for whoever looks for the fault; not in the text
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Guard calls a function and turns a panic of it into a *Panic: a thread has to come back from a
// pod's namespace, and whoever called is owed an answer.
func Guard(do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{value, debug.Stack()}
		}
	}()
	return do()
}
