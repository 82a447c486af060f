// Package redirect says what is redirected to a pod's sidecar proxy, and why. Values go in and
// values come out: it touches no file, socket, clock or environment. It knows the annotations and
// variables that Istio gave a meaning; the form in which the API writes pods is kubepod's, and how
// rules are written, and which kernel modules that takes, is the dialects'.
//
//	pod ──Decide──▶ Skip(reason)
//	 │
//	 └─▶ Policy ──Compile──▶ Ruleset ─┬─ dialects: Render, Apply, Verify, Remove
//	                                  ├─ Explain ──▶ sentences
//	                                  └─ package simulate: a packet's Fate and the rules it met
//
// For example:
//
//	decision, err := redirect.Decide(pod, redirect.Defaults())
//	rules := redirect.Compile(decision.Policy)
//	fmt.Print(redirect.Explain(rules))
//	fmt.Print(simulate.Packet(rules, packet))
//
// # A packet's way
//
// A process of the pod opens a connection. The kernel asks the tables at the OUTPUT hook, then
// routes the packet:
//
//	app ─▶ OUTPUT: raw ─▶ mangle ─▶ nat ─▶ eth0          what nobody captures
//	                                 │
//	                                 └─▶ lo ─▶ 15001      ISTIO_OUTPUT says redirect: the proxy's outbound listener
//
//	proxy ─▶ OUTPUT ─▶ eth0                               its own traffic is known by uid or gid and goes its way
//	proxy ─▶ OUTPUT ─▶ lo ─▶ 15006                        a call of the pod to itself comes in like any other
//
// A packet comes in from outside, or from lo. The kernel asks at the PREROUTING hook, before it
// looks for a socket:
//
//	eth0 ─▶ PREROUTING: raw ─▶ mangle ─▶ nat ─▶ app       excluded ports, the tunnel port
//	                             │        │
//	                             │        └─▶ 15006       REDIRECT: the destination is rewritten
//	                             └─▶ 15006                TPROXY: handed over with its addresses as they are
//
//	proxy ─▶ OUTPUT ─▶ lo ─▶ PREROUTING ─▶ app            from 127.0.0.6 or ::6: not captured again
//
// nat is asked about the first packet of a connection only, and about a connection over lo only on
// its way out: what follows is rewritten likewise. raw and mangle see every packet.
//
// # Words
//
//	outbound, inbound    what the pod's processes send; what enters the pod
//	capture              redirect to the proxy
//	self-call            the pod calls its own address, usually through a service's
//	passthrough source   the address by which the proxy calls the app: 127.0.0.6, ::6
//	tunnel port          enters the proxy by itself, never redirected: 15008
//	zone                 of connection tracking: keeps exchanges with equal addresses and ports apart
//	mark                 a number on a packet, by which the kernel routes it to a local socket
//	dialect              a package that writes a ruleset into a kernel: nftables, iptables
//
// # Laws
//
// Each is a test on the real kernel (test/kernel), for every dialect and both families:
//
//  1. Echo: what the kernel's own tool prints back is what Render says.
//  2. Two pens: what Apply writes lists exactly as Render's text does once the tool has loaded it.
//  3. Fate: where a real connection ends is where package simulate says that it ends.
//  4. Verify sees: it is silent after Apply, and names chain and rule after any deletion, change
//     or swap.
//  5. Twice is once: applying again changes nothing, and Remove leaves nothing.
package redirect
