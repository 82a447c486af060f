package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/daemon/events"
	"github.com/sidecar-cni/sidecar-cni/daemon/loglevel"
	"github.com/sidecar-cni/sidecar-cni/daemon/program"
	"github.com/sidecar-cni/sidecar-cni/injector/certificate"
	"github.com/sidecar-cni/sidecar-cni/injector/configuration"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
	"github.com/sidecar-cni/sidecar-cni/injector/review"
	"github.com/sidecar-cni/sidecar-cni/injector/server"
)

// The reason of Events of the injector. What is above it stands in docs/signals.md.
const (
	// on the injector's pod: its configuration could not be loaded; the last good one is in force
	configurationRefused = "SidecarConfigurationRefused"
)

// gcPercent lets garbage grow to three times of what is in use. A replica has little in use: at the
// usual 100 it collects many times a second, and answers wait for it. The 99th percentile was 55 ms
// and is 4. The memory limit holds all the same.
const gcPercent = 300

// serve answers the API server until ctx ends.
func (s *settings) serve(ctx context.Context, stderr io.Writer) error {
	debug.SetGCPercent(gcPercent)
	log, level := loglevel.New(s.logLevel, stderr)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	client, err := s.client()
	if err != nil {
		return err
	}
	reported, report, err := s.events(client, registry, log)
	if err != nil {
		return err
	}
	configured, err := s.configuration(client, report, registry, log)
	if err != nil {
		return err
	}
	certified, err := s.certificate(client, registry, log)
	if err != nil {
		return err
	}
	validated, err := s.guard.container()
	if err != nil {
		return err
	}
	reviewer := review.New(review.Options{Config: configured.Current, Validation: validated,
		Metrics: registry, Log: log})
	options := server.Options{
		Paths: map[string]http.Handler{
			"/inject": reviewer.Inject(), "/strip": reviewer.Strip(),
		},
		Certificate: certified.Get, Ready: ready(configured, certified),
		Metrics: registry, Level: level, Drain: s.serving.drain,
	}
	if err := listen(ctx, s.serving, &options); err != nil {
		return err
	}
	log.Info("started injector", zap.String("version", program.Version()),
		zap.String("guard", s.guard.mode))
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { reported(ctx); return nil })
	all.Go(func() error { return configured.Run(ctx) })
	all.Go(func() error { return certified.Run(ctx) })
	all.Go(func() error { return server.Run(ctx, options, log) })
	err = all.Wait()
	log.Info("stopped injector", zap.Error(err))
	return err
}

func listen(ctx context.Context, s servingSettings, o *server.Options) (err error) {
	var config net.ListenConfig
	if o.Webhooks, err = config.Listen(ctx, "tcp", s.listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if o.Status, err = config.Listen(ctx, "tcp", s.status); err != nil {
		return fmt.Errorf("--status-listen: %w", err)
	}
	return nil
}

// ready says whether the webhooks can answer.
func ready(c *configuration.Configuration, s *certificate.Serving) func() (string, bool) {
	return func() (string, bool) {
		_, err := c.Current()
		if err = errors.Join(err, s.Ready()); err != nil {
			return "not ready: " + err.Error(), false
		}
		return "ready", true
	}
}

// client is the way to the API server; nil if everything is in files.
func (s *settings) client() (*rest.Config, error) {
	if s.source.config != "" && s.serving.cert != "" && s.pod.name == "" {
		return nil, nil
	}
	return s.api.Config()
}

// events returns what writes Events about our pod, and what makes one of a configuration that was
// refused. A program without a pod has none.
func (s *settings) events(client *rest.Config, registry prometheus.Registerer, log *zap.Logger) (
	run func(context.Context), report func(error), err error) {
	if s.pod.name == "" {
		return func(context.Context) {}, func(error) {}, nil
	}
	writer, err := events.NewClient(client)
	if err != nil {
		return nil, nil, err
	}
	written := events.New(writer, corev1.EventSource{Component: "sidecar-cni-injector"}, registry,
		log)
	pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: s.pod.namespace,
		Name: s.pod.name, UID: types.UID(s.pod.uid)}
	return written.Run, func(err error) {
		if err != nil {
			written.Warn(pod, configurationRefused, err.Error())
		}
	}, nil
}

func (s *settings) configuration(client *rest.Config, report func(error),
	registry prometheus.Registerer, log *zap.Logger) (*configuration.Configuration, error) {
	from := s.source
	o := configuration.Options{Metrics: registry, Log: log, Report: report}
	switch files := from.config + from.mesh + from.values; {
	case files != "" && from.configMap+from.meshConfigMap != "":
		return nil, errors.New("--config-file, --config-map: want files or ConfigMaps, not both")
	case from.config != "":
		o.Files = &configuration.Files{Injector: from.config, Mesh: from.mesh, Values: from.values}
		return configuration.New(o), nil
	case from.configMap == "":
		return nil, errors.New("--config-map: want where the configuration of injection is, as " +
			"NAMESPACE/NAME; or --config-file")
	}
	injector, err := name("config-map", from.configMap)
	if err != nil {
		return nil, err
	}
	mesh := injector
	if from.meshConfigMap != "" {
		if mesh, err = name("mesh-config-map", from.meshConfigMap); err != nil {
			return nil, err
		}
	}
	o.ConfigMaps = &configuration.ConfigMaps{Injector: injector, Mesh: mesh, Client: client}
	return configuration.New(o), nil
}

func (s *settings) certificate(client *rest.Config, registry prometheus.Registerer,
	log *zap.Logger) (*certificate.Serving, error) {
	from := s.serving
	o := certificate.Options{Cert: from.cert, Key: from.key, Names: from.names, Client: client,
		Metrics: registry, Log: log}
	switch files := from.cert + from.key; {
	case files != "" && from.secret != "":
		return nil, errors.New("--tls-cert-file, --ca-secret: want files or a Secret, not both")
	case from.cert != "" && from.key != "":
		return certificate.New(o), nil
	case files != "":
		return nil, errors.New("--tls-cert-file, --tls-key-file: want both")
	case len(from.names) == 0:
		return nil, errors.New("--dns-names: want the names of the Service, for the certificate")
	}
	var err error
	o.Secret, err = name("ca-secret", from.secret)
	return certificate.New(o), err
}

// container is what is put into pods; nil: nothing.
func (g guardSettings) container() (*validation.Container, error) {
	if g.mode == guardNone {
		return nil, nil
	}
	if g.image == "" {
		return nil, errors.New("--validation-image: want the image of this program, which is put " +
			"into pods; or --guard=none")
	}
	return &validation.Container{Image: g.image, PullPolicy: g.pullPolicy}, nil
}
