//go:build !linux

package initcontainer

import (
	"context"
	"errors"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/validation"
)

var errLinux = errors.New("it works in a pod, on Linux; --dry-run prints the rules anywhere")

// Program is for Linux.
func Program(context.Context, Options) (Done, error) { return Done{}, errLinux }

// Validate is for Linux.
func Validate(context.Context, Options) (validation.Report, error) {
	return validation.Report{}, errLinux
}
