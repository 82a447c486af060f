package kernel

import (
	"maps"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// FuzzAcceptedPoliciesAreTaken asks the kernel to take whatever Decide accepts, in every dialect.
func FuzzAcceptedPoliciesAreTaken(f *testing.F) {
	netns.RequireRoot(f)
	for _, r := range append(matrix.Alone(), matrix.Pairs()[:40]...) {
		a, env := r.Pod.Annotations, matrix.Proxy(&r).Env
		f.Add(a["sidecar.istio.io/interceptionMode"] == "TPROXY",
			a[matrix.Traffic+"includeOutboundIPRanges"], a[matrix.Traffic+"excludeOutboundIPRanges"],
			a[matrix.Traffic+"includeInboundPorts"], a[matrix.Traffic+"excludeOutboundPorts"],
			a[matrix.Traffic+"excludeInterfaces"],
			a["sidecar-cni.io/excludeOutboundUIDs"], env["ISTIO_OUTBOUND_OWNER_GROUPS"],
			env["ISTIO_META_DNS_CAPTURE"])
	}
	f.Add(true, "0.0.0.0/1,128.0.0.0/1,::/0", "255.255.255.255/32,::ffff:1.2.3.4/120,ffff::/16",
		"0,65535", "65535,1,1", "a+,.a,@", "0-1336,1338-4294967294", "0,4294967294", "yes")
	all := dialects(f)
	f.Fuzz(func(t *testing.T, tproxy bool, include, exclude, inbound, outbound, interfaces, uids,
		groups, dns string) {
		r := matrix.Plain()
		if tproxy {
			matrix.Options[0].Set(&r)
		}
		maps.Copy(r.Pod.Annotations, map[string]string{
			matrix.Traffic + "includeOutboundIPRanges": include,
			matrix.Traffic + "excludeOutboundIPRanges": exclude,
			matrix.Traffic + "includeInboundPorts":     inbound,
			matrix.Traffic + "excludeOutboundPorts":    outbound,
			matrix.Traffic + "excludeInterfaces":       interfaces,
			"sidecar-cni.io/excludeOutboundUIDs":       uids,
		})
		matrix.Proxy(&r).Env["ISTIO_OUTBOUND_OWNER_GROUPS"], matrix.Proxy(&r).
			Env["ISTIO_META_DNS_CAPTURE"] = groups, dns
		d, err := redirect.Decide(r.Pod, r.Config)
		if err != nil || d.Skip != "" {
			return
		}
		rs := redirect.Compile(d.Policy)
		for _, d := range all {
			ns := netns.New(t)
			apply(t, d, ns, rs)
			wantSilence(t, d, ns, rs)
		}
	})
}
