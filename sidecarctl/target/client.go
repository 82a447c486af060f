package target

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// Cluster is where pods are read.
type Cluster struct {
	Client           *rest.RESTClient // for JSON of any kind
	Config           *rest.Config     // that Client was made of
	DefaultNamespace string           // of the kubeconfig's context; "default" if it has none
}

// Connect makes what FromCluster asks by. Empty arguments leave it to kubectl's rules: the files of
// $KUBECONFIG, else ~/.kube/config, else the ServiceAccount of the pod that this runs in; and the
// current context.
func Connect(kubeconfig, context string) (Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	rules.WarnIfAllMissing = false // the error says it
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context})
	raw, err := loaded.RawConfig()
	if err != nil {
		return Cluster{}, explainConfig(err)
	}
	if _, ok := raw.Contexts[context]; !ok && context != "" {
		return Cluster{}, fmt.Errorf("read kubeconfig: it has no context %q; "+
			"list them by kubectl config get-contexts", foreign.Cut(context))
	}
	config, err := loaded.ClientConfig()
	if err != nil {
		return Cluster{}, explainConfig(err)
	}
	c := Cluster{Config: config}
	if c.DefaultNamespace, _, err = loaded.Namespace(); err != nil {
		return Cluster{}, explainConfig(err)
	}
	if c.Client, err = newClient(config); err != nil {
		return Cluster{}, explainConfig(err)
	}
	return c, nil
}

// newClient returns a client for JSON of any kind. The one type that it knows is Status, which says
// why a request is refused. It stays with the API server: what a pod answers through it, or another
// server behind it, may redirect the request, and credentials would go along on every way.
func newClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	config.WarningHandler = rest.NoWarnings{} // about versions that are to go, for who writes them
	config.QPS = -1                           // no limit: who asks much asks a few things at a time
	shared, err := rest.HTTPClientFor(config) // which may be the whole process'
	if err != nil {
		return nil, err
	}
	client := *shared
	client.CheckRedirect = func(to *http.Request, _ []*http.Request) error {
		return fmt.Errorf("%w to %q, which is not followed", api.ErrRedirect, to.URL.Host)
	}
	return rest.UnversionedRESTClientForConfigAndClient(config, &client)
}

// ErrNoKubeconfig is the error of Connect where nothing says where the API server is.
var ErrNoKubeconfig = errors.New("read kubeconfig: there is none, or it has no cluster; set " +
	"$KUBECONFIG, or pass the file by --kubeconfig")

func explainConfig(err error) error {
	text := foreign.Line(err.Error())
	switch {
	case clientcmd.IsEmptyConfig(err):
		return ErrNoKubeconfig
	case errors.Is(err, fs.ErrNotExist):
		text += "; pass by --kubeconfig the file that kubectl uses"
	}
	return &foreign.Error{Text: "read kubeconfig: " + text, Cause: err}
}
