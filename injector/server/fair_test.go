package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	places   = 800
	stranger = "192.0.2.3"
)

// open opens connections from an address, on which nothing is sent.
func (d *drained) open(number int, address string) []net.Conn {
	d.t.Helper()
	conns := make([]net.Conn, number)
	for i := range conns {
		var err error
		if conns[i], err = d.webhooks.dialFrom(d.t.Context(), address); err != nil {
			d.t.Fatal(err)
		}
	}
	return conns
}

// isClosed reports whether the server has closed a connection on which it has nothing to say.
func isClosed(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// stop ends the server, and what is still open.
func (d *drained) stop(held ...net.Conn) {
	d.t.Helper()
	for _, conn := range held {
		conn.Close()
	}
	d.end()
	if err := <-d.ended; err != nil {
		d.t.Error(err)
	}
}

func TestWhoOpensManyConnectionsTakesThemFromHimself(t *testing.T) {
	t.Parallel()
	cert, trusted := certified(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDrained(t, cert, trusted)
		held := d.open(places+100, stranger)
		c := d.client(true)
		d.ask(c, "/inject")
		late := d.open(2*places, stranger)
		before := d.webhooks.dials.Load()
		d.ask(c, "/inject")
		if d.webhooks.dials.Load() != before {
			t.Error("the client's idle connection was closed for a stranger's")
		}
		for i, conn := range held {
			if !isClosed(conn) {
				t.Fatalf("connection %d of the stranger is open, behind %d more", i, len(late))
			}
		}
		open := 0
		for _, conn := range late {
			if !isClosed(conn) {
				open++
			}
		}
		if open != places-1 {
			t.Errorf("%d connections of the stranger are open, want %d", open, places-1)
		}
		c.CloseIdleConnections()
		d.stop(late...)
	})
}

func TestRequestsOutliveConnectionsWithoutOne(t *testing.T) {
	t.Parallel()
	cert, trusted := certified(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDrained(t, cert, trusted)
		c := d.client(true)
		var asking sync.WaitGroup
		for range places {
			asking.Go(func() { d.ask(c, "/slow") })
		}
		time.Sleep(time.Second)
		held := d.open(1, "192.0.2.2") // there is a request on each of the others
		if !isClosed(held[0]) {
			t.Error("a connection without a request was kept")
		}
		asking.Wait()
		if got := d.asked.Load(); got != places {
			t.Errorf("%d requests were answered, want %d", got, places)
		}
		c.CloseIdleConnections()
		d.stop()
	})
}

func TestRequestsGiveWayToOthers(t *testing.T) {
	t.Parallel()
	cert, trusted := certified(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDrained(t, cert, trusted)
		strange := d.clientFrom(false, func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.webhooks.dialFrom(ctx, stranger)
		})
		var answered atomic.Int64
		var asking sync.WaitGroup
		for range places {
			asking.Go(func() {
				if answer, err := post(t, strange, "https://example.com/slow"); err == nil {
					answer.Body.Close()
					answered.Add(1)
				}
			})
		}
		time.Sleep(time.Second)
		c := d.client(true)
		d.ask(c, "/inject")
		asking.Wait()
		if got := answered.Load(); got != places-1 {
			t.Errorf("%d requests of the stranger were answered, want %d", got, places-1)
		}
		c.CloseIdleConnections()
		d.stop()
	})
}

// Those that have one connection each give way by age, and those of one network to themselves.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	cert, trusted := certified(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDrained(t, cert, trusted)
		var held []net.Conn
		for i := range places {
			held = append(held, d.open(1, fmt.Sprintf("198.51.%d.%d", i/250, i%250))...)
		}
		c := d.client(true)
		d.ask(c, "/inject")
		// These are of one network.
		for i := range 2 * places {
			held = append(held, d.open(1, fmt.Sprintf("2001:db8::%x", i+1))...)
		}
		before := d.webhooks.dials.Load()
		d.ask(c, "/inject")
		if d.webhooks.dials.Load() != before {
			t.Error("the client's idle connection was closed for those of one network")
		}
		c.CloseIdleConnections()
		d.stop(held...)
	})
}

func TestAPlaceIsFreeOnceItsConnectionIsClosed(t *testing.T) {
	t.Parallel()
	cert, trusted := certified(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDrained(t, cert, trusted)
		for _, conn := range d.open(places, stranger) {
			conn.Close()
		}
		synctest.Wait()
		held := d.open(places, stranger)
		for i, conn := range held {
			if isClosed(conn) {
				t.Fatalf("connection %d was closed", i)
			}
		}
		d.stop(held...)
	})
}
