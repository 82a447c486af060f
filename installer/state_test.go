package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

func TestWhatAnUninstallationEndsWith(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		left  []string
		err   error
		want  reason
		ready bool
	}{
		"out":                          {nil, nil, uninstalled, true},
		"out, with something left":     {[]string{"a binary"}, nil, uninstalled, true},
		"an error of the disk":         {nil, os.ErrPermission, badDisk, false},
		"a directory that was deleted": {nil, fmt.Errorf("read: %w", node.ErrDeleted), badMount, false},
		"a file that is another's": {
			nil, &chain.Refusal{Reason: chain.Taken}, reason(chain.Taken), false,
		},
		"the runtime's directories": {nil, &trouble{badPlace, os.ErrInvalid}, badPlace, false},
		"a runtime that keeps it": {
			nil, fmt.Errorf("it stays: %w", &trouble{stillLoaded, os.ErrInvalid}), stillLoaded, false,
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := afterUninstall(row.left, row.err)
			if s.reason != row.want || s.ready() != row.ready || meanings[s.reason] == "" {
				t.Errorf("%+v, ready: %v; want %q, %v", s, s.ready(), row.want, row.ready)
			}
		})
	}
}
