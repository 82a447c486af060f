package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// errNoRules is what istio-validation ends with 126 for.
var errNoRules = errors.New("the rules are missing")

// validationPort is one that nobody serves.
const validationPort = 15002

// validate listens where the proxy will, calls the passthrough address of each family that the pod
// has, and expects to be called itself.
func validate() error {
	families, err := families()
	if err != nil {
		return err
	}
	for _, f := range families {
		if err := validateFamily(f[0], f[1]); err != nil {
			return fmt.Errorf("%w: %w", errNoRules, err)
		}
	}
	return nil
}

// families returns, for each that an interface has an address of, where to call from and to.
func families() ([][2]string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	found := map[bool]bool{}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			found[n.IP.To4() != nil] = true
		}
	}
	all := [][2]string{}
	if found[true] {
		all = append(all, [2]string{"127.0.0.1", "127.0.0.6"})
	}
	if found[false] {
		all = append(all, [2]string{"::1", "::6"})
	}
	if len(all) == 0 {
		return nil, errors.New("the pod has no address")
	}
	return all, nil
}

func validateFamily(from, to string) error {
	called := make(chan netip.AddrPort, 2)
	open := []net.Listener{}
	defer func() { // the proxy may come after it
		for _, l := range open {
			l.Close()
		}
	}()
	for _, port := range []string{"15001", "15006"} {
		l, err := net.Listen("tcp", net.JoinHostPort(from, port))
		if err != nil {
			return err
		}
		open = append(open, l)
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			// the zero address is a wrong one, too
			meant, _ := originalDestination(c.(*net.TCPConn))
			called <- meant
		}()
	}
	target := net.JoinHostPort(to, fmt.Sprint(validationPort))
	dialer := net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.Dial("tcp", target)
	if err != nil {
		return err
	}
	defer c.Close()
	select {
	case meant := <-called:
		if meant.Port() != validationPort {
			return fmt.Errorf("called %s, and whoever answered was meant to be %s", target, meant)
		}
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("called %s, and somebody else answered", target)
	}
}
