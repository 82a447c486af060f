package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Client returns a client for the objects of a group and version, of which it knows those that are
// named, lists included. It speaks JSON and is not throttled: who uses it has bounds of its own.
//
// A clientset would know all of Kubernetes' objects, and make the program larger for it.
func Client(config *rest.Config, group schema.GroupVersion,
	known ...runtime.Object) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(group, known...)
	metav1.AddToGroupVersion(scheme, group)
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	if group.Group == "" {
		config.APIPath = "/api"
	}
	config.GroupVersion = &group
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return rest.RESTClientFor(config)
}
