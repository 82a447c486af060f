package cri

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/encoding/protowire"
)

// What is asked of a runtime takes a hundred lines of gRPC and protobuf. The libraries for it would
// be a third of sidecarctl.

// service is where the calls are.
const service = "http://localhost/runtime.v1.RuntimeService/"

const (
	// head is how long what comes before a message is: whether it is compressed, and its length.
	head = 5
	// biggest is the longest answer that is read. A runtime's status has some 30 KiB.
	biggest = 16 << 20
)

// client calls a runtime: HTTP/2 over its socket, without encryption.
type client struct{ transport *http.Transport }

func dial(socket string) client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return client{&http.Transport{Protocols: &protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
}

func (c client) close() { c.transport.CloseIdleConnections() }

// call makes one call and returns its answer.
func (c client) call(ctx context.Context, method string, request message) (message, error) {
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request)))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, service+method,
		bytes.NewReader(append(frame, request...)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	answer, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, biggest))
	if err != nil {
		return nil, err
	}
	// A call that has failed may have its trailers in the place of the header.
	for _, from := range []http.Header{answer.Trailer, answer.Header} {
		if status := from.Get("Grpc-Status"); status != "" && status != "0" {
			text, _ := url.PathUnescape(from.Get("Grpc-Message")) // else it stays empty
			return nil, fmt.Errorf("gRPC status %s: %s", status, text)
		}
	}
	if answer.StatusCode != http.StatusOK || len(body) < head || body[0] != 0 ||
		uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-head) {
		return nil, fmt.Errorf("the answer is not one of gRPC: HTTP status %d, %d bytes",
			answer.StatusCode, len(body))
	}
	return body[head:], nil
}

// message is one of protobuf. What is not in it, or does not parse, is empty.
type message []byte

func (m message) number(field protowire.Number, value uint64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), value)
}

func (m message) bytes(field protowire.Number, value []byte) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), value)
}

// each calls do with each field, of which it has the bytes or the number.
func (m message) each(do func(field protowire.Number, value []byte, number uint64)) {
	for len(m) > 0 {
		field, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return
		}
		m = m[n:]
		var value []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(m)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(m)
		default:
			n = protowire.ConsumeFieldValue(field, kind, m)
		}
		if n < 0 {
			return
		}
		do(field, value, number)
		m = m[n:]
	}
}

func (m message) all(field protowire.Number) []message {
	var all []message
	m.each(func(f protowire.Number, value []byte, _ uint64) {
		if f == field {
			all = append(all, value)
		}
	})
	return all
}

func (m message) first(field protowire.Number) message {
	if all := m.all(field); len(all) > 0 {
		return all[0]
	}
	return nil
}

func (m message) text(field protowire.Number) string { return string(m.first(field)) }

func (m message) value(field protowire.Number) uint64 {
	var last uint64
	m.each(func(f protowire.Number, _ []byte, number uint64) {
		if f == field {
			last = number
		}
	})
	return last
}
