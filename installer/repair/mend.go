package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// mend does what ADD would have done: writes the rules, reads them back and records them. The
// policy is the recorded one, since annotations can change in a pod that runs.
func (r *Repairer) mend(ctx context.Context, s *audit.Search, at *audit.Place,
	one *subject) error {
	policy := one.known.Policy
	switch {
	case at.Record != nil:
		policy = at.Record.Policy
	case one.known.Mistake != nil:
		return fmt.Errorf("read annotations: %w", one.known.Mistake)
	}
	auditor := r.auditor()
	name, rules := backend.For(auditor.Backend, at.NS), redirect.Compile(policy)
	err := auditor.With(at, name, func(b backend.Backend) error {
		undo, _, err := b.Apply(ctx, rules)
		if err != nil {
			return err
		}
		problems, err := b.Verify(ctx, rules)
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("read back rules: %d differ, the first: %s", len(problems),
				problems[0])
		}
		if err != nil {
			undo(nil)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.cfg.Records.Write(record.Record{
		Attachment: attachment(at, one),
		Network:    network(at),
		Netns:      recordable(s, at),
		Pod: record.Pod{Namespace: one.pod.Namespace, Name: one.pod.Name,
			UID: string(one.pod.UID)},
		Backend:  name,
		Revision: record.Revision(rules),
		Policy:   policy,
	})
}

func attachment(at *audit.Place, one *subject) record.Attachment {
	if at.Record != nil {
		return at.Record.Attachment
	}
	return record.StandIn(string(one.pod.UID))
}

func network(at *audit.Place) string {
	if at.Record != nil {
		return at.Record.Network
	}
	return "" // GC of a network leaves it alone
}

// recordable is the namespace with a path that lasts as long as it does, if the host has it mounted
// somewhere. A process' path ends with the process.
func recordable(s *audit.Search, at *audit.Place) record.Netns {
	netns := at.Netns
	if strings.HasPrefix(netns.Path, "/proc/") {
		if path, ok := s.MountOf(at.NS.ID); ok {
			netns.Path = path
		}
	}
	return netns
}

// young is how old a record has to be to be dropped: the call that wrote it may still be under way.
const young = time.Minute

// dropRecords deletes the records of namespaces that are gone. With CRI-O nobody else does: it
// never calls DEL for a plugin that a drop-in brought into the chain.
func (r *Repairer) dropRecords(records []record.Record) (int, error) {
	dropped := 0
	var errs []error
	for _, one := range records {
		if !r.gone(one.Netns) || r.cfg.Records.Age(one.Attachment) < young {
			continue
		}
		there, err := r.cfg.Records.Delete(one.Attachment)
		errs = append(errs, err)
		if there && err == nil {
			dropped++
		}
	}
	return dropped, errors.Join(errs...)
}

// gone reports whether a namespace surely is no more where it was. Where that place cannot be seen
// at all, nothing is sure; nor if there is a file that is no namespace, which is what a mount looks
// like that did not come through.
func (r *Repairer) gone(n record.Netns) bool {
	path, place := n.Path, filepath.Dir(n.Path)
	if in, ok := strings.CutPrefix(path, "/proc/"); ok {
		path, place = filepath.Join(r.cfg.HostProc, in), filepath.Join(r.cfg.HostProc, "1")
		if r.cfg.HostProc == "" {
			return false
		}
	}
	var st unix.Stat_t
	var fsys unix.Statfs_t
	err := unix.Statfs(path, &fsys)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(place)
		return err == nil
	}
	if err != nil || fsys.Type != unix.NSFS_MAGIC || unix.Stat(path, &st) != nil {
		return false
	}
	return podns.ID{Device: st.Dev, Inode: st.Ino} != audit.IDOf(n)
}
