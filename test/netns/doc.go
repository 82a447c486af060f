// Package netns builds pods out of network namespaces, so that tests can ask the real kernel what
// becomes of a connection: who answered it, and which destination its caller had in mind.
//
//	pod := netns.NewPod(t, netns.Options{})
//	pod.Listen(t, netns.Listener{Who: "proxy", As: netns.Identity{UID: 1337, GID: 1337}, TCP: []uint16{15001}})
//	pod.Run(t, rules, "nft", "-f", "-")
//	got := pod.Dial(t, netns.Call{Network: "tcp", To: netip.MustParseAddrPort("192.0.2.7:80")})
//	if got.Who != "proxy" || got.Original.Port() != 80 {
//		t.Errorf("the app's connection was %v", got)
//	}
//
// A pod has three namespaces:
//
//	Peer, the world                  the pod                     VM, a machine inside the pod
//	pod0  10.244.0.1 fd00:244::1 --- eth0    10.244.0.2 fd00:244::2
//	                                 extra0  10.245.0.2 fd00:245::2 --- eth0  10.245.0.1 fd00:245::1
//
// Peer accepts TCP to every address and port and answers UDP port 53 of every address, as "peer";
// Report.Original (TCP) and Report.Local (UDP) tell which address was called. VM sends everything
// through the pod, which forwards it.
//
// Sockets of any user and group are made without processes: the kernel's owner matches read the
// fsuid and fsgid that a thread had when it made or accepted the socket (struct file's f_cred), and
// those belong to the thread alone.
//
// Be aware:
//   - The namespaces have no names and no processes: whatever ends the test process ends them.
//   - Goroutines started within Do run outside the namespace. Do, Run, Dial and Listen may be
//     called from any goroutine while the test runs, but a broken setup calls t.FailNow, which
//     wants the test's own.
//   - /proc/net and /sys/class/net of this process are the host's even within Do;
//     /proc/thread-self/net and /proc/sys/net are the namespace's. Programs started by Run see
//     their own /proc/net, but the host's /sys.
//   - rp_filter is off and interfaces make no link-local address of their own (fe80::1 and fe80::2
//     are set, without duplicate address detection): nothing has to be waited for.
//   - Report.Original is what conntrack says. It is not set where no rule has made the kernel track
//     connections, and equals Local for a connection that was not redirected.
//   - A call without an answer takes its whole Timeout.
package netns
