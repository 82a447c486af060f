// Package chain decides how the plugin's entry gets into a node's CNI configuration, stays there
// and comes out. It takes a conf directory as it was read and gives back steps; it touches no file.
// Whoever carries the steps out writes each file as a whole, under an ignored name that is then
// renamed.
//
//	spec := chain.Spec{Way: chain.Auto, LoadsDropIns: true, Entry: entry}
//	plan, err := chain.Install(dir, spec)
//	for _, step := range plan.Steps {
//		fmt.Fprintln(log, step) // write 10-calico.conflist: our entry, the last of the chain
//	}
//	state := chain.Evaluate(dir, spec)
//
// The directory without us is computed first, whatever way we once got in and wherever a pass was
// interrupted; then what it shall be; the steps are the difference, the new way in before the old
// way out. So after every single step the runtime loads the original chain or the original and us,
// perhaps twice, which is harmless; and a pass that begins in the middle of another ends where that
// one would have ended.
//
// Be aware: the steps hold for the directory they were made from. The caller compares a file with
// what it was right before it replaces or renames it, and reads anew if it has changed. While a
// .conf is wrapped, edits of the wrapping list are kept, but not on uninstall: the original file
// comes back. An empty sub-directory that is called like a network counts as a left-over of ours
// and goes, also if it was there before. A runtime that loads several networks (max_conf_num) is
// served in the first only.
package chain
