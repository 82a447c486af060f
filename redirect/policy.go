package redirect

import "net/netip"

// Policy is what a pod asks for, free of the form in which it asked: typed, checked, and enough to
// compile the rules. ADD records it, so that rules can be verified against what was programmed.
type Policy struct {
	Mode     Mode     `json:"mode"`     // ModeRedirect or ModeTProxy
	Ports    Listen   `json:"ports"`    // on which the proxy listens
	Proxy    Identity `json:"proxy"`    // whose own traffic is not captured
	Inbound  Inbound  `json:"inbound"`  // what is captured of the traffic that enters the pod
	Outbound Outbound `json:"outbound"` // what is captured of the traffic that the pod sends
	Groups   Groups   `json:"groups"`   // whose outbound traffic is captured
	DNS      DNS      `json:"dns"`      // which queries go to the proxy's resolver

	// On these neither direction is captured.
	ExcludeInterfaces []Interface `json:"excludeInterfaces,omitempty"`
	// What enters on these is treated as the pod's outbound traffic.
	VirtualInterfaces []Interface `json:"virtualInterfaces,omitempty"`

	// The IPv4 destinations that never leave the pod.
	Loopback netip.Prefix `json:"loopback"`

	// The source addresses from which the proxy calls the app, one for each family.
	Passthrough []netip.Addr `json:"passthrough"`

	// Drops inbound packets that connection tracking calls invalid.
	DropInvalid bool  `json:"dropInvalid,omitempty"`
	Marks       Marks `json:"marks"` // used with ModeTProxy only
}

// Mode says how inbound traffic reaches the proxy.
type Mode string

// The modes. ModeNone belongs to a pod that is not ours.
const (
	ModeRedirect Mode = "REDIRECT" // its destination is rewritten
	ModeTProxy   Mode = "TPROXY"   // it is handed over as it is, client's address and all
	ModeNone     Mode = "NONE"
)

// Listen holds the ports on which the proxy listens.
type Listen struct {
	Outbound uint16 `json:"outbound"` // for TCP that the pod sends
	Inbound  uint16 `json:"inbound"`  // for TCP that enters the pod; transparent with ModeTProxy
	Tunnel   uint16 `json:"tunnel"`   // for peers that address the proxy itself; never captured
	DNS      uint16 `json:"dns"`      // for TCP and UDP; not 53
}

// Identity tells the proxy's own traffic from that of the app.
type Identity struct {
	// What a process with one of either sends is the proxy's. With 0 that would be all that root
	// sends: Config.Validate refuses it.
	UIDs []uint32 `json:"uids"`
	GIDs []uint32 `json:"gids"`
}

// Inbound says which ports are captured of what enters the pod.
type Inbound struct {
	All          bool     `json:"all,omitempty"`          // every port but ExcludePorts is captured
	Ports        []uint16 `json:"ports,omitempty"`        // counts without All
	ExcludePorts []uint16 `json:"excludePorts,omitempty"` // counts with All
}

// Outbound says what is captured of the traffic that the pod sends.
type Outbound struct {
	All          bool           `json:"all,omitempty"`          // every destination not excluded
	CIDRs        []netip.Prefix `json:"cidrs,omitempty"`        // counts without All
	ExcludeCIDRs []netip.Prefix `json:"excludeCIDRs,omitempty"` // never captured, except for DNS
	Ports        []uint16       `json:"ports,omitempty"`        // beside CIDRs, unless excluded
	ExcludePorts []uint16       `json:"excludePorts,omitempty"` // never captured, TCP and UDP
	ExcludeUIDs  IDs            `json:"excludeUIDs,omitempty"`  // users, none of them the proxy's

	// An included CIDR is on loopback: traffic there is captured too.
	Loopback bool `json:"loopback,omitempty"`
}

// Groups says whose traffic is captured, by the group of the sending process.
type Groups struct {
	All     bool     `json:"all,omitempty"`     // every group but those in Exclude
	Include []uint32 `json:"include,omitempty"` // counts without All
	Exclude []uint32 `json:"exclude,omitempty"` // counts with All
}

// DNS says which name service traffic goes to the proxy's resolver.
type DNS struct {
	Capture    bool         `json:"capture,omitempty"`    // false: the other fields are ignored
	Everywhere bool         `json:"everywhere,omitempty"` // all of port 53, not only the servers
	Servers    []netip.Addr `json:"servers,omitempty"`    // of the pod; unused with Everywhere
}

// Marks holds the numbers that TPROXY leaves on packets and in the routing policy.
type Marks struct {
	TProxy   uint32 `json:"tproxy"`   // of packets that are routed to the proxy
	SelfCall uint32 `json:"selfCall"` // of packets by which the pod calls itself through the proxy
	Table    uint32 `json:"table"`    // the routing table for packets with the mark TProxy
}
