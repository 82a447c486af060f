package podgen

import (
	"fmt"
	"strings"
)

// app makes an ordinary container.
func (m *maker) app() object {
	c := m.container("app")
	m.addPorts(c)
	m.addProbes(c)
	return c
}

// init makes an init container: an ordinary one, or a native sidecar. Only those have probes.
func (m *maker) init() object {
	c := m.container("init")
	if m.random.IntN(3) == 0 {
		c["restartPolicy"] = "Always"
		m.addPorts(c)
		m.addProbes(c)
	}
	return c
}

func (m *maker) container(kind string) object {
	digest := strings.Repeat("0123456789abcdef", 4)
	image := m.pick("example.com/app:1", "example.com/app@sha256:"+digest)
	c := object{"name": m.name(kind), "image": image}
	for _, set := range []func(object){
		m.addCommand, m.addEnv, m.addMounts, m.addSecurity, m.addResources,
	} {
		if m.often() {
			set(c)
		}
	}
	return c
}

func (m *maker) addCommand(c object) {
	c["command"] = []any{"/bin/app"}
	c["args"] = []any{"--level", "7", "--on=true", "$(HOME)", "-"}
	c["workingDir"] = "/srv"
	c["imagePullPolicy"] = m.pick("Always", "IfNotPresent")
	c["terminationMessagePolicy"] = "FallbackToLogsOnError"
}

func (m *maker) addEnv(c object) {
	text := m.pick("1", "true", "a b")
	env := []any{object{"name": "EMPTY"}, object{"name": "TEXT", "value": text}}
	if m.often() {
		ref := object{"fieldRef": object{"fieldPath": "metadata.name"}}
		env = append(env, object{"name": "POD", "valueFrom": ref})
	}
	if m.often() {
		ref := object{"secretKeyRef": object{"name": "keys", "key": "k", "optional": true}}
		env = append(env, object{"name": "KEY", "valueFrom": ref})
	}
	c["env"] = env
	if m.often() {
		c["envFrom"] = []any{object{"configMapRef": object{"name": "settings", "optional": true}}}
	}
}

func (m *maker) addMounts(c object) {
	mounts := []any{}
	for _, name := range m.volumes {
		mount := object{"name": name, "mountPath": "/mnt/" + name}
		if m.often() {
			mount["readOnly"] = true
		}
		mounts = append(mounts, mount)
	}
	if len(mounts) > 0 {
		c["volumeMounts"] = mounts
	}
}

func (m *maker) addSecurity(c object) {
	context := object{
		"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": m.often(),
		"capabilities": object{"drop": []any{"ALL"}},
	}
	if m.often() {
		context["runAsUser"] = int64(2000 + m.random.IntN(50))
		context["runAsGroup"] = int64(2000 + m.random.IntN(50))
	}
	c["securityContext"] = context
}

func (m *maker) addResources(c object) {
	requests := object{"cpu": m.pick("10m", "0.1"), "memory": "16Mi"}
	c["resources"] = object{"requests": requests, "limits": object{"cpu": "1", "memory": "1Gi"}}
}

// addPorts opens ports, the first of which has a name. No two containers of a pod have one port, or
// one name of a port.
func (m *maker) addPorts(c object) {
	ports := []any{}
	for i := range m.random.IntN(3) {
		m.ports++
		port := object{"containerPort": m.ports, "protocol": m.pick("TCP", "TCP", "UDP")}
		if i == 0 {
			port["name"], port["protocol"] = fmt.Sprintf("p%d", m.ports), "TCP"
		}
		ports = append(ports, port)
	}
	if len(ports) > 0 {
		c["ports"] = ports
	}
}

func (m *maker) addProbes(c object) {
	for _, kind := range []string{"readinessProbe", "livenessProbe", "startupProbe"} {
		if m.often() {
			continue
		}
		probe := m.action(c, "grpc")
		probe["timeoutSeconds"] = int64(1 + m.random.IntN(9))
		if m.often() {
			probe["periodSeconds"], probe["failureThreshold"] = int64(5), int64(2)
		}
		c[kind] = probe
	}
	if m.often() {
		lifecycle := object{"preStop": m.action(c, "sleep")}
		if m.often() {
			lifecycle["postStart"] = m.action(c, "sleep")
		}
		c["lifecycle"] = lifecycle
	}
}

// action is what a probe or a hook does; other is what only one of the two can do.
func (m *maker) action(c object, other string) object {
	switch m.random.IntN(4) {
	case 0:
		get := object{"path": m.pick("/", "/healthz?full=1", "ready"), "port": m.port(c)}
		if m.often() {
			get["scheme"] = m.pick("HTTP", "HTTPS")
			get["httpHeaders"] = []any{object{"name": "X-Probe", "value": "kubelet"}}
		}
		return object{"httpGet": get}
	case 1:
		return object{"tcpSocket": object{"port": m.port(c)}}
	case 2:
		if other == "sleep" {
			return object{"sleep": object{"seconds": int64(1)}}
		}
		return object{"grpc": object{"port": int64(9000), "service": m.pick("", "health")}}
	}
	return object{"exec": object{"command": []any{"true"}}}
}

// port is one of the container's by its name, or any by its number.
func (m *maker) port(c object) any {
	if ports, ok := c["ports"].([]any); ok && m.often() {
		return ports[0].(object)["name"]
	}
	return int64(8080)
}
