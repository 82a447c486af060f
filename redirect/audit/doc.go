// Package audit finds the network namespace of a pod on its node, and judges whether the rules in
// it redirect the pod to its sidecar. It only reads.
//
//	host, err := podns.FindHost("/proc", "the agent")
//	search := audit.NewSearch(host, "/proc", []string{pod.UID})
//	place, err := search.Find(pod)
//	defer place.Close()
//	judgement := audit.Auditor{Records: records, Ports: cfg.Ports, Backend: "nftables"}.Judge(ctx, place, pod)
//	fmt.Println(judgement.Finding, judgement.Why)
//
// Which network namespace is a pod's is known from ADD's record, as long as its path still leads to
// the inode that was recorded, else by the processes whose cgroup carries the pod's uid. What needs
// what:
//
//	the record's path    the directory of the namespaces (/run/netns, /var/run/netns) in the same place as on the host,
//	                     mounted with HostToContainer: else later namespaces are not seen and those that went are kept alive
//	the cgroups          the host's /proc (hostPID, or a mount of it), and CAP_SYS_PTRACE to open what is in it
//	both                 CAP_SYS_ADMIN to enter, CAP_NET_ADMIN to read rules; for a pod with a user namespace of its
//	                     own CAP_DAC_READ_SEARCH, to read which legacy tables there are
//
// The host's own namespace is never entered. It is that of the first process in the host's /proc,
// and the program's own counts as well. Without the host's /proc only recorded namespaces are
// entered, which ADD has made sure are not the host's.
//
// Redirection is what leads to the proxy: our rules, and of others those that send traffic to the
// ports on which the pod's proxy listens, and istio-init's chains, as far as packets come to them
// from the hooks of the namespace. So a pod with a Docker inside, whose DNAT leads to its
// containers, is Missing; another tool's redirection is Foreign, or Altered beside a record.
//
// Be aware:
//   - Redirection is what rules do, of nftables or of either iptables. That of an eBPF program is
//     not seen.
//   - Rules of iptables can be compared only where its programs can be run. Whether there are any
//     is seen without.
//   - A Search is of one moment: it lists the node's processes once.
package audit
