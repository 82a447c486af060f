package api

import "testing"

// The environment is what main was given, not what the process has.
func TestTheAPIServerOfTheEnvironment(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.9")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	const host, port = "KUBERNETES_SERVICE_HOST=", "KUBERNETES_SERVICE_PORT="
	for name, row := range map[string]struct {
		environ []string
		want    string
	}{
		"told": {[]string{"A", host + "10.96.0.1", port + "443"},
			"https://10.96.0.1:443"},
		"told by IPv6":       {[]string{host + "fd00::1", port + "6443"}, "https://[fd00::1]:6443"},
		"not told":           {nil, ""},
		"told the host only": {[]string{host + "10.96.0.1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := Server{InCluster: InCluster(row.environ)}
			config, err := server.Config()
			if row.want == "" {
				if err == nil || server.InCluster != "" {
					t.Errorf("error %v, API server %q; want none", err, server.InCluster)
				}
				return
			}
			if err != nil || server.InCluster != row.want || config.Host != row.want {
				t.Errorf("API server %q, %+v, error %v; want %q", server.InCluster, config, err,
					row.want)
			}
		})
	}
}
