// Package chain runs a node's chain of plugins as a container runtime does: libcni executes bridge,
// host-local and the plugin's binary in real network namespaces. Its tests are those of the plugin
// as a runtime meets it; the demo shows the same to people.
//
//	err := chain.Build(t.Context(), bin)
//	n, ns, pod := chain.NewNode(t, bin), netns.New(t), chain.Meshed("web", nil)
//	at := chain.Attachment(pod, ns)
//	result, err := n.Add(n.Network("1.1.0", n.Bridge(), n.Entry(nil)), at)
//	problems := chain.Verify(t, ns, n.Rules(at))
//
// Be aware: the pods' namespaces are empty but for what the plugins make; not even the loopback
// interface is up.
package chain
