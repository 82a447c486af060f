package wire

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Get asks for one object.
func (s *Socket) Get(m Message) (Object, error) {
	if err := s.send([]Message{m}); err != nil {
		return Object{}, err
	}
	n, _, err := unix.Recvfrom(s.fd, s.buf, 0)
	if err != nil {
		return Object{}, fmt.Errorf("receive from netlink: %w", err)
	}
	var found *Object
	err = each(s.buf[:n], func(h unix.NlMsghdr, data []byte) error {
		switch {
		case h.Type == unix.NLMSG_ERROR:
			return answer(h, data)
		case len(data) < len(m.Header):
			return unix.EBADMSG
		}
		data = bytes.Clone(data)
		attrs, err := netlink.UnmarshalAttributes(data[len(m.Header):])
		found = &Object{Header: data[:len(m.Header)], Attrs: attrs}
		return err
	})
	if err != nil {
		return Object{}, err
	}
	if found == nil {
		return Object{}, errors.New("netlink answered nothing")
	}
	return *found, nil
}
