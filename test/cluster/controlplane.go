package cluster

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Where the control plane's files are, on its tmpfs.
const (
	pki   = "/run/cluster/pki/"
	admin = "/run/cluster/admin.kubeconfig"
)

func (c *Cluster) server() string {
	return "https://" + net.JoinHostPort(c.families.of(siteV4, siteV6)[0], "6443")
}

// launchControlPlane starts what waits for others by itself.
func (c *Cluster) launchControlPlane(t testing.TB) {
	t.Helper()
	c.writeCredentials(t)
	c.etcd = c.process(c.site, "etcd", answers(c.site, "http://127.0.0.1:2379/health"),
		"etcd", "--data-dir=/run/cluster/etcd", "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380")
	c.APIServer = c.process(c.site, "kube-apiserver", c.apiServerReady,
		"kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443",
		"--bind-address="+c.families.of("0.0.0.0", "::")[0],
		"--advertise-address="+c.families.of(siteV4, siteV6)[0],
		"--service-cluster-ip-range="+
			strings.Join(c.families.of("10.96.0.0/16", "fd00:96::/112"), ","),
		"--client-ca-file="+pki+"ca.crt", "--tls-cert-file="+pki+"server.crt",
		"--tls-private-key-file="+pki+"server.key",
		"--kubelet-client-certificate="+pki+"kubelet-client.crt",
		"--kubelet-client-key="+pki+"kubelet-client.key",
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+pki+"accounts.key",
		"--service-account-signing-key-file="+pki+"accounts.key",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		// No kube-proxy runs here: a webhook's Service is called by the addresses of its pods.
		"--enable-aggregator-routing",
		"--allow-privileged")
	c.controllers = c.process(c.site, "kube-controller-manager",
		answers(c.site, "https://127.0.0.1:10257/healthz"),
		"kube-controller-manager", "--kubeconfig="+pki+"controllers.kubeconfig",
		"--leader-elect=false", "--bind-address=127.0.0.1",
		"--service-account-private-key-file="+pki+"accounts.key", "--root-ca-file="+pki+"ca.crt",
		"--use-service-account-credentials",
		"--kube-api-qps=1000", "--kube-api-burst=1000") // at its usual rate it takes 5 s to start
	c.scheduler = c.process(c.site, "kube-scheduler",
		answers(c.site, "https://127.0.0.1:10259/healthz"),
		"kube-scheduler", "--kubeconfig="+pki+"scheduler.kubeconfig", "--leader-elect=false",
		"--bind-address=127.0.0.1")
	c.etcd.launch(t)
	c.APIServer.launch(t)
}

// awaitControlPlane returns when pods can be made.
func (c *Cluster) awaitControlPlane(t testing.TB) {
	t.Helper()
	c.Await(t, "kube-apiserver to be ready", c.apiServerReady)
	c.controllers.launch(t)
	c.scheduler.launch(t)
	c.Await(t, "the default service account", func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts("default").Get(ctx, "default",
			metav1.GetOptions{})
		return err
	})
}

func (c *Cluster) writeCredentials(t testing.TB) {
	t.Helper()
	a := c.authority
	addresses := []net.IP{net.ParseIP("10.96.0.1"), net.ParseIP("fd00:96::1"), net.ParseIP(siteV4),
		net.ParseIP(siteV6)}
	server := a.server(t, addresses, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local")
	kubelet := a.client(t, "kube-apiserver", "system:masters")
	mine := a.kubeconfig(t, c.server(), a.client(t, "admin", "system:masters"))
	err := errors.Join(
		c.site.write(pki+"ca.crt", a.pem),
		c.site.write(pki+"server.crt", server.certificate),
		c.site.write(pki+"server.key", server.key),
		c.site.write(pki+"kubelet-client.crt", kubelet.certificate),
		c.site.write(pki+"kubelet-client.key", kubelet.key),
		c.site.write(pki+"accounts.key", encodeKey(t, newKey(t))),
		c.site.write(pki+"controllers.kubeconfig",
			a.kubeconfig(t, c.server(), a.client(t, "system:kube-controller-manager"))),
		c.site.write(pki+"scheduler.kubeconfig",
			a.kubeconfig(t, c.server(), a.client(t, "system:kube-scheduler"))),
		c.site.write(admin, mine),
	)
	if err == nil {
		c.config, err = clientcmd.RESTConfigFromKubeConfig(mine)
	}
	if err == nil {
		c.config.Dial = c.site.dial
		c.config.QPS = -1 // a test that polls is not to wait for itself
		c.client, err = kubernetes.NewForConfig(c.config)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) apiServerReady(ctx context.Context) error {
	return c.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}
