// Package podgen makes random pods that the API accepts, for tests of what changes pods.
//
//	pod := podgen.Pod(rand.New(rand.NewPCG(1, 2)))
//
// Be aware: the pods have a name and no namespace, and no container of the mesh's. Their users are
// never the proxy's 1337, with which a pod asks for something that inject refuses.
package podgen

import (
	"fmt"
	"math/rand/v2"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

type object = podtree.Object

// maker makes the parts of one pod.
type maker struct {
	random  *rand.Rand
	names   int
	volumes []string // the names of the pod's volumes
	ports   int64    // the last container port that is taken
}

// Pod makes a pod.
func Pod(r *rand.Rand) podtree.Object {
	m := &maker{random: r, ports: 8000}
	metadata := object{
		"name":        m.name("pod"),
		"labels":      object{"app": m.pick("shop", "web", "db"), "example.com/tier": "a"},
		"annotations": m.annotations(),
	}
	spec := object{"restartPolicy": "Always"}
	if volumes := m.makeVolumes(); len(volumes) > 0 {
		spec["volumes"] = volumes
	}
	spec["containers"] = m.containers(1+m.random.IntN(3), m.app)
	if n := m.random.IntN(4); n > 0 {
		spec["initContainers"] = m.containers(n, m.init)
	}
	for _, set := range []func(object){
		m.podSecurity, m.dns, m.placement, m.pullSecrets, m.lifetime,
	} {
		if m.often() {
			set(spec)
		}
	}
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
}

func (m *maker) often() bool { return m.random.IntN(2) == 0 }

func (m *maker) pick(words ...string) string { return words[m.random.IntN(len(words))] }

func (m *maker) name(prefix string) string {
	m.names++
	return fmt.Sprintf("%s-%d", prefix, m.names)
}

func (m *maker) containers(n int, one func() object) []any {
	list := []any{}
	for range n {
		list = append(list, one())
	}
	return list
}

func (m *maker) annotations() object {
	all := object{}
	for range m.random.IntN(4) {
		key := fmt.Sprintf("example.com/note-%d", m.random.IntN(9))
		all[key] = m.pick("", "a: b", `{"x": 1}`, "ü")
	}
	if m.often() {
		all["sidecar.istio.io/rewriteAppHTTPProbers"] = m.pick("true", "false")
	}
	if m.often() { // init containers need no network: inject does not ask who they run as
		all["sidecar-cni.io/initContainers"] = ""
	}
	if m.random.IntN(4) == 0 {
		all["traffic.sidecar.istio.io/excludeOutboundPorts"] = m.pick("3306", "3306,5432")
	}
	return all
}

func (m *maker) makeVolumes() []any {
	sources := []func() (string, object){
		func() (string, object) { return "emptyDir", object{} },
		func() (string, object) {
			return "emptyDir", object{"medium": "Memory", "sizeLimit": "1Mi"}
		},
		func() (string, object) {
			mode := int64(0o644)
			return "configMap", object{"name": "settings", "optional": true, "defaultMode": mode}
		},
		func() (string, object) { return "secret", object{"secretName": "keys", "optional": true} },
		func() (string, object) {
			token := object{"path": "token", "expirationSeconds": int64(3600), "audience": "api"}
			return "projected", object{"sources": []any{object{"serviceAccountToken": token}}}
		},
		func() (string, object) {
			label := object{"path": "labels", "fieldRef": object{"fieldPath": "metadata.labels"}}
			return "downwardAPI", object{"items": []any{label}}
		},
	}
	list := []any{}
	for range m.random.IntN(4) {
		kind, source := sources[m.random.IntN(len(sources))]()
		name := m.name("volume")
		m.volumes = append(m.volumes, name)
		list = append(list, object{"name": name, kind: source})
	}
	return list
}

func (m *maker) podSecurity(spec object) {
	context := object{"seccompProfile": object{"type": "RuntimeDefault"}}
	if m.often() {
		context["runAsUser"] = int64(2000 + m.random.IntN(50))
		context["runAsNonRoot"] = true
	}
	if m.often() {
		context["fsGroup"] = int64(3000 + m.random.IntN(50))
		context["supplementalGroups"] = []any{int64(4000)}
	}
	if m.random.IntN(4) == 0 {
		context["sysctls"] = []any{
			object{"name": "net.ipv4.ip_local_port_range", "value": "1024 65535"},
		}
	}
	spec["securityContext"] = context
}

func (m *maker) dns(spec object) {
	options := []any{object{"name": "ndots", "value": "2"}, object{"name": "rotate"}}
	config := object{"options": options}
	if m.often() {
		config["searches"] = []any{"example.com"}
	}
	spec["dnsConfig"] = config
	spec["dnsPolicy"] = "ClusterFirst"
	spec["hostAliases"] = []any{object{"ip": "192.0.2.1", "hostnames": []any{"old.example.com"}}}
}

func (m *maker) placement(spec object) {
	spec["nodeSelector"] = object{"kubernetes.io/os": "linux"}
	spec["tolerations"] = []any{
		object{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"},
	}
	spec["topologySpreadConstraints"] = []any{object{
		"maxSkew": int64(1), "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
		"labelSelector": object{"matchLabels": object{"app": "shop"}},
	}}
	term := object{"matchExpressions": []any{
		object{"key": "kubernetes.io/arch", "operator": "In", "values": []any{"amd64", "arm64"}},
	}}
	spec["affinity"] = object{"nodeAffinity": object{
		"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []any{term}},
	}}
}

func (m *maker) pullSecrets(spec object) {
	spec["imagePullSecrets"] = []any{object{"name": m.pick("registry", "mirror")}}
}

func (m *maker) lifetime(spec object) {
	spec["terminationGracePeriodSeconds"] = int64(30 + m.random.IntN(60))
	spec["automountServiceAccountToken"] = m.often()
	spec["enableServiceLinks"] = m.often()
	spec["readinessGates"] = []any{object{"conditionType": "example.com/ready"}}
	spec["shareProcessNamespace"] = m.often()
}
