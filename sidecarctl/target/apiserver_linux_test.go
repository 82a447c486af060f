package target_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

// By a kubeconfig with a token and a CA, as it is in a cluster.
func TestPodByKubeconfig(t *testing.T) {
	t.Parallel()
	api := apiserver.Start(t)
	api.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "5b0c"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
	})
	cluster, err := target.Connect(api.Kubeconfig(), "")
	if err != nil || cluster.DefaultNamespace != "default" {
		t.Fatalf("namespace %q, error %v", cluster.DefaultNamespace, err)
	}
	pods, err := target.FromCluster(t.Context(), cluster.Client, "shop/web-0", target.Options{})
	if err != nil || len(pods) != 1 || pods[0].Name != "shop/web-0" || pods[0].UID != "5b0c" {
		t.Errorf("pods %+v, error %v", pods, err)
	}

	api.Rotate("another")
	_, err = target.FromCluster(t.Context(), cluster.Client, "shop/web-0", target.Options{})
	if err == nil || !strings.Contains(err.Error(), "does not accept the credentials") {
		t.Errorf("with an old token: %v", err)
	}

	api = apiserver.Start(t)
	api.Distrust(t)
	cluster, err = target.Connect(api.Kubeconfig(), "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = target.FromCluster(t.Context(), cluster.Client, "shop/web-0", target.Options{})
	if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("with another CA: %v", err)
	}
}
