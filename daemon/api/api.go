// Package api is a program's way to the API server.
//
//	server := api.Server{InCluster: api.InCluster(os.Environ())}
//	config, err := server.Config()
package api

import (
	"net"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// AccountDir is where the kubelet puts the token of a pod's ServiceAccount.
const AccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// Server is how a program reaches the API server.
type Server struct {
	Kubeconfig string // file; "" is the pod's ServiceAccount
	InCluster  string // the API server's URL by the environment, see InCluster; "" outside of a pod
}

// Config is for client-go.
func (s Server) Config() (*rest.Config, error) {
	if s.Kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	}
	if s.InCluster == "" {
		return nil, rest.ErrNotInCluster
	}
	return &rest.Config{
		Host: s.InCluster, BearerTokenFile: AccountDir + "/token",
		TLSClientConfig: rest.TLSClientConfig{CAFile: AccountDir + "/ca.crt"},
	}, nil
}

// InCluster is the address of the API server that the kubelet writes into each container's
// environment; "" outside of one.
func InCluster(environ []string) string {
	var host, port string
	for _, pair := range environ {
		switch name, value, _ := strings.Cut(pair, "="); name {
		case "KUBERNETES_SERVICE_HOST":
			host = value
		case "KUBERNETES_SERVICE_PORT":
			port = value
		}
	}
	if host == "" || port == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(host, port)
}
