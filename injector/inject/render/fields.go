package render

// Field is what a template can name.
type Field struct {
	Name  string // with a dot in front, as templates write it
	About string // one sentence
}

// Fields returns the data of a template, in the order in which the documentation has them.
func Fields() []Field {
	return []Field{
		{".TypeMeta", "Kind and APIVersion of the workload: of a Deployment, or of the pod itself"},
		{".DeploymentMeta", "Name and Namespace of the workload"},
		{".ObjectMeta", "the pod's metadata: Labels, Annotations and more; times are left out"},
		{".Spec", "the pod's specification, as the API has it"},
		{".ProxyConfig", "the configuration of the pod's proxy: the mesh's defaultConfig with " +
			"what the annotation proxy.istio.io/config sets; Concurrency is a number in a " +
			"template with [[ ]]"},
		{".MeshConfig", "the mesh's configuration"},
		{".Values", "the values of Istio's chart, such as .Values.global.hub"},
		{".Revision", "the revision of the control plane"},
		{".NativeSidecars", "whether proxies are init containers that restart always"},
		{".ProxyImage", "the image of istio-proxy, from the values and the pod's annotations"},
		{".ProxyInitImage", "the image of istio-init, from the same"},
		{".ProxyUID", "the user that the proxy runs as"},
		{".ProxyGID", "the group that the proxy runs as"},
		{".InboundTrafficPolicyMode", "localhost or passthrough: where the mesh's proxies send " +
			"what comes in"},
		{".CompliancePolicy", "the policy for cryptography, such as fips-140-2"},
	}
}
