// Package agent answers the plugin's questions about pods and counts what it reports. The protocol
// is written down in docs/agent-protocol.md.
//
//	client, err := agent.NewClient(config)
//	pods := agent.NewPods(client, node, registry, log)
//	events := agent.NewEvents(client, node, registry, log) // of package daemon/events
//	socket, err := agent.Listen("/run/sidecar-cni/agent.sock")
//	go pods.Run(ctx)
//	go events.Run(ctx)
//	err = agent.NewServer(agent.Known{Pods: pods, Handler: classes.Handler}, events, registry, log).Serve(ctx, socket)
//
// Pods is a copy of the node's pods, each stripped to what decides about its traffic. What it does
// not have, or has under another uid, the API server is asked for at once; only the API server's
// word makes an answer "no such pod".
//
//	the API server                  a pod in the copy    any other pod
//	answers                         served               asked for, and served or absent
//	is away, slow or refuses us     served               "not known", with the cause
//
// Be aware:
//   - Pods are shared. Who gets one from Find or List must not change it.
//   - The copy can be old without knowing it. It is right about what never changes in a pod: its
//     spec and its uid.
//   - An outcome is counted under the words that it brings, whatever version of the plugin chose
//     them. Their number is bounded: what comes after counts as "other".
//   - Events are written best effort. How many were not, and why, is a metric.
package agent
