//go:build linux

package nftables

import (
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// socket is a connection to nftables in the namespace of the calling thread.
type socket struct{ *wire.Socket }

// message is one request: kind is one of unix.NFT_MSG_*.
type message struct {
	kind  uint16
	flags uint16
	attrs []netlink.Attribute
	about place
}

// The headers of netfilter's messages: those that begin and end a transaction name the subsystem,
// the others the family.
var (
	batchHeader = []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	tableHeader = []byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}
)

func dial() (socket, error) {
	s, err := wire.Dial(unix.NETLINK_NETFILTER)
	return socket{s}, err
}

// transact sends messages that take effect together or not at all.
func (s socket) transact(messages []message) error {
	batch := []wire.Message{{Type: unix.NFNL_MSG_BATCH_BEGIN, Header: batchHeader}}
	for _, m := range messages {
		batch = append(batch, wire.Message{Type: wire.NFTables | m.kind, Flags: m.flags,
			Header: tableHeader, Attrs: m.attrs})
	}
	last := len(batch) - 1
	batch[last].Flags |= unix.NLM_F_ACK // errors come for every message, success is said once
	batch = append(batch, wire.Message{Type: unix.NFNL_MSG_BATCH_END, Header: batchHeader})
	answers, err := s.Exchange(batch)
	if err != nil {
		return err
	}
	for i, a := range answers {
		if a.Err == nil {
			continue
		}
		var about place
		if i > 0 && i <= last { // else it is about the transaction
			about = messages[i-1].about
		}
		return &refusedError{about, a.Err}
	}
	if !answers[last].Heard {
		return errors.New("the kernel did not confirm the transaction")
	}
	return nil
}

// dump calls f with the attributes of every object of a kind.
func (s socket) dump(kind uint16, filter []netlink.Attribute,
	f func([]netlink.Attribute) error) error {
	objects, err := s.Dump(wire.Message{Type: wire.NFTables | kind, Header: tableHeader,
		Attrs: filter})
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := f(o.Attrs); err != nil {
			return err
		}
	}
	return nil
}
