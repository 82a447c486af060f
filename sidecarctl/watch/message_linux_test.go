package watch

import (
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// message is one of the kernel's about a connection.
func message(f testing.TB, from, to string, state byte) []byte {
	f.Helper()
	a, b := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	original, err := tuple{redirect.TCP, a, b}.attribute(attrOriginal)
	if err != nil {
		f.Fatal(err)
	}
	reply, err := tuple{redirect.TCP, b, a}.attribute(attrReply)
	if err != nil {
		f.Fatal(err)
	}
	tcp, err := nest(1, netlink.Attribute{Type: 1, Data: []byte{state}})
	if err != nil {
		f.Fatal(err)
	}
	protocol, err := nest(attrProtocolState, tcp)
	if err != nil {
		f.Fatal(err)
	}
	data, err := netlink.MarshalAttributes([]netlink.Attribute{original, reply, protocol,
		{Type: attrStatus, Data: []byte{0, 0, 0, statusSeenReply | statusAssured}},
		{Type: attrID, Data: []byte{1, 2, 3, 4}}, {Type: attrZone, Data: []byte{0, 2}}})
	if err != nil {
		f.Fatal(err)
	}
	return append(make([]byte, headerLen), data...)
}

func TestReadEntry(t *testing.T) {
	t.Parallel()
	e, ok := decode(message(t, "10.0.0.1:4", "10.0.0.2:5", stateClose))
	if !ok || e.original.from.String() != "10.0.0.1:4" || e.original.to.String() != "10.0.0.2:5" ||
		e.reply.from != e.original.to || e.zone != 2 || e.id != 0x01020304 ||
		e.state != stateClose || !e.answered || !e.established || e.sent != nil {
		t.Errorf("%v, %+v", ok, e)
	}
}

// The ends that connection tracking reports with older kernels, and with newer ones.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort("10.0.0.1:4")
	for _, row := range []struct {
		name string
		e    entry
		p    redirect.Protocol
		want string
	}{
		{"an older kernel, unanswered", entry{}, redirect.TCP, NotOpened},
		{"an older kernel, answered", entry{answered: true}, redirect.TCP, Idle},
		{"unanswered", entry{state: 1}, redirect.TCP, NoAnswer},
		{"reset at once", entry{state: stateClose}, redirect.TCP, Refused},
		{"reset later", entry{state: stateClose, established: true}, redirect.TCP, Reset},
		{"closed", entry{state: stateTimeWait, answered: true}, redirect.TCP, Closed},
		{"unanswered", entry{}, redirect.UDP, NoAnswer},
		{"answered", entry{answered: true}, redirect.UDP, Idle},
	} {
		f := follower{table: newTable[key](10)}
		row.e.original = tuple{row.p, at, at}
		row.e.reply = row.e.original
		f.begin(row.e, time.Unix(1, 0))
		c := f.gone(row.e, time.Unix(2, 0))
		if c == nil || c.Outcome != row.want {
			t.Errorf("%s, %s: %+v; want %s", row.p, row.name, c, row.want)
		}
		if again := f.gone(row.e, time.Unix(3, 0)); again != nil {
			t.Errorf("%s, %s: it ends twice", row.p, row.name)
		}
	}
}

func TestTheOldestIsForgotten(t *testing.T) {
	t.Parallel()
	table := newTable[int](10)
	for i := range 1000 {
		table.add(i, &followed{Connection: Connection{ID: uint64(i)}})
		if i%2 == 0 {
			delete(table.open, i)
		}
		if len(table.open) > 10 || len(table.order) > 20 {
			t.Fatalf("%d are remembered, by an order of %d", len(table.open), len(table.order))
		}
	}
	if table.open[999] == nil || table.open[981] == nil || table.open[979] != nil ||
		table.forgotten != 490 {
		t.Errorf("%v, %d forgotten", table.open, table.forgotten)
	}
}

// The kernel is not distrusted, but a pod's owner may fill its tables, and a message may be of a
// kernel that nobody here has seen.
func FuzzMessage(f *testing.F) {
	f.Add(message(f, "10.0.0.1:4", "10.0.0.2:5", stateTimeWait))
	f.Add(message(f, "[fd00::1]:4", "[fd00::2]:5", stateClose))
	f.Add([]byte{unix.AF_INET, 0, 0, 0, 8, 0, attrOriginal, 0x80, 4, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, ok := decode(data)
		if !ok {
			return
		}
		if !e.original.from.IsValid() || !e.reply.from.IsValid() {
			t.Errorf("%+v", e)
		}
		attrs, err := e.original.attribute(attrOriginal)
		if err != nil {
			t.Fatal(err)
		}
		if again, ok := readTuple(attrs.Data); !ok || again != e.original {
			t.Errorf("%+v becomes %+v", e.original, again)
		}
		follow := follower{table: newTable[key](1)}
		follow.begin(e, time.Unix(1, 0))
		if c := follow.change(e, time.Unix(2, 0)); c == nil {
			c = follow.gone(e, time.Unix(3, 0))
			if c == nil || c.Outcome == "" {
				t.Errorf("%+v does not end", e)
			}
		}
		_ = wire.Each(data, func(unix.NlMsghdr, []byte) error { return nil })
	})
}
