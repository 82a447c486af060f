package nftrace

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// A kernel that does not know the owner flag refuses the table, as this one does with a flag that
// nobody knows.
func TestAKernelWithoutTheFlagIsRefused(t *testing.T) {
	t.Parallel()
	netns.New(t).Do(t, func() {
		table := newTable("test", nil)
		table.flags |= 1 << 30
		if s, err := table.arm(); !errors.Is(err, ErrOldKernel) {
			t.Errorf("got %v, %v", s, err)
		}
	})
}

// reported is what the kernel says of a packet that comes to a chain.
func reported(from uint16, chain string) event {
	return event{id: uint32(from), table: "inet t", chain: chain, handle: 1,
		kind: unix.NFT_TRACETYPE_RULE, verdict: "continue", headed: true, tuple: tuple{
			redirect.TCP, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), from),
			netip.MustParseAddrPort("192.0.2.2:80")}}
}

func noName(uint32) string { return "" }

// Packets that never come to an end are not kept for ever, nor are their names.
func TestATrackerIsBounded(t *testing.T) {
	t.Parallel()
	tr := newTracker("t", known{}, noName)
	const packets = 3 * maxIDs
	for from := range uint16(packets) {
		if way := tr.add(reported(from, firstOut)); way != nil {
			t.Fatalf("packet %d has ended: %+v", from, way)
		}
	}
	if len(tr.ways) > maxWays || len(tr.order) > maxWays || len(tr.ids) > maxIDs {
		t.Errorf("%d ways, %d in order, %d names", len(tr.ways), len(tr.order), len(tr.ids))
	}
	if want := uint64(packets - maxWays); tr.forgotten != want {
		t.Errorf("forgot %d, want %d", tr.forgotten, want)
	}
	if way := tr.add(reported(packets-1, lastIn)); way == nil || way.End.Kind != Stays {
		t.Errorf("the last one ended as %+v", way)
	}
}

// A packet that is sent again went nowhere at first.
func TestAPacketThatIsSentAgain(t *testing.T) {
	t.Parallel()
	tr := newTracker("t", known{}, noName)
	tr.add(reported(1, firstOut))
	if way := tr.add(reported(1, firstOut)); way == nil || way.End.Kind != Gone {
		t.Errorf("the first attempt ended as %+v", way)
	}
	if way := tr.add(reported(1, lastForward)); way == nil || way.End.Kind != Leaves {
		t.Errorf("the second ended as %+v", way)
	}
}

// Reports about packets that somebody else traces are left alone.
func TestOthersTraces(t *testing.T) {
	t.Parallel()
	tr := newTracker("t", known{}, noName)
	e := reported(1, "c")
	e.table = "ip other"
	if way := tr.add(e); way != nil || len(tr.ways) > 0 {
		t.Errorf("got %+v, and %d ways", way, len(tr.ways))
	}
}

// drain reads the reports that wait to be read.
func (r *reports) drain(t *testing.T) (read []netlink.Message) {
	t.Helper()
	raw, err := r.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for {
		var n int
		var received error
		if err := raw.Control(func(fd uintptr) {
			n, _, received = unix.Recvfrom(int(fd), r.buf, unix.MSG_DONTWAIT)
		}); err != nil {
			t.Fatal(err)
		}
		switch {
		case errors.Is(received, unix.EAGAIN):
			return read
		case errors.Is(received, unix.ENOBUFS):
			r.count()
		case received != nil:
			t.Fatal(received)
		default:
			messages, err := parse(r.buf[:n])
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, messages...)
		}
	}
}

// Reports that find no room are counted: with those that were read they are all that there were.
func TestLostReportsAreCounted(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	ns.RaiseLoopback(t)
	to := netip.MustParseAddrPort("127.0.0.1:53")
	ns.Do(t, func() {
		many, err1 := listen(reportsBuffer)
		few, err2 := listen(0)
		tracing, err3 := newTable("test", Filter{Protocol: redirect.UDP, To: to}.rules()).arm()
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		defer tracing.Close()
		defer many.close()
		defer few.close()
		server, err1 := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		client, err2 := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err := errors.Join(err1, err2, unix.Bind(server, sockaddr(to, 0))); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(server)
		defer unix.Close(client)
		for range 200 { // each is received before the next is sent
			if err := unix.Sendto(client, []byte{0}, 0, sockaddr(to, 0)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := unix.Recvfrom(server, make([]byte, 1), 0); err != nil {
				t.Fatal(err)
			}
		}
		all, some := uint64(len(many.drain(t))), uint64(len(few.drain(t)))
		if many.lost != 0 || all < 200 {
			t.Errorf("with room: read %d, lost %d", all, many.lost)
		}
		if few.lost == 0 || few.lost+some != all {
			t.Errorf("without room: read %d, lost %d, want %d in all", some, few.lost, all)
		}
	})
}

// A process that stood still, or waited for a processor, reads what it was told meanwhile.
func TestWhatWasReportedInTimeIsRead(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	ns.RaiseLoopback(t)
	to := netip.MustParseAddrPort("127.0.0.1:53")
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	ns.Do(t, func() {
		for title, row := range map[string]struct {
			ctx    context.Context
			enough bool
			want   error
		}{
			"enough":     {over, true, nil},
			"not enough": {over, false, context.DeadlineExceeded},
			"given up":   {given, false, context.Canceled},
		} {
			heard, err1 := listen(reportsBuffer)
			tracing, err2 := newTable("test", Filter{Protocol: redirect.UDP, To: to}.rules()).arm()
			client, err3 := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err := errors.Join(err1, err2, err3,
				unix.Sendto(client, []byte{0}, 0, sockaddr(to, 0))); err != nil {
				t.Fatal(err)
			}
			events := 0
			_ = heard.file.SetReadDeadline(time.Unix(1, 0)) // each does so, too, but not at once
			err := heard.each(row.ctx, func(event) (bool, error) {
				events++
				return row.enough, nil
			})
			if !errors.Is(err, row.want) || row.ctx == over && events == 0 {
				t.Errorf("%s: %d events, error %v, want %v", title, events, err, row.want)
			}
			unix.Close(client)
			tracing.Close()
			heard.close()
		}
	})
}

// Of a connection of TCP the kernel reports the packet that begins it, not what is said in it.
func TestOnlyTheBeginningIsReported(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	ns.RaiseLoopback(t)
	to := netip.MustParseAddrPort("127.0.0.1:80")
	ns.Do(t, func() {
		heard, err1 := listen(reportsBuffer)
		tracing, err2 := newTable("test", Filter{Protocol: redirect.TCP, To: to}.rules()).arm()
		server, err3 := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		client, err4 := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err := errors.Join(err1, err2, err3, err4, unix.Bind(server, sockaddr(to, 0)),
			unix.Listen(server, 1), unix.Connect(client, sockaddr(to, 0))); err != nil {
			t.Fatal(err)
		}
		defer tracing.Close()
		defer heard.close()
		defer unix.Close(server)
		conn, _, err := unix.Accept(server)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(conn)
		_, err1 = unix.Write(client, []byte("hello"))
		_, err2 = unix.Read(conn, make([]byte, 5))
		if err := errors.Join(err1, err2, unix.Close(client)); err != nil {
			t.Fatal(err)
		}
		begun := 0
		for _, m := range heard.drain(t) {
			if e, ok := newEvent(m); ok && e.chain == firstOut && e.isRule() {
				begun++
			}
		}
		if begun != 1 {
			t.Errorf("%d packets were reported, want 1", begun)
		}
	})
}

// FuzzReports reads what no kernel sends.
func FuzzReports(f *testing.F) {
	message := func(data []byte) []byte {
		m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(data)))
		m = binary.NativeEndian.AppendUint16(m, wire.NFTables|unix.NFT_MSG_TRACE)
		return append(append(m, make([]byte, 10)...), data...)
	}
	header := make([]byte, 40)
	header[0] = 6 << 4
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		wire.String(unix.NFTA_TRACE_TABLE, "t"), wire.String(unix.NFTA_TRACE_CHAIN, firstOut),
		wire.Number(unix.NFTA_TRACE_TYPE, unix.NFT_TRACETYPE_RULE),
		wire.Bytes(unix.NFTA_TRACE_RULE_HANDLE, make([]byte, 8)),
		wire.Bytes(unix.NFTA_TRACE_NETWORK_HEADER, header),
		wire.Bytes(unix.NFTA_TRACE_TRANSPORT_HEADER, make([]byte, 4)),
		wire.Bytes(unix.NFTA_TRACE_VERDICT, []byte{8, 0, 1, 0, 255, 255, 255, 253}),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(message(append([]byte{unix.NFPROTO_INET, 0, 0, 0}, attrs...)))
	f.Add(message([]byte{1}))
	f.Add([]byte{16, 0, 0})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		messages, err := parse(datagram)
		if err != nil {
			return
		}
		tr := newTracker("t", known{}, noName)
		for _, m := range messages {
			if e, ok := newEvent(m); ok {
				tr.add(e)
			}
		}
		if len(tr.ways) > len(messages) {
			t.Errorf("%d ways of %d messages", len(tr.ways), len(messages))
		}
	})
}
