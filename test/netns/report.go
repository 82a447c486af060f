package netns

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// A Report is what a listener knows about a call. It is the whole answer to that call.
type Report struct {
	Who      string         // the listener's name
	Port     uint16         // the port it listens on
	Original netip.AddrPort // conntrack's original destination; TCP only
	Local    netip.AddrPort // the address that was called, as the listener's socket sees it
	Remote   netip.AddrPort // the caller's address, as the listener's socket sees it
}

func (r Report) String() string {
	return fmt.Sprintf("%s on port %d (original %v, local %v, remote %v)", r.Who, r.Port,
		r.Original, r.Local, r.Remote)
}

func (r Report) line() []byte {
	line, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings, numbers and addresses
	}
	return append(line, '\n')
}
