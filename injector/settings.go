package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/daemon/api"
	"github.com/sidecar-cni/sidecar-cni/daemon/flags"
	"github.com/sidecar-cni/sidecar-cni/daemon/loglevel"
	"github.com/sidecar-cni/sidecar-cni/injector/validate"
)

// settings are what an administrator, or the chart for him, decides.
type settings struct {
	api        api.Server
	logLevel   string
	source     sourceSettings
	serving    servingSettings
	guard      guardSettings
	pod        podSettings
	job        jobSettings
	validation validationSettings
}

// sourceSettings say where the configuration of injection is: in files or in ConfigMaps.
type sourceSettings struct {
	config, mesh, values string // files
	configMap            string // NAMESPACE/NAME
	meshConfigMap        string // NAMESPACE/NAME
}

// servingSettings are about the listeners and their certificate.
type servingSettings struct {
	listen, status string
	secret         string // of the authority, NAMESPACE/NAME
	names          []string
	cert, key      string // files
	drain          time.Duration
}

// guardSettings say what holds up a pod that is not redirected.
type guardSettings struct {
	mode       string
	image      string
	pullPolicy string
}

// podSettings are the program's own pod, which Events are about. Without a name there are none.
type podSettings struct{ namespace, name, uid string }

// jobSettings are those of the two Jobs.
type jobSettings struct {
	configurations  []string
	settle, timeout time.Duration
}

// validationSettings are those of the init container.
type validationSettings struct {
	inbound string
	calls   []string
}

// The values of --guard.
const (
	guardValidation = "validation"
	guardNone       = "none"
)

func (s *settings) serveGroups() []flags.Group {
	return []flags.Group{s.sourceFlags(), s.servingFlags(), s.guardFlags(), s.podFlags(),
		s.processFlags()}
}

func (s *settings) certifyGroups() []flags.Group {
	return []flags.Group{flags.In("What is certified", s.secretFlag(), s.configurationsFlag(),
		s.timeoutFlag()), s.processFlags()}
}

func (s *settings) withdrawGroups() []flags.Group {
	return []flags.Group{flags.In("What is taken away", s.configurationsFlag(),
		flags.New("settle", "5s", &s.job.settle, "How long is waited after the webhook",
			"configurations are gone, until each API server knows."),
		s.timeoutFlag()), s.processFlags()}
}

func (s *settings) validateGroups() []flags.Group {
	v := &s.validation
	return []flags.Group{flags.In("The pod",
		flags.New("inbound-port", "15006", &v.inbound,
			"The proxy's port for what the pod receives."),
		flags.New("call", "", &v.calls, "Calls that have to arrive there, as FROM>TO:PORT with",
			"commas between. Empty is 127.0.0.1>127.0.0.6 and ::1>::6, at a port that nobody has."),
	)}
}

// everySetting is what variables of the environment may stand for.
func everySetting() []flags.Group {
	var s settings
	all := append(s.serveGroups(), s.certifyGroups()...)
	all = append(all, s.withdrawGroups()...)
	return append(all, s.validateGroups()...)
}

func (s *settings) sourceFlags() flags.Group {
	from := &s.source
	return flags.In("The configuration of injection",
		flags.New("config-map", "", &from.configMap, "ConfigMap with the keys config and values,",
			"and mesh unless --mesh-config-map says otherwise, as NAMESPACE/NAME."),
		flags.New("mesh-config-map", "", &from.meshConfigMap, "ConfigMap with the key mesh, as",
			"NAMESPACE/NAME."),
		flags.New("config-file", "", &from.config, "File in place of the key config."),
		flags.New("mesh-file", "", &from.mesh, "File in place of the key mesh."),
		flags.New("values-file", "", &from.values, "File in place of the key values."),
	)
}

func (s *settings) servingFlags() flags.Group {
	to := &s.serving
	return flags.In("The webhooks",
		flags.New("listen", ":9443", &to.listen, "Address of /inject and /strip, over TLS."),
		flags.New("status-listen", ":9467", &to.status,
			"Address of /readyz, /healthz, /metrics and /loglevel, over HTTP."),
		s.secretFlag(),
		flags.New("dns-names", "", &to.names, "Names of the Service, for which certificates are",
			"made in memory by the authority. One in files that lacks a name is refused."),
		flags.New("tls-cert-file", "", &to.cert, "Certificate in place of those made in memory.",
			"It is read again when it changes."),
		flags.New("tls-key-file", "", &to.key, "Its key."),
		flags.New("drain", "20s", &to.drain, "How long requests are still answered after SIGTERM:",
			"API servers learn late that a replica goes."),
	)
}

func (s *settings) guardFlags() flags.Group {
	g := &s.guard
	return flags.In("The guard",
		flags.New("guard", guardValidation, &g.mode, "What holds up a pod that is not redirected:",
			"an init container that is put into each, or nothing, where the node's guard does.").
			OneOf(guardValidation, guardNone),
		flags.New("validation-image", "", &g.image, "Image of the init container: this program's."),
		flags.New("validation-pull-policy", "IfNotPresent", &g.pullPolicy,
			"Whether it is pulled.").OneOf("Always", "IfNotPresent", "Never"),
	)
}

func (s *settings) podFlags() flags.Group {
	return flags.In("The pod that Events are about",
		flags.New("pod-namespace", "", &s.pod.namespace, "Namespace of this program's pod."),
		flags.New("pod-name", "", &s.pod.name, "Its name. Without it no Events are written."),
		flags.New("pod-uid", "", &s.pod.uid, "Its uid."),
	)
}

func (s *settings) processFlags() flags.Group {
	return flags.In("The process",
		flags.New("kubeconfig", "", &s.api.Kubeconfig,
			"How to reach the API server. Empty is the pod's ServiceAccount."),
		flags.New("log-level", "info", &s.logLevel, "What is logged.").OneOf(loglevel.Words...),
	)
}

func (s *settings) secretFlag() flags.Setting {
	return flags.New("ca-secret", "", &s.serving.secret,
		"Secret of the authority, as NAMESPACE/NAME.")
}

func (s *settings) configurationsFlag() flags.Setting {
	return flags.New("webhook-configurations", "", &s.job.configurations,
		"Names of MutatingWebhookConfigurations, with commas between.")
}

func (s *settings) timeoutFlag() flags.Setting {
	return flags.New("timeout", "2m", &s.job.timeout, "How long all of it may take.")
}

// name reads NAMESPACE/NAME.
func name(flag, text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("--%s: %q: want NAMESPACE/NAME", flag, text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// names returns the webhook configurations that a Job is about. With none it would end well, and
// have done nothing.
func (j jobSettings) names() ([]string, error) {
	if len(j.configurations) == 0 {
		return nil, errors.New("--webhook-configurations: want the names of " +
			"MutatingWebhookConfigurations, such as sidecar-cni-inject")
	}
	return j.configurations, nil
}

// options are for package validate.
func (v validationSettings) options(out io.Writer) (validate.Options, error) {
	port, err := strconv.ParseUint(v.inbound, 10, 16)
	if err != nil || port == 0 {
		return validate.Options{}, fmt.Errorf("--inbound-port: %q: want a port from 1 to 65535",
			v.inbound)
	}
	calls, err := validate.ParseCalls(v.calls)
	if err != nil {
		return validate.Options{}, fmt.Errorf("--call: %w", err)
	}
	return validate.Options{Inbound: uint16(port), Calls: calls, Out: out}, nil
}
