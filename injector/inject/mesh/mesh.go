// Package mesh reads the mesh's configuration, and has the fields that old templates know and
// today's types have lost.
//
//	m, err := mesh.Parse(data)                           // key mesh of the ConfigMap istio
//	c, err := m.DefaultConfig.With("concurrency: 4")     // annotation proxy.istio.io/config
//	text, err := json.Marshal(c)                         // without the lost fields
//
// Be aware: as in Istio, a key replaces the whole value that was there before, lists and nested
// keys included. Two are merged: the mesh's defaultConfig and the proxy's proxyMetadata. Unlike in
// Istio, defaultProviders, extensionProviders and trustDomainAliases are replaced like the others;
// no template of Istio names them.
package mesh

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/yamltree"
)

const (
	maxMesh       = 3 << 20  // bytes; etcd takes half of that
	maxAnnotation = 64 << 10 // bytes
)

// MeshConfig is the mesh's configuration. Templates name the fields of Istio's type and those of
// this one alike, which is why it is embedded. Read by encoding/json and as a proto.Message, it is
// Istio's.
type MeshConfig struct { //nolint:revive // it stands for Istio's type of that name
	*meshconfig.MeshConfig // the fields that there are today

	// DefaultConfig is that of the proxies, and hides the field of that name.
	DefaultConfig *ProxyConfig

	// What follows is of Istio 1.0, 1.1 and some later ones, and has no effect today but in
	// templates that name it.

	MixerCheckServer                  string               // host:port of Mixer, for policy checks
	MixerReportServer                 string               // host:port of Mixer, for reports
	MixerAddress                      string               // host:port of Mixer, before those two
	DisablePolicyChecks               bool                 // by Mixer
	DisableMixerHttpReports           bool                 //nolint:revive // of Mixer; the name is Istio's
	PolicyCheckFailOpen               bool                 // requests pass if Mixer does not answer
	EnableClientSidePolicyCheck       bool                 // by Mixer
	SidecarToTelemetrySessionAffinity bool                 // to one Mixer
	DisableReportBatch                bool                 // of reports to Mixer
	ReportBatchMaxEntries             uint32               // of reports to Mixer
	ReportBatchMaxTime                *durationpb.Duration // of reports to Mixer
	AuthPolicy                        string               // NONE or MUTUAL_TLS
	RdsRefreshDelay                   *durationpb.Duration // how often proxies ask for routes
	SdsUdsPath                        string               // address of the secret service's socket
	SdsRefreshDelay                   *durationpb.Duration // how often secrets are asked for
	EnableSdsTokenMount               bool                 // of the service account's token
	SdsUseK8SSaJwt                    bool                 // of the service account's token
	TerminationDrainDuration          *durationpb.Duration // today a proxy's own

	// Warnings are about keys that nobody knows, and that have no effect: one sentence each.
	Warnings []string
}

// ProxyConfig is the configuration of a pod's proxy. Templates name the fields of Istio's type and
// those of this one alike, which is why it is embedded. Read by encoding/json and as a
// proto.Message, it is Istio's.
type ProxyConfig struct {
	*meshconfig.ProxyConfig // the fields that there are today

	ConnectTimeout         *durationpb.Duration // of the proxy to what is behind it
	ParentShutdownDuration *durationpb.Duration // of the old process at a restart of Envoy

	// Warnings are about keys that nobody knows, and that have no effect: one sentence each.
	Warnings []string
}

// SeedsProxyConfig is the configuration of a proxy for templates of the seeds' form.
type SeedsProxyConfig struct {
	*ProxyConfig // all other fields

	Concurrency           int32                // 0 where it is not set: one thread per CPU
	DiscoveryRefreshDelay *durationpb.Duration // 1s where it is not set
}

// Parse reads a mesh configuration in YAML or JSON; none is the defaults. All mistakes come at
// once, joined, each beginning with its key. Unknown keys are no mistakes but warnings, since
// Istio's versions have different ones.
func Parse(data []byte) (*MeshConfig, error) {
	tree, err := yamltree.Decode(data, maxMesh)
	if err != nil {
		return nil, err
	}
	m := defaults()
	if err := m.apply(tree); err != nil {
		return nil, err
	}
	m.MeshConfig.DefaultConfig = m.DefaultConfig.ProxyConfig
	return m, nil
}

// With returns the proxy's configuration with what a pod's annotation proxy.istio.io/config sets.
// The receiver does not change. Warnings are those about the annotation.
func (c *ProxyConfig) With(annotation string) (*ProxyConfig, error) {
	tree, err := yamltree.Decode([]byte(annotation), maxAnnotation)
	if err != nil {
		return nil, fmt.Errorf("proxy.istio.io/config: %w", err)
	}
	changed := *c
	changed.ProxyConfig = proto.CloneOf(c.ProxyConfig)
	if err := changed.apply(tree, "proxy.istio.io/config: "); err != nil {
		return nil, err
	}
	return &changed, nil
}

// ServiceCluster is the name of the proxy's cluster. Today's type has it in one of the shapes of
// ClusterName.
func (c *ProxyConfig) ServiceCluster() string { return c.GetServiceCluster() }

// ForSeeds returns the configuration as templates of the seeds' form know it: Concurrency is a
// number there.
func (c *ProxyConfig) ForSeeds() *SeedsProxyConfig {
	delay := c.DiscoveryRefreshDelay //nolint:staticcheck // old templates name it
	if delay == nil {
		delay = durationpb.New(oldRefreshDelay)
	}
	return &SeedsProxyConfig{
		ProxyConfig:           c,
		Concurrency:           c.Concurrency.GetValue(),
		DiscoveryRefreshDelay: delay,
	}
}

// apply sets what a tree has, in the mesh's configuration and in the proxies'.
func (m *MeshConfig) apply(tree map[string]any) error {
	a := applier{message: m.MeshConfig, lost: lostOfMesh(m)}
	own := map[string]any{}
	var mistakes []error
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		field := fieldOf(a.message.ProtoReflect().Descriptor(), key)
		if field == nil || field.Name() != "default_config" || tree[key] == nil {
			own[key] = tree[key]
			continue
		}
		object, ok := tree[key].(map[string]any)
		if !ok {
			mistakes = append(mistakes,
				fmt.Errorf("%s: want keys with values, such as statusPort: 15020", key))
			continue
		}
		mistakes = append(mistakes, m.DefaultConfig.apply(object, key+"."))
	}
	mistakes = append(mistakes, a.apply(own))
	m.Warnings = slices.Concat(a.warnings, m.DefaultConfig.Warnings)
	m.DefaultConfig.Warnings = nil
	return errors.Join(mistakes...)
}

// apply sets what a tree has. The path is put in front of the keys in messages.
func (c *ProxyConfig) apply(tree map[string]any, path string) error {
	before := c.ProxyMetadata
	a := applier{message: c.ProxyConfig, path: path, lost: lostOfProxy(c)}
	err := a.apply(tree)
	c.Warnings = a.warnings
	if before != nil {
		maps.Copy(before, c.ProxyMetadata)
		c.ProxyMetadata = before
	}
	return err
}
