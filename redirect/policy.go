package redirect

import "net/netip"

// Policy is what a pod asks for, free of the form in which it asked: typed, checked, and enough to
// compile the rules. ADD records it, so that rules can be verified against what was programmed.
type Policy struct {
	Mode     Mode     `json:"mode"`
	Ports    Listen   `json:"ports"`
	Proxy    Identity `json:"proxy"`
	Inbound  Inbound  `json:"inbound"`
	Outbound Outbound `json:"outbound"`
	Groups   Groups   `json:"groups"`
	DNS      DNS      `json:"dns"`

	ExcludeInterfaces []Interface `json:"excludeInterfaces,omitempty"` // neither direction is captured
	VirtualInterfaces []Interface `json:"virtualInterfaces,omitempty"` // what enters here is somebody's outbound traffic

	Loopback    netip.Prefix `json:"loopback"`    // the IPv4 destinations that never leave the pod
	Passthrough []netip.Addr `json:"passthrough"` // one a family: the source from which the proxy calls the app
	DropInvalid bool         `json:"dropInvalid,omitempty"`
	Marks       Marks        `json:"marks"`
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
	Outbound uint16 `json:"outbound"`
	Inbound  uint16 `json:"inbound"`
	Tunnel   uint16 `json:"tunnel"`
	DNS      uint16 `json:"dns"`
}

// Identity tells the proxy's own traffic from that of the app.
type Identity struct {
	UIDs []uint32 `json:"uids"`
	GIDs []uint32 `json:"gids"`
}

// Inbound says which ports are captured of what enters the pod.
type Inbound struct {
	All          bool     `json:"all,omitempty"`
	Ports        []uint16 `json:"ports,omitempty"`        // counts without All
	ExcludePorts []uint16 `json:"excludePorts,omitempty"` // counts with All
}

// Outbound says what is captured of the traffic that the pod sends.
type Outbound struct {
	All          bool           `json:"all,omitempty"`
	CIDRs        []netip.Prefix `json:"cidrs,omitempty"` // counts without All
	ExcludeCIDRs []netip.Prefix `json:"excludeCIDRs,omitempty"`
	Ports        []uint16       `json:"ports,omitempty"` // captured whatever the address
	ExcludePorts []uint16       `json:"excludePorts,omitempty"`
	ExcludeUIDs  IDs            `json:"excludeUIDs,omitempty"`
	Loopback     bool           `json:"loopback,omitempty"` // an included CIDR is on loopback: capture there too
}

// Groups says whose traffic is captured, by the group of the sending process.
type Groups struct {
	All     bool     `json:"all,omitempty"`
	Include []uint32 `json:"include,omitempty"` // counts without All
	Exclude []uint32 `json:"exclude,omitempty"` // counts with All
}

// DNS says which name service traffic goes to the proxy's resolver.
type DNS struct {
	Capture    bool         `json:"capture,omitempty"`
	Everywhere bool         `json:"everywhere,omitempty"` // all of port 53, not only the servers
	Servers    []netip.Addr `json:"servers,omitempty"`
}

// Marks holds the numbers that TPROXY leaves on packets and in the routing policy.
type Marks struct {
	TProxy   uint32 `json:"tproxy"`
	SelfCall uint32 `json:"selfCall"`
	Table    uint32 `json:"table"`
}
