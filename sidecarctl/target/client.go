package target

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Client returns a client for FromCluster, and the namespace of the kubeconfig's context, which is
// "default" if it has none. Empty arguments leave it to kubectl's rules: the files of $KUBECONFIG,
// else ~/.kube/config, else the ServiceAccount of the pod that this runs in; and the current
// context.
func Client(kubeconfig, context string) (client *rest.RESTClient, defaultNamespace string,
	err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	rules.WarnIfAllMissing = false // the error says it
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context})
	raw, err := loaded.RawConfig()
	if err != nil {
		return nil, "", explainConfig(err)
	}
	if _, ok := raw.Contexts[context]; !ok && context != "" {
		return nil, "", fmt.Errorf("read kubeconfig: it has no context %q; "+
			"list them by kubectl config get-contexts", clip(context, longestName))
	}
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, "", explainConfig(err)
	}
	if defaultNamespace, _, err = loaded.Namespace(); err != nil {
		return nil, "", explainConfig(err)
	}
	if client, err = newClient(config); err != nil {
		return nil, "", explainConfig(err)
	}
	return client, defaultNamespace, nil
}

// newClient returns a client for JSON of any kind. The one type that it knows is Status, which says
// why a request is refused.
func newClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	config.WarningHandler = rest.NoWarnings{} // about versions that are to go, for who writes them
	return rest.UnversionedRESTClientFor(config)
}

func explainConfig(err error) error {
	text := oneLine(err.Error())
	if clientcmd.IsEmptyConfig(err) {
		text = "there is none, or it has no cluster; set $KUBECONFIG or pass the file by its " +
			"flag, or read a manifest instead"
	}
	return &fault{"read kubeconfig: " + text, err}
}
