package reconcile

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

func TestWhatAnUninstallationEndsWith(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		left  []string
		err   error
		want  Reason
		ready bool
	}{
		"out":                      {nil, nil, Uninstalled, true},
		"out, with something left": {[]string{"a binary"}, nil, Uninstalled, true},
		"an error of the disk":     {nil, os.ErrPermission, BadDisk, false},
		"a directory that was deleted": {nil, fmt.Errorf("read: %w", node.ErrDeleted), BadMount,
			false},
		"a file that is another's": {
			nil, &chain.Refusal{Reason: chain.Taken}, Reason(chain.Taken), false,
		},
		"the runtime's directories": {nil, &Failure{BadPlace, os.ErrInvalid}, BadPlace, false},
		"a runtime that keeps it": {
			nil, fmt.Errorf("it stays: %w", &Failure{StillLoaded, os.ErrInvalid}), StillLoaded,
			false,
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := Decide(Settings{},
				Observation{Goal: Out, Left: row.left, Failed: row.err, Done: row.err == nil})
			if s.Why != row.want || s.Ready() != row.ready || Meanings[s.Why] == "" {
				t.Errorf("%+v, ready: %v; want %q, %v", s, s.Ready(), row.want, row.ready)
			}
		})
	}
}

func TestReasonsAreWordsOfTheAPI(t *testing.T) {
	t.Parallel()
	for _, r := range chain.Reasons {
		if Meanings[Reason(r)] == "" {
			t.Errorf("%s has no meaning", r)
		}
	}
	seen := map[string]bool{}
	for _, r := range Reasons() {
		word := r.Camel()
		if word == "" || strings.ContainsAny(word, "_ ") || word[0] < 'A' || word[0] > 'Z' ||
			seen[word] {
			t.Errorf("%s becomes %q", r, word)
		}
		seen[word] = true
	}
}

func TestWhoIsInCharge(t *testing.T) {
	t.Parallel()
	for _, why := range Reasons() {
		want := why != Uninstalled && why != Superseded && why != Reason(chain.OtherMesh)
		if got := (State{Why: why}).InCharge(); got != want {
			t.Errorf("%s: %t", why, got)
		}
	}
}
