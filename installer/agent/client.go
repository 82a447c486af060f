package agent

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/daemon/events"
)

// NewClient returns a client for pods, of which it reads what the cache keeps, nodes and Events,
// and for JSON of any kind under /api/v1. It reads protobuf and is not throttled: who uses it has
// bounds of its own.
func NewClient(config *rest.Config) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializers()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return rest.RESTClientFor(config)
}

// NewEvents returns the Events of a node's agent. Their Run writes them. The client is from
// NewClient.
func NewEvents(client *rest.RESTClient, node string, reg prometheus.Registerer,
	log *zap.Logger) *events.Events {
	return events.New(client, corev1.EventSource{Component: "sidecar-cni", Host: node}, reg, log)
}

func serializers() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion,
		&corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.Event{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	return podSerializers{serializer.NewCodecFactory(scheme).WithoutConversion()}
}
