package audit

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// Place is where a pod's network namespace was found.
type Place struct {
	NS     *podns.Namespace // open until Close
	Netns  record.Netns     // its path is that by which it was found
	Record *record.Record   // the one about this very namespace; nil without
	Age    time.Duration    // of the oldest process that it was found by; 0 with a record
}

// Close lets the namespace go.
func (p *Place) Close() { p.NS.Close() }

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

// withStack adds to the error of a panic where it was.
func withStack(err error) error {
	if panicked, ok := errors.AsType[*podns.Panic](err); ok {
		return fmt.Errorf("%w\n%s", err, panicked.Stack)
	}
	return err
}
