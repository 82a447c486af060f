// Certmanager is cert-manager's controller and its cainjector in one program, with the issuers that
// need nobody else: those that sign by themselves, and those with an authority in a Secret.
// cert-manager's own programs are modules that nobody publishes; what they run is published, and is
// run here. Its webhook is not: the schemas of its CustomResourceDefinitions validate as well.
//
// It is a module of its own, so that the versions cert-manager wants are nobody's but its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	cmscheme "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	// Each registers itself.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

// workers are as many per controller as cert-manager itself has.
const workers = 5

// issuersNamespace is where ClusterIssuers have their Secrets.
const issuersNamespace = "cert-manager"

func main() {
	// flag.CommandLine has controller-runtime's own --kubeconfig.
	set := flag.NewFlagSet("certmanager", flag.ExitOnError)
	kubeconfig := set.String("kubeconfig", "", "how to reach the API server")
	health := set.String("health", "127.0.0.1:9403", "address of /healthz")
	_ = set.Parse(os.Args[1:]) // it exits
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *kubeconfig, *health); err != nil {
		fmt.Fprintln(os.Stderr, "certmanager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, health string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	all, err := newManager(rest.AddUserAgent(config, "cert-manager-cainjector"), health)
	if err != nil {
		return err
	}
	if err := cainjector.RegisterAllInjectors(ctx, all, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{cainjector.MutatingWebhookConfigurationName: true,
			cainjector.ValidatingWebhookConfigurationName: true},
	}); err != nil {
		return err
	}
	if err := addControllers(ctx, all, kubeconfig); err != nil {
		return err
	}
	return all.Start(ctx)
}

// newManager has what the cainjector reads and runs by. Be aware that the latter takes no cache for
// Secrets, of which it watches the metadata.
func newManager(config *rest.Config, health string) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kscheme.AddToScheme, cmscheme.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	m, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Cache:  cache.Options{ReaderFailOnMissingInformer: true},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: health,
	})
	if err != nil {
		return nil, err
	}
	return m, m.AddHealthzCheck("ping", healthz.Ping)
}

// addControllers adds cert-manager's own, with the settings that it has by default.
func addControllers(ctx context.Context, all manager.Manager, kubeconfig string) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: issuersNamespace},
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes: []string{"*", "-kubectl.kubernetes.io/", "-fluxcd.io/",
				"-argocd.argoproj.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return err
	}
	for name, build := range controller.Known() {
		one, err := build(factory)
		if err != nil {
			return fmt.Errorf("build controller %s: %w", name, err)
		}
		if err := all.Add(manager.RunnableFunc(func(ctx context.Context) error {
			return one.Run(workers, ctx)
		})); err != nil {
			return err
		}
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return nil
}
