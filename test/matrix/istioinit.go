package matrix

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables/istioinit"
)

// IstioInit returns the command line that the injector's template gives to istio-init for a pod,
// and the variables of its container. The proxy's user, and the ports that the pod does not name,
// come from the request's configuration, which the injector has as mesh-wide values.
func IstioInit(r Request) (args []string, env map[string]string) {
	says := func(key, otherwise string) string {
		if value, ok := r.Pod.Annotations[key]; ok {
			return value
		}
		return otherwise
	}
	flag := func(name, value string) { args = append(args, "-"+name, value) }
	number := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	ports := r.Config.Ports
	flag("p", says("sidecar-cni.io/outboundPort", number(uint32(ports.Outbound))))
	flag("z", says("sidecar-cni.io/inboundPort", number(uint32(ports.Inbound))))
	flag("e", number(uint32(ports.Tunnel)))
	uids, gids := proxyIDs(r)
	flag("u", strings.Join(uids, ","))
	if !slices.Equal(uids, gids) {
		flag("g", strings.Join(gids, ","))
	}
	flag("m", says("sidecar.istio.io/interceptionMode", "REDIRECT"))
	flag("i", says(Traffic+"includeOutboundIPRanges", "*"))
	flag("x", says(Traffic+"excludeOutboundIPRanges", ""))
	flag("b", says(Traffic+"includeInboundPorts", "*"))
	open := []string{"15090", "15021"}
	for _, port := range []string{says("status.sidecar.istio.io/port", "15020"),
		says(Traffic+"excludeInboundPorts", "")} {
		if port != "" && port != "0" {
			open = append(open, port)
		}
	}
	flag("d", strings.Join(open, ","))
	for name, key := range map[string]string{
		"q": Traffic + "includeOutboundPorts", "o": Traffic + "excludeOutboundPorts",
		"c": Traffic + "excludeInterfaces", "k": "istio.io/reroute-virtual-interfaces",
	} {
		if value := says(key, ""); value != "" {
			flag(name, value)
		}
	}
	flag("t", number(r.Config.Marks.TProxy))
	flag("r", number(r.Config.Marks.Table))
	return args, Proxy(&r).Env
}

// proxyIDs are the proxy's uid and gid: the injector looks at runAsUser, and takes no other group.
func proxyIDs(r Request) (uids, gids []string) {
	list := func(ids []uint32) (words []string) {
		for _, id := range ids {
			words = append(words, strconv.FormatUint(uint64(id), 10))
		}
		return words
	}
	if user := Proxy(&r).RunAsUser; user != nil && *user != 0 {
		id := []string{strconv.FormatInt(*user, 10)}
		return id, id
	}
	return list(r.Config.Proxy.UIDs), list(r.Config.Proxy.GIDs)
}

// SecondPen returns what istio-init writes for a request, and what it and we were asked for.
func SecondPen(r Request, ipv6 bool) (istioinit.Listing, compare.Pod, error) {
	args, env := IstioInit(r)
	servers := r.Pod.Nameservers
	if len(servers) == 0 { // only the runtime does not know them
		servers = Nameservers
	}
	written, err := istioinit.Write(args, env, istioinit.Pod{IPv6: ipv6, Nameservers: servers})
	if err != nil {
		return istioinit.Listing{}, compare.Pod{}, err
	}
	d, err := redirect.Decide(r.Pod, r.Config)
	if err != nil || d.Skip != "" || d.AskMore {
		return istioinit.Listing{}, compare.Pod{}, fmt.Errorf("not ours: %q, %w", d.Skip, err)
	}
	pod := compare.Pod{Policy: d.Policy, IPv6: ipv6, GIDs: r.Config.Proxy.GIDs}
	for _, s := range servers {
		if env["CAPTURE_ALL_DNS"] != "true" {
			pod.DNS = append(pod.DNS, netip.PrefixFrom(s, s.BitLen()))
		}
	}
	for item := range strings.SplitSeq(args[slices.Index(args, "-d")+1], ",") {
		port, err := strconv.ParseUint(strings.TrimSpace(item), 10, 16)
		if err != nil {
			return istioinit.Listing{}, compare.Pod{}, fmt.Errorf("read -d: %w", err)
		}
		pod.Open = append(pod.Open, uint16(port))
	}
	if user := Proxy(&r).RunAsUser; user != nil && *user != 0 {
		pod.GIDs = []uint32{uint32(*user)}
	}
	for _, key := range []string{"includeOutboundIPRanges", "excludeOutboundIPRanges"} {
		for cidr := range strings.SplitSeq(r.Pod.Annotations[Traffic+key], ",") {
			if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Addr().Is4In6() {
				pod.Mapped = append(pod.Mapped, prefix)
			}
		}
	}
	return written, pod, nil
}

// OursAlone reports whether a request needs what istio-init has no words for.
func OursAlone(r Request) bool {
	usual := redirect.Defaults()
	return r.Config.Ports.DNS != usual.Ports.DNS || r.Config.Marks.SelfCall != usual.Marks.SelfCall
}
