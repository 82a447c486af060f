// Package program redirects a pod: it writes the rules into the pod's network namespace and the
// record that says so, both or neither. ADD does it, and so does the agent for a pod of which
// nobody has called ADD.
//
//	w, err := program.Prepare(records, record.Record{Attachment: a, Pod: pod, Netns: netns,
//		Backend: backend.For(configured, n), Policy: policy})
//	err = n.Do(func() (err error) { warnings, err = w.Write(ctx); return err })
//
// Be aware: Write works in the network namespace of the calling thread. What leads into a pod's is
// package podns.
package program

import (
	"context"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
)

// Writing is what is about to be written for a pod. Discard ends it, unless Write has succeeded.
type Writing struct {
	Rules redirect.Ruleset // of the policy

	record  record.Record
	records record.Dir
	draft   record.Draft
}

// RecordError says that a record was not written.
type RecordError struct {
	Err error // why
}

func (e *RecordError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Err }

// ForeignError says that a namespace has rules of another tool, or of another backend. Beside them
// ours would redirect what is redirected already.
type ForeignError struct {
	Rules string // the first of them, for people
}

func (e *ForeignError) Error() string { return "its network namespace has " + e.Rules }

// Prepare compiles the policy of a record, and writes the record, unseen: most of what can fail
// about it fails before the kernel was touched. The revision is filled in. An error is a
// *RecordError.
func Prepare(records record.Dir, r record.Record) (*Writing, error) {
	w := &Writing{Rules: redirect.Compile(r.Policy), records: records}
	r.Revision = record.Revision(w.Rules)
	w.record = r
	var err error
	if w.draft, err = records.Draft(r); err != nil {
		return nil, &RecordError{err}
	}
	return w, nil
}

// Discard forgets what was prepared.
func (w *Writing) Discard() { w.draft.Discard() }

// Write writes the rules into the calling thread's namespace, and shows the record. A variant of
// iptables is looked for, so the thread's root is where the host's programs are. Without a
// record the rules go again, as far as this call wrote them: nobody could verify them. The warnings
// are about traffic that cannot be captured. An error is a *RecordError, a *ForeignError, or of the
// backend; then Discard is called.
func (w *Writing) Write(ctx context.Context) (warnings []string, err error) {
	tables, err := backend.Find(w.record.Backend)
	if err != nil {
		return nil, err
	}
	other, err := backend.OtherRules(w.record.Backend)
	if err == nil && other != "" {
		err = &ForeignError{other}
	}
	if err != nil {
		return nil, err
	}
	undo, warnings, err := tables.Apply(ctx, w.Rules)
	if err != nil {
		return nil, err
	}
	if err := w.draft.Publish(); err != nil {
		undo(w.earlierRules())
		return warnings, &RecordError{err}
	}
	return warnings, nil
}

// earlierRules are those of an earlier call for the same sandbox, whose record still holds; nil
// without one.
func (w *Writing) earlierRules() *redirect.Ruleset {
	for _, one := range w.records.OfContainer(w.record.Container) {
		if one.Backend == w.record.Backend {
			rules := redirect.Compile(one.Policy)
			return &rules
		}
	}
	return nil
}
