// Package node is what the installer does to its node's disk, and what it asks of the node's
// runtime: it reads conf directories and carries out what package chain planned for them, keeps the
// plugin's binary and credentials, knows which agent of two is in charge, and wakes whoever waits
// for a change.
//
//	conf := node.Conf{Path: "/etc/cni/net.d"}
//	dir, err := conf.Read()
//	plan, err := chain.Install(dir, spec)
//	err = conf.Carry(dir, plan.Steps, func(s chain.Step) { log.Info("changed conf directory", zap.Stringer("step", s)) })
//
// A file is written under a name that nobody loads, synced, and renamed: whoever reads it, and
// whatever moment the writer is killed at, finds the old file or the new one.
//
// Be aware:
//   - Every path means the same inside the agent's container as on the node: each directory is
//     mounted under its own name.
//   - Between the last look at a file and its replacement another writer has a moment. What it
//     wrote in it is lost, and is not reported as ErrChanged.
//   - A directory that was mounted into a container and is deleted on the node stays deleted in the
//     container, also if the node makes another. Read says so.
package node
