package wire_test

import (
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// BenchmarkSocket compares our socket with the library's at what the plugin does in a pod, on a
// thread that is locked to the pod's namespace: open a socket, have one request or transaction
// answered, and close it. Only the ratio of two lines of one run says the same on every machine.
func BenchmarkSocket(b *testing.B) {
	ns := netns.New(b)
	ns.RaiseLoopback(b)
	list := wire.Message{Type: unix.RTM_GETADDR, Flags: unix.NLM_F_DUMP,
		Header: make([]byte, unix.SizeofIfAddrmsg)}
	for work, messages := range map[string][]wire.Message{
		"a request":    {loopbackUp()},
		"ten requests": slices.Repeat([]wire.Message{loopbackUp()}, 10), "a list": {list},
	} {
		for name, do := range map[string]func([]wire.Message) error{"wire": byWire,
			"library": byLibrary} {
			b.Run(work+"/"+name, func(b *testing.B) {
				ns.Do(b, func() {
					for b.Loop() {
						if err := do(messages); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}

func loopbackUp() wire.Message {
	header := make([]byte, unix.SizeofIfInfomsg)
	header[4], header[8], header[12] = 1, unix.IFF_UP, unix.IFF_UP // lo's index, the flag, the mask
	return wire.Message{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_ACK, Header: header}
}

func byWire(messages []wire.Message) error {
	s, err := wire.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer s.Close()
	if messages[0].Flags == unix.NLM_F_DUMP {
		_, err = s.Dump(messages[0])
		return err
	}
	answers, err := s.Exchange(messages)
	for _, a := range answers {
		if a.Err != nil {
			return a.Err
		}
	}
	return err
}

// byLibrary is the same over a socket of mdlayher/netlink, which google/nftables has too.
func byLibrary(messages []wire.Message) error {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	answers := 0
	all := make([]netlink.Message, 0, len(messages))
	for _, m := range messages {
		header := netlink.Header{Type: netlink.HeaderType(m.Type),
			Flags: netlink.HeaderFlags(m.Flags) | netlink.Request}
		all = append(all, netlink.Message{Header: header, Data: m.Header})
		if m.Flags&(unix.NLM_F_ACK|unix.NLM_F_DUMP) != 0 {
			answers++
		}
	}
	if _, err := c.SendMessages(all); err != nil {
		return err
	}
	for range answers {
		if _, err := c.Receive(); err != nil {
			return err
		}
	}
	return nil
}
