// Package watch shows the connections of a pod as they begin and end, as the kernel's connection
// tracking reports them.
//
//	w, err := watch.Open(options) // in the pod's network namespace
//	defer w.Close()
//	out := watch.NewWriter(os.Stdout, view.Text)
//	err = w.Run(ctx, out.Write)
//
// Where the events come from another node as lines of JSON, Decode reads them.
//
// Be aware:
//   - The kernel does not know which connection the proxy opens for which that it took: it
//     balances and reuses them. The two are shown as what they are, and nothing joins them.
//   - A connection whose socket was gone when its event was read is "pod" or, if the rules say
//     so, "app". One of a pod with a user namespace of its own is, too: its uids are other numbers.
//   - A TCP connection ends when both sides have said so, or one has reset it. The end of an
//     exchange of UDP is that it was idle for long.
//   - The times are those at which the events were read.
package watch

import (
	"net/netip"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Options say what is watched.
type Options struct {
	// The policy that the pod's rules were compiled from: the proxy's ports, its users, and how
	// inbound traffic reaches it.
	Policy redirect.Policy

	Existing bool              // begin with the connections that there are
	Protocol redirect.Protocol // TCP or UDP; AnyProtocol: both
	Port     uint16            // that a connection is meant for, or went to; 0: any
	Count    int               // ends after so many events of connections; 0: never
}

// Kind is what an event is about.
type Kind string

// The kinds of events.
const (
	Began    Kind = "began"    // a connection
	Existing Kind = "existing" // a connection that there was already
	Ended    Kind = "ended"    // one of those above
	Lost     Kind = "lost"     // events, since they came faster than they were read
	Note     Kind = "note"     // what whoever reads the others has to know
	Done     Kind = "done"     // the last of all
)

// Event is what is reported.
type Event struct {
	Time       time.Time   `json:"time"`                 // when it was read
	Kind       Kind        `json:"event"`                // what it is about: began, existing, ended, lost, note or done
	Connection *Connection `json:"connection,omitempty"` // of began, existing and ended
	Lost       uint64      `json:"lost,omitempty"`       // of lost: how many
	Text       string      `json:"text,omitempty"`       // of note
	Summary    *Summary    `json:"summary,omitempty"`    // of done
}

// Summary is what was seen in all.
type Summary struct {
	Began uint64 `json:"began"` // connections that began
	Ended uint64 `json:"ended"` // connections that ended
	Lost  uint64 `json:"lost"`  // events
	// Connections that were let go, because more were open than are remembered: their ends are not
	// reported.
	Forgotten uint64 `json:"forgotten,omitempty"`
}

// Who takes part in a connection.
type Who string

// Those who do.
const (
	App   Who = "app"   // of the pod, and not the proxy
	Proxy Who = "proxy" // has one of the proxy's uids
	Peer  Who = "peer"  // not of this pod
	Pod   Who = "pod"   // of the pod; nothing says which of the two above
)

// Party is one side of a connection.
type Party struct {
	Who Who     `json:"who"`           // app, proxy, peer or pod
	UID *uint32 `json:"uid,omitempty"` // of the socket's owner, unless it is gone or elsewhere
}

// Connection is one of TCP, or an exchange of UDP.
type Connection struct {
	ID       uint64         `json:"id"`             // the number of its beginning; the end has the same
	Protocol string         `json:"protocol"`       // TCP or UDP
	From     Party          `json:"from"`           // who opened it
	Source   netip.AddrPort `json:"source"`         // from where
	To       netip.AddrPort `json:"to"`             // as the sender wrote it
	WentTo   netip.AddrPort `json:"wentTo"`         // what the rules have made of it
	Zone     uint16         `json:"zone,omitempty"` // of connection tracking

	// The proxy's listener that it was redirected to: outbound, inbound or DNS. Left out if it
	// was not, or if that is not known yet: with TPROXY the address stays as it is.
	Listener string `json:"listener,omitempty"`
	// Nobody redirected it. If it is false, and there is no listener, that is not known yet.
	Direct bool `json:"direct,omitempty"`

	// Of ended: who received it. Left out if it is not of this pod, or was gone too early.
	Receiver *Party `json:"receiver,omitempty"`
	// Of ended: closed, reset, refused, no answer, idle, "refused or no answer".
	Outcome      string `json:"outcome,omitempty"`
	Milliseconds int64  `json:"milliseconds,omitempty"` // of TCP, unless it was there before
	Sent         *Count `json:"sent,omitempty"`         // of ended, if the namespace counts it
	Received     *Count `json:"received,omitempty"`     // the same, the other way
}

// The outcomes of a connection.
const (
	Closed   = "closed"
	Reset    = "reset"
	Refused  = "refused" // reset before it was open
	NoAnswer = "no answer"
	Idle     = "idle" // for so long that connection tracking forgot it

	// One of the two above: older kernels do not say which.
	NotOpened = "refused or no answer"
)

// Count is what was sent in one direction.
type Count struct {
	Packets uint64 `json:"packets"` // how many
	Bytes   uint64 `json:"bytes"`   // in them, headers included
}
