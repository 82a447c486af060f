package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"
)

const (
	appPort   = 8080
	probePort = 8081
	timeout   = time.Minute // of what is not refused, and that comes at once
)

// Answer is what an app says: its pod, who called it and at which address. What it was sent comes
// behind it.
type Answer struct {
	Who, Caller, Called string
}

// Call is what a caller has seen.
type Call struct {
	Me string // its own end of the connection
	Answer
}

// serveApp returns only if it cannot serve.
func serveApp(lines *json.Encoder) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	stream, err := net.Listen("tcp", fmt.Sprintf(":%d", appPort))
	if err != nil {
		return err
	}
	packets, err := net.ListenUDP("udp", &net.UDPAddr{Port: appPort})
	if err != nil {
		return err
	}
	if err := serveProbes(); err != nil {
		return err
	}
	if err := lines.Encode(Ready{name}); err != nil {
		return err
	}
	go func() {
		for {
			c, err := stream.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = answer(name, c.(*net.TCPConn)) // the caller notices
			}()
		}
	}()
	return answerPackets(name, packets)
}

// serveProbes says on a port of its own, over HTTP, that the app is well.
func serveProbes() error {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", probePort))
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: timeout,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = server.Serve(l) }() // the prober notices
	return nil
}

// answer hears the caller out and sends back what it heard.
func answer(name string, c *net.TCPConn) error {
	heard, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(c).
		Encode(Answer{name, c.RemoteAddr().String(), c.LocalAddr().String()}); err != nil {
		return err
	}
	_, err = c.Write(heard)
	return err
}

func answerPackets(name string, packets *net.UDPConn) error {
	buffer := make([]byte, 1500)
	for {
		_, caller, err := packets.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return err
		}
		text, err := json.Marshal(Answer{Who: name, Caller: plain(caller).String(),
			Called: packets.LocalAddr().String()})
		if err != nil {
			return err
		}
		_, _ = packets.WriteToUDPAddrPort(text, caller) // whoever does not wait is gone
	}
}

// plain is an IPv4 address as IPv4 writes it.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(),
		a.Port())
}

// call calls an app, with so many bytes and so many times: NETWORK ADDRESS [BYTES [TIMES]].
func call(lines *json.Encoder, args []string) error {
	if len(args) < 2 {
		return errors.New("want a network and an address")
	}
	numbers := []int{0, 1}
	for i, arg := range args[2:] {
		n, err := strconv.Atoi(arg)
		if err != nil || i >= len(numbers) {
			return fmt.Errorf("want at most two numbers, not %q", arg)
		}
		numbers[i] = n
	}
	sent := make([]byte, numbers[0])
	if _, err := rand.Read(sent); err != nil {
		return err
	}
	for range numbers[1] {
		c, err := callOnce(args[0], args[1], sent)
		if err != nil {
			return err
		}
		if err := lines.Encode(c); err != nil {
			return err
		}
	}
	return nil
}

func callOnce(network, address string, sent []byte) (Call, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return Call{}, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * timeout)) // reading reports what comes of it
	made := Call{Me: conn.LocalAddr().String()}
	if stream, ok := conn.(*net.TCPConn); ok {
		back, err := exchange(stream, sent, &made.Answer)
		if err == nil && !bytes.Equal(back, sent) {
			err = fmt.Errorf("sent %d bytes, and %d came back that are not the same", len(sent),
				len(back))
		}
		return made, err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return made, err
	}
	return made, json.NewDecoder(conn).Decode(&made.Answer)
}

// exchange sends and returns what came back behind the answer.
func exchange(c *net.TCPConn, sent []byte, a *Answer) ([]byte, error) {
	if _, err := c.Write(sent); err != nil {
		return nil, err
	}
	if err := c.CloseWrite(); err != nil {
		return nil, err
	}
	heard, err := io.ReadAll(c)
	if err != nil {
		return nil, err
	}
	line, rest, ok := bytes.Cut(heard, []byte("\n"))
	if !ok {
		return nil, fmt.Errorf("no answer, but %d bytes", len(heard))
	}
	return rest, json.Unmarshal(line, a)
}
