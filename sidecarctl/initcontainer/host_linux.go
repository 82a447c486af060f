package initcontainer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// By these the first network namespace of a kernel is known, which no pod has.
const (
	// Linux 6.18 and later number it so (NET_NS_INIT_INO); earlier ones never number one so.
	initialInode = 0xEFFFFFF9
	// Linux 5.14 to 6.17 number namespaces from it on; later ones give it to a namespace of
	// another kind.
	initialCookie = 1
)

// namespaceCookie is the number of the calling thread's namespace; 0 before Linux 5.14.
func namespaceCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the number of the network namespace: %w", err)
	}
	return cookie, nil
}

// kubeChains begins the names of the chains that a kubelet or kube-proxy makes in the namespace of
// its node, which may be another one than the kernel's first.
const kubeChains = "KUBE-"

var errHost = errors.New("this is the host's network namespace, where all of the node's " +
	"connections would be redirected: a pod with hostNetwork cannot be; take this container out " +
	"of it, or name the pod's namespace by --network-namespace")

// refuseHost looks whether the calling thread is in the host's namespace, as far as that can be
// told from within a container.
func refuseHost() error {
	id, err := podns.Identify(ownNetns)
	if err != nil {
		return fmt.Errorf("identify own network namespace: %w", err)
	}
	cookie, err := namespaceCookie()
	if err != nil {
		return err
	}
	if isInitial(id.Inode, cookie) {
		return errHost
	}
	chains, err := traces.Named(kubeChains)
	if len(chains) > 0 {
		return fmt.Errorf("%w (it has %s)", errHost, chains[0])
	}
	if errors.Is(err, unix.EPERM) { // a process without capabilities cannot look, nor harm
		return nil
	}
	return err
}

func isInitial(inode, cookie uint64) bool {
	return inode == initialInode || cookie == initialCookie
}
