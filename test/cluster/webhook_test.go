//go:build e2e

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// hook is a webhook that is named by a Service, and the address behind that.
const hook = `
apiVersion: v1
kind: Service
metadata: {name: hook, namespace: default}
spec: {ports: [{name: https, port: 443, targetPort: %[1]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: hook, namespace: default, labels: {kubernetes.io/service-name: hook}}
addressType: IPv4
ports: [{name: https, port: %[1]d, protocol: TCP}]
endpoints: [{addresses: ["172.18.0.1"], conditions: {ready: true}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: hook.example.com
  clientConfig: {service: {namespace: default, name: hook}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 1
`

// TestWebhooks: the API server calls who is behind a Service, though no kube-proxy runs beside it.
func TestWebhooks(t *testing.T) {
	c := start(t, cluster.Options{})
	l := c.Listen(t, "172.18.0.1:0")
	var calls atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			conn.Close()
		}
	}()
	c.Apply(t, fmt.Sprintf(hook, l.Addr().(*net.TCPAddr).Port))
	c.Await(t, "the webhook to be called", func(context.Context) error {
		_, err := c.TryKubectl("", "create", "configmap", "asked", "--dry-run=server")
		if err == nil && calls.Load() == 0 {
			err = errors.New("it was not")
		}
		return err
	})
}
