package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/manifest"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

const injectAbout = `Puts the proxy into the pods of a manifest, without istio-init: what the template says by it becomes
annotations, which the plugin obeys. The rest of the manifest stays byte for byte. The template, the
mesh's configuration and the values are those of the cluster's ConfigMaps, or of files, each with
the data or the whole ConfigMap.

Injecting twice is injecting once; with another configuration it is as if from the original.`

// sources are the flags about what injection is configured by.
type sources struct {
	injectFile, meshFile, valuesFile string
	systemNamespace                  string // of the ConfigMaps
	injectMap, meshMap               string
	namespace                        string // of workloads that name none
	kubeconfig, context              string
	validated                        validated
	cluster                          *target.Cluster // nil: not asked yet
}

func (e env) injectCommand() *cobra.Command {
	var s sources
	c := &cobra.Command{Use: "inject", Aliases: []string{"kube-inject"},
		Short: "put the proxy into the pods of a manifest", Long: injectAbout}
	s.addTo(c.Flags())
	return e.rewriteCommand(c, func(ctx context.Context, name string, data []byte) (
		manifest.Output, []string, error) {
		cfg, err := s.load(ctx)
		if err != nil {
			return manifest.Output{}, nil, err
		}
		for _, warning := range cfg.Warnings {
			e.warn(warning)
		}
		var notes []string
		out, err := manifest.Rewrite(name, data, "inject", func(w manifest.Workload) (
			podtree.Object, error) {
			pod, note, err := e.injectInto(cfg, &s, w)
			notes = append(notes, note)
			return pod, err
		})
		for _, object := range out.Others {
			out.Warnings = append(out.Warnings, adviseService(object)...)
		}
		return out, notes, err
	})
}

func (s *sources) addTo(f *pflag.FlagSet) {
	f.StringVar(&s.injectFile, "injectConfigFile", "",
		"template and policy: key config of the ConfigMap istio-sidecar-injector, or all of it")
	f.StringVar(&s.meshFile, "meshConfigFile", "",
		"the mesh's configuration: key mesh of the ConfigMap istio, or all of it; an empty file "+
			"is the defaults")
	f.StringVar(&s.valuesFile, "valuesFile", "",
		"the values: key values of the ConfigMap istio-sidecar-injector, or all of it; default: "+
			"those of the ConfigMap that has the template, none if a file has the template alone")
	f.StringVarP(&s.systemNamespace, "istioNamespace", "i", "istio-system",
		"namespace of the ConfigMaps")
	f.StringVar(&s.injectMap, "injectConfigMapName", "istio-sidecar-injector",
		"ConfigMap with template, policy and values")
	f.StringVar(&s.meshMap, "meshConfigMapName", "istio", "ConfigMap with the mesh's configuration")
	f.StringVarP(&s.namespace, "namespace", "n", "", "namespace of workloads that name none")
	s.validated.addTo(f)
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "how the API server is reached, as for kubectl")
	f.StringVar(&s.context, "context", "", "context of the kubeconfig")
}

// load reads the configuration: each document from its file, else from the cluster.
func (s *sources) load(ctx context.Context) (*config.Config, error) {
	var docs config.Sources
	var err error
	if docs.Injector, err = s.document(ctx, s.injectFile, s.injectMap); err != nil {
		return nil, orGive("--injectConfigFile", s.injectFile, err)
	}
	if docs.Mesh, err = s.document(ctx, s.meshFile, s.meshMap); err != nil {
		return nil, orGive("--meshConfigFile", s.meshFile, err)
	}
	if s.valuesFile != "" {
		if docs.Values, err = s.document(ctx, s.valuesFile, ""); err != nil {
			return nil, err
		}
	}
	if s.namespace == "" {
		s.namespace = metav1.NamespaceDefault
		if s.cluster != nil {
			s.namespace = s.cluster.DefaultNamespace
		}
	}
	return config.Load(docs)
}

// orGive adds the flag by which a file can stand in for a ConfigMap that could not be read.
func orGive(flag, file string, err error) error {
	if file != "" {
		return err
	}
	return fmt.Errorf("%w; or give %s", err, flag)
}

func (s *sources) document(ctx context.Context, file, configMap string) (config.Source, error) {
	if file != "" {
		data, err := readFile(file)
		if err != nil {
			return config.Source{}, fmt.Errorf("read %q: %w", file, err)
		}
		return config.Source{Name: file, Data: data}, nil
	}
	if s.cluster == nil {
		cluster, err := target.Connect(s.kubeconfig, s.context)
		if err != nil {
			return config.Source{}, err
		}
		s.cluster = &cluster
	}
	data, err := target.ConfigMap(ctx, s.cluster.Client, s.systemNamespace, configMap)
	return config.Source{Name: "ConfigMap " + s.systemNamespace + "/" + configMap, Data: data}, err
}

// injectInto returns a workload's pod with the proxy, nil if it stays as it is, and what became
// of it.
func (e env) injectInto(cfg *config.Config, s *sources, w manifest.Workload) (
	pod podtree.Object, note string, err error) {
	meta := metav1.ObjectMeta{Name: podtree.String(w.Metadata, "name"),
		Namespace: podtree.String(w.Metadata, "namespace")}
	if meta.Namespace == "" {
		meta.Namespace = s.namespace
	}
	result, err := inject.Inject(cfg, inject.Request{Pod: w.Pod, Namespace: meta.Namespace,
		Type:     metav1.TypeMeta{APIVersion: w.APIVersion, Kind: w.Kind},
		Workload: meta, Validation: s.validated.container()})
	if err != nil {
		return nil, "", err
	}
	for _, warning := range result.Warnings {
		e.warn(w.Where + ": " + warning)
	}
	if result.Decision.Inject && !named(w) {
		e.warn(w.Where + ": its pods have no label app, by which traces and metrics name them; " +
			"give it one with a value that says what they are")
	}
	if !result.Decision.Inject {
		return nil, fmt.Sprintf("left %s as it is: %s", w.Where, result.Decision.Reason), nil
	}
	return result.Pod, fmt.Sprintf("injected %s: %s", w.Where, result.Decision.Reason), nil
}
