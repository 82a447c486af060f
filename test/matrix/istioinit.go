package matrix

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// IstioInit returns the command line that the injector's template gives to istio-init for a pod,
// and the variables of its container. The proxy's user and the ports come from the request's
// configuration, which the injector has as mesh-wide values.
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
	flag("p", number(uint32(ports.Outbound)))
	flag("z", number(uint32(ports.Inbound)))
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

// OursAlone reports whether a request needs what istio-init has no words for.
func OursAlone(r Request) bool {
	usual := redirect.Defaults()
	return r.Config.Ports.DNS != usual.Ports.DNS || r.Config.Marks.SelfCall != usual.Marks.SelfCall
}
