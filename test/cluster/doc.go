// Package cluster starts a real Kubernetes cluster for a test: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, and nodes with the real kubelet, kube-proxy and
// containerd, of two generations. It needs root and a few Debian packages, which it names when they
// are missing, and nothing else: no Docker, no registry, no systemd.
//
//	c := cluster.Start(t, cluster.Options{Nodes: []cluster.NodeOptions{{Runtime: cluster.Containerd2}, {Runtime: cluster.Containerd1}}})
//	c.Load(t, cluster.Image{Name: "cluster.local/app:1", Files: map[string]string{"/app": cluster.Program(t, "./app")}, Entrypoint: []string{"/app"}})
//	c.Apply(t, manifest)
//	pod := c.AwaitPod(t, "default", "app", cluster.Ready)
//	c.Node(0).Reboot(t)
//
// The control plane and each node are machines: trees of processes with namespaces of their own.
//
//	control plane, router   172.18.0.1   fd00:18::1
//	  |-- node0             172.18.0.10  fd00:18::a   pods 10.244.0.0/24  fd00:244:0:0::/64
//	  |-- node1             172.18.0.11  fd00:18::b   pods 10.244.1.0/24  fd00:244:0:1::/64
//	services 10.96.0.0/16  fd00:96::/112, the API server at 10.96.0.1 for pods, too
//
// A node's files are the real machine's, read through an overlay, so that paths in manifests are
// the usual ones. /etc/cni, /opt/cni, /var/lib/cni, /var/lib/kubelet, /var/lib/containerd,
// /etc/kubernetes and /var/log are the node's own and empty at first; they and whatever else is
// written are on the node's disk, a tmpfs of 4 GiB that outlives a reboot. /run and /tmp do not.
// The network is that of the reference plugins: bridge, host-local and portmap, in
// 10-cluster.conflist.
//
// The API server has the default admission plugins and NodeRestriction, authorizes by Node and
// RBAC, and signs tokens.
//
// Whatever becomes of the test process, the first process of each machine sees its input end, and
// the kernel ends the rest: nothing is left, neither processes nor mounts, interfaces, cgroups or
// kernel parameters.
//
// The programs are built when first needed, about 12 minutes on two cores, and kept in the user's
// cache; then a cluster starts in 5 seconds. Kubernetes is the module in kube/, cert-manager that
// in certmanager/, which have their own versions; the rest is in a table.
//
// Be aware:
//   - Nothing listens on the real machine: Config, Client and Kubectl make their connections from
//     the control plane's network, Listen opens ports there, and other programs need Try, with the
//     Kubeconfig that is there.
//   - The API server calls webhooks that are named by a Service at their pods' addresses.
//   - There are no registries: Load images, and say imagePullPolicy: Never.
//   - There is no cluster DNS: ClusterDNS is where the kubelet tells pods to ask.
//   - A path from File, ConfDir and BinDir holds until the node's next reboot.
//   - boot_id, the clock, /dev and most of /proc/sys are the real machine's and the same for all.
//   - A cluster with two nodes takes 1.5 GB.
package cluster
