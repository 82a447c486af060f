package repair

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

func idOf(n record.Netns) podns.ID { return podns.ID{Device: n.Device, Inode: n.Inode} }

// explain adds to an error of package podns what can be done about it.
func explain(err error) error {
	switch {
	case errors.Is(err, podns.ErrNotNamespace):
		return fmt.Errorf("%w: is the directory mounted without HostToContainer?", err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: this needs CAP_SYS_PTRACE, which AppArmor's default profile "+
			"denies as well", err)
	}
	return err
}

// within calls a function in a pod's network namespace, on a thread that is not the caller's.
func (p *place) within(thread func(func() error) error, do func() error) error {
	err := p.ns.DoOn(thread, do)
	if panicked, ok := errors.AsType[*podns.Panic](err); ok {
		return fmt.Errorf("%w\n%s", err, panicked.Stack)
	}
	return err
}
