package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
)

// answers returns a probe of a web page of a process, which is well when it says 200.
func answers(m *machine, url string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{
		DialContext:       m.dial,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // it signs for itself
		DisableKeepAlives: true,
	}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s says %s", url, response.Status)
		}
		return nil
	}
}

// listens returns a probe of a unix socket.
func listens(m *machine, path string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", m.file(path))
		if err == nil {
			conn.Close()
		}
		return err
	}
}
