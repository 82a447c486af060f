// Package reconcile brings a node into the state that the settings ask for, and says what state
// that is.
//
//	r := reconcile.New(settings, sources, log)
//	outcome := r.Pass(ctx, reconcile.In)
//	fmt.Println(outcome.Now.Why, outcome.Now.Text, outcome.Changes)
//
// A pass is three things, one after the other:
//
//	Observe ──Observation──▶ Decide ──Todo──▶ do ──▶ Observe what changed ──▶ Decide ──▶ State
//	reads, each thing once   pure: no disk,   writes; the entry last,
//	                         no runtime       and the old way out after the new one is in
//
// Decide is a function of values. So every reason that a node can have is a row of a test that
// needs no node. What could not be done is part of what is observed afterwards.
//
// The daemon, a single pass, a preview and an uninstallation are all Pass, with another Aim.
//
// Be aware: a Reconciler is for one goroutine. Other processes on the node, a newer agent or an
// uninstallation, are kept out by a lock in the run directory while a pass writes.
package reconcile
