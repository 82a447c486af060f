package nftrace

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// link is an interface of a namespace.
type link struct {
	index     uint32
	name      string
	kind      string // as ip link shows it: veth, macvlan, ...
	mac       []byte
	other     uint32 // the index of its other end
	elsewhere bool   // in another namespace, which the next one numbers
	otherID   int32
}

// links lists the interfaces of the namespace of the calling thread.
func links() ([]link, error) {
	s, err := wire.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	objects, err := s.Dump(wire.Message{Type: unix.RTM_GETLINK,
		Header: make([]byte, unix.SizeofIfInfomsg)})
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var all []link
	for _, o := range objects {
		l := link{index: nativeUint32(o.Header[4:]),
			name: wire.Text(wire.Find(o.Attrs, unix.IFLA_IFNAME)),
			mac:  wire.Find(o.Attrs, unix.IFLA_ADDRESS)}
		if data := wire.Find(o.Attrs, unix.IFLA_LINK); len(data) == 4 {
			l.other = nativeUint32(data)
		}
		if data := wire.Find(o.Attrs, unix.IFLA_LINK_NETNSID); len(data) == 4 {
			l.elsewhere, l.otherID = true, int32(nativeUint32(data))
		}
		info, err := netlink.UnmarshalAttributes(wire.Find(o.Attrs, unix.IFLA_LINKINFO))
		if err != nil {
			return nil, err
		}
		l.kind = wire.Text(wire.Find(info, unix.IFLA_INFO_KIND))
		all = append(all, l)
	}
	return all, nil
}

// linkNames returns what calls interfaces of the namespace by their names.
func linkNames() (func(uint32) string, error) {
	all, err := links()
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	for _, l := range all {
		names[l.index] = l.name
	}
	return func(index uint32) string {
		if name, ok := names[index]; ok || index == 0 {
			return name
		}
		return fmt.Sprintf("interface %d", index)
	}, nil
}

// uplink is where the other end of one of the pod's interfaces is.
type uplink struct {
	pod   link     // the pod's end
	node  *os.File // the namespace of the other end
	index uint32   // the other end
}

// findUplink finds the other end of an interface of the namespace of the calling thread, in one of
// the nodes'.
func findUplink(name string, nodes []*os.File) (uplink, error) {
	all, err := links()
	if err != nil {
		return uplink{}, err
	}
	var u uplink
	for _, l := range all {
		if l.name == name {
			u.pod, u.index = l, l.other
		}
	}
	switch {
	case u.pod.name == "":
		return u, fmt.Errorf("the pod has no interface %q", name)
	case u.pod.kind != "veth":
		return u, fmt.Errorf("%w: %s is no veth: follow what peers really send", ErrNoUplink, name)
	case len(u.pod.mac) != 6:
		return u, fmt.Errorf("%w: %s has no Ethernet address", ErrNoUplink, name)
	}
	for _, node := range nodes {
		id, err := numberOf(node)
		if err != nil {
			return u, err
		}
		if u.pod.elsewhere && id == u.pod.otherID {
			u.node = node
			return u, nil
		}
	}
	return u, fmt.Errorf("%w that can be seen from here: that of %s is in a namespace other than "+
		"the node's", ErrNoUplink, name)
}

// Network namespaces number each other (linux/net_namespace.h).
const (
	netnsaID      = 1
	netnsaFD      = 3
	netnsaUnknown = -1
)

// numberOf is the number that the namespace of the calling thread has for another one.
func numberOf(other *os.File) (int32, error) {
	s, err := wire.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	object, err := s.Get(wire.Message{Type: unix.RTM_GETNSID, Header: make([]byte, 4),
		Attrs: []netlink.Attribute{{Type: netnsaFD,
			Data: binary.NativeEndian.AppendUint32(nil, uint32(other.Fd()))}}})
	if err != nil {
		return 0, fmt.Errorf("compare network namespaces: %w", err)
	}
	if data := wire.Find(object.Attrs, netnsaID); len(data) == 4 {
		return int32(nativeUint32(data)), nil
	}
	return netnsaUnknown, nil
}

// openNodes opens the namespaces in which other ends may be. One that cannot be opened is none.
func openNodes(paths []string) []*os.File {
	var all []*os.File
	for _, path := range append([]string{"/proc/thread-self/ns/net"}, paths...) {
		if f, err := os.Open(path); err == nil {
			all = append(all, f)
		}
	}
	return all
}

// inNamespace calls f on a thread of its own that is in a namespace.
func inNamespace(n *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setns(int(n.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the node's network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
