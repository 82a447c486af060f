// Package e2e tests the product as a user meets it: installed by its chart, from its image, on the
// real cluster of package cluster, whose nodes run two generations of containerd.
//
//	make e2e                  all scenarios
//	make e2e RUN=Traffic      one
//	make soak REBOOTS=50      TestBoot, with so many reboots; TestGuard's entry taken out for a
//	                          minute; TestGuardCrowd
//
// The pods are shaped as Istio's injector shapes them where a CNI plugin is in charge: without
// istio-init, and with istio-validation, which does not let a pod start whose rules are missing.
// Their programs are those of actor/, and haproxy.
//
// What is claimed is what others say: the app whom it was called by, the proxy whom a caller meant,
// the kernel which rules a namespace has, the API server which Events there are, Prometheus' text
// format what was counted. A failure prints what these say, and what the agents have logged.
//
// Be aware:
//   - Everything is in namespaces and on file systems of the cluster's own; the machine's CNI
//     directories are not touched.
//   - The cluster's programs are built when first needed, see package cluster, and so are the
//     image, by buildah, and Helm. Beside what a cluster needs that is, from Debian, make, buildah
//     and haproxy.
//   - Envoy is not to be had as a Go module or a Debian package. haproxy stands in for a real proxy
//     under REDIRECT over IPv4; it cannot mark packets, which TPROXY needs, and it has no server of
//     names.
package e2e
