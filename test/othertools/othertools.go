// Package othertools has rules that other tools write into a pod's namespace.
//
//	pod.Run(t, othertools.IstioInit, "iptables-nft-restore")
package othertools

import "strings"

// IstioInit is what istio-init's container writes, shortened, as input of iptables-restore.
const IstioInit = `*nat
:ISTIO_INBOUND - [0:0]
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
`

// IstioNFT is how its nftables dialect calls the same.
const IstioNFT = `table inet istio-proxy-nat {
	chain istio-redirect { meta l4proto tcp redirect to :15001; }
	chain output { type nat hook output priority -100; jump istio-redirect; }
}`

// Docker is what a Docker inside a pod writes, which publishes a port of a container that has
// one of the proxy's.
const Docker = `*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:15001
COMMIT
`

// Docker6 is the same of IPv6.
var Docker6 = strings.NewReplacer(
	"127.0.0.0/8", "::1/128", "172.17.0.0/16", "fd00:17::/64", "172.17.0.2:15001",
	"[fd00:17::2]:15001",
).Replace(Docker)
