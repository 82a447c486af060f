package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
)

// entry is what stands in the chain: the plugin's type, what it needs of the runtime, and its
// configuration. What the plugin would only warn about, or would fail pods for, is refused here.
func (cfg Settings) entry(p Place, backend string) ([]byte, error) {
	ours := map[string]any{
		"capabilities": map[string]bool{netconf.AnnotationsCapability: true,
			netconf.DNSCapability: true},
		"backend":           backend,
		"kubeconfig":        filepath.Join(p.Credentials.Dir, names.Kubeconfig),
		"agentSocket":       cfg.Dirs.Socket(),
		"stateDir":          cfg.Dirs.Records(),
		"excludeNamespaces": cfg.excluded(),
	}
	var more map[string]json.RawMessage
	if err := json.Unmarshal([]byte(cfg.Plugin.Conf), &more); err != nil {
		return nil, fmt.Errorf("--plugin-conf: %w", err)
	}
	fields := map[string]any{}
	for key, value := range more {
		if _, ok := ours[key]; ok || key == "type" {
			return nil, fmt.Errorf("--plugin-conf: %q: the installer sets it, there is a flag "+
				"for it", key)
		}
		fields[key] = value
	}
	maps.Copy(fields, ours)
	data, err := encode(fields)
	if err != nil {
		return nil, fmt.Errorf("--plugin-conf: %w", err)
	}
	conf := netconf.Parse(data)
	wrong := conf.Mistakes
	for _, key := range conf.Unknown {
		wrong = append(wrong, fmt.Sprintf("%s: the plugin has no such key", key))
	}
	if len(wrong) > 0 {
		return nil, errors.New("--plugin-conf: " + strings.Join(wrong, "; "))
	}
	return data, nil
}

// encode writes the type first, since people look for it, and the other keys in their order.
func encode(fields map[string]any) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"type":%q`, names.Plugin)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		value, err := json.Marshal(fields[key])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, `,%q:%s`, key, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// excluded are the namespaces that are left alone. The installer's own pods must start without the
// plugin.
func (cfg Settings) excluded() []string {
	names := append(slices.Clone(cfg.Plugin.Excluded), cfg.Namespace)
	slices.Sort(names)
	return slices.Compact(names)
}
