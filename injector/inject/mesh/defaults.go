package mesh

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
)

const oldRefreshDelay = time.Second // of Istio 1.0 and 1.1

// defaults are those of today's Istio. Of what it has lost they are those of 1.1's chart.
func defaults() *MeshConfig {
	everywhere := []string{"*"}
	inner := &meshconfig.MeshConfig{
		ProxyListenPort:        15001,
		ProxyInboundListenPort: 15006,
		ConnectTimeout:         durationpb.New(10 * time.Second),
		EnableTracing:          true,
		IngressService:         "istio-ingressgateway",
		IngressControllerMode:  meshconfig.MeshConfig_STRICT,
		IngressClass:           "istio",
		TrustDomain:            "cluster.local",
		RootNamespace:          "istio-system",
		EnableAutoMtls:         wrapperspb.Bool(true),
		OutboundTrafficPolicy: &meshconfig.MeshConfig_OutboundTrafficPolicy{
			Mode: meshconfig.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY,
		},
		LocalityLbSetting: &networking.LocalityLoadBalancerSetting{
			Enabled: wrapperspb.Bool(true),
		},
		DefaultServiceExportTo:         everywhere,
		DefaultVirtualServiceExportTo:  everywhere,
		DefaultDestinationRuleExportTo: everywhere,
		DnsRefreshRate:                 durationpb.New(time.Minute),
		ProtocolDetectionTimeout:       durationpb.New(0),
	}
	return &MeshConfig{
		MeshConfig:               inner,
		DefaultConfig:            proxyDefaults(),
		AuthPolicy:               "NONE",
		ReportBatchMaxTime:       durationpb.New(time.Second),
		RdsRefreshDelay:          durationpb.New(oldRefreshDelay),
		SdsRefreshDelay:          durationpb.New(15 * time.Second),
		TerminationDrainDuration: durationpb.New(5 * time.Second),
	}
}

func proxyDefaults() *ProxyConfig {
	inner := &meshconfig.ProxyConfig{
		ConfigPath: "./etc/istio/proxy",
		BinaryPath: "/usr/local/bin/envoy",
		ClusterName: &meshconfig.ProxyConfig_ServiceCluster{
			ServiceCluster: "istio-proxy",
		},
		DrainDuration:            durationpb.New(45 * time.Second),
		TerminationDrainDuration: durationpb.New(5 * time.Second),
		ProxyAdminPort:           15000,
		StatNameLength:           189,
		StatusPort:               15020,
		ControlPlaneAuthPolicy:   meshconfig.AuthenticationPolicy_MUTUAL_TLS,
		DiscoveryAddress:         "istiod.istio-system.svc:15012",
		InterceptionMode:         meshconfig.ProxyConfig_REDIRECT,
	}
	return &ProxyConfig{
		ProxyConfig:            inner,
		ConnectTimeout:         durationpb.New(10 * time.Second),
		ParentShutdownDuration: durationpb.New(time.Minute),
	}
}
