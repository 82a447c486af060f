package reconcile

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

func TestEntry(t *testing.T) {
	t.Parallel()
	cfg := Settings{
		Namespace: "mesh", Dirs: Directories{Run: "/r"},
		Plugin: PluginSettings{Excluded: []string{"kube-system", "x"},
			Conf: `{"deadline":"3s","redirect":{"ports":{"dns":5353}}}`},
	}
	data, err := cfg.entry(Place{Credentials: node.Credentials{Dir: "/c/sidecar-cni.d"}},
		"iptables-nft")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte(`{"type":"sidecar-cni",`)) {
		t.Errorf("it begins with %s", data[:20])
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "sidecar-cni", "backend": "iptables-nft",
		"kubeconfig": "/c/sidecar-cni.d/kubeconfig", "agentSocket": "/r/agent.sock",
		"stateDir": "/r/state", "excludeNamespaces": []any{"kube-system", "mesh", "x"},
		"deadline":     "3s",
		"redirect":     map[string]any{"ports": map[string]any{"dns": 5353.0}},
		"capabilities": map[string]any{"dns": true, "io.kubernetes.cri.pod-annotations": true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	conf := netconf.Parse(data)
	if len(conf.Mistakes)+len(conf.Warnings) > 0 || conf.Deadline != 3*time.Second ||
		conf.Redirect.Ports.DNS != 5353 {
		t.Errorf("the plugin reads %+v", conf)
	}
}
