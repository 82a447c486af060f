package xtables

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// phrase is something that a rule can say. What no phrase fits is an error.
type phrase struct {
	form   *regexp.Regexp
	read   func(d *draft, found []string) error // what the groups of the form have found
	verb   redirect.Verb                        // of a target
	tables []redirect.Table                     // where it can be said; nil: everywhere
}

// tracked is where packets have a connection. In raw, state and mark of one mean something else.
var tracked = []redirect.Table{redirect.Mangle, redirect.NAT}

// phrases are tried in this order.
var phrases = []phrase{
	asks(`NOT <-s|--source|--src> VALUE`, packet.Source, network),
	asks(`NOT <-d|--destination|--dst> VALUE`, packet.Destination, network),
	asks(`NOT <-i|--in-interface> NAME`, in, nic),
	asks(`NOT <-o|--out-interface> NAME`, out, nic),
	asks(`NOT <-p|--protocol|--proto> VALUE`, packet.Protocol, protocol),
	asks(`NOT <--sport|--source-port> VALUE`, packet.SourcePort, ports),
	asks(`NOT <--dport|--destination-port> VALUE`, packet.DestinationPort, ports),
	asks(`MATCH multiport NOT <--sports|--source-ports> LIST`, packet.SourcePort, ports),
	asks(`MATCH multiport NOT <--dports|--destination-ports> LIST`, packet.DestinationPort, ports),
	asks(`MATCH mark NOT --mark WHOLE`, packet.PacketMark, mark),
	asks(`MATCH connmark NOT --mark WHOLE`, packet.ConnMark, mark, tracked...),
	asks(`MATCH conntrack NOT --ctstate LIST`, packet.State, ctstate, tracked...),
	asks(`MATCH owner NOT --uid-owner VALUE`, packet.UID, ids),
	asks(`MATCH owner NOT --gid-owner VALUE`, packet.GID, ids),
	does(`MATCH (tcp|udp)`, 0, ofProtocol),
	does(`MATCH comment --comment <"<[^"\\]|\\[^\n]>*"|[^"\\\s]+>`, 0, nothing),
	does(`JUMP RETURN`, redirect.Return, nothing),
	does(`JUMP ACCEPT`, redirect.Accept, nothing),
	does(`JUMP DROP`, redirect.Drop, nothing, redirect.Raw, redirect.Mangle),
	does(`JUMP REDIRECT <--to-ports|--to-port> NUMBER`, redirect.Redirect, setNumber, redirect.NAT),
	does(`JUMP TPROXY --on-port NUMBER< --on-ip <0.0.0.0|::>>?< --tproxy-mark <0x0/0x0|WHOLE>>?`,
		redirect.TProxy, setNumber, redirect.Mangle),
	does(`JUMP MARK <--set-mark|--set-xmark> WHOLE`, redirect.SetMark, setMark),
	does(`JUMP CONNMARK --save-markMASKS`, redirect.SaveMark, nothing, tracked...),
	does(`JUMP CONNMARK --restore-markMASKS`, redirect.RestoreMark, nothing, tracked...),
	does(`JUMP CT --zone NUMBER`, redirect.SetZone, setNumber, redirect.Raw),
	does(`JUMP VALUE`, redirect.Jump, jump),
}

// says returns a form, which is a regular expression with a few words of its own.
func says(form string) *regexp.Regexp {
	words := strings.NewReplacer("NOT ", `(! )?`, "VALUE", `([^\s,"\\]+)`,
		"LIST", `([^\s"\\]+)`, "NAME", `([^\s,"\\]{1,15})`, "NUMBER", `([1-9]\d*)`,
		"WHOLE", `([^\s"\\]+?)</0xffffffff>?`,
		"MATCH", `<-m|--match>`, "JUMP", `<-j|--jump>`,
		"MASKS", `< --nfmask 0xffffffff>?< --ctmask 0xffffffff>?`)
	form = strings.NewReplacer("<", "(?:", ">", ")", ".", `\.`).Replace(words.Replace(form))
	return regexp.MustCompile("^" + form + "(?: |$)")
}

// asks is a condition: the field is in one of the sets that commas separate, or with ! in none.
func asks(form string, f packet.Field, parse parser, tables ...redirect.Table) phrase {
	read := func(d *draft, found []string) error {
		var sets []packet.Set
		d.not = found[1] != ""
		for value := range strings.SplitSeq(found[2], ",") {
			set, err := parse(d, value)
			if err != nil {
				return err
			}
			sets = append(sets, set)
		}
		d.rule.needs(condition{f, packet.Union(sets...), d.not})
		return nil
	}
	return phrase{says(form), read, 0, tables}
}

// needs adds a condition. What is negated twice, as a list of groups is, becomes one.
func (r *rule) needs(c condition) {
	for i, have := range r.conditions {
		if c.not && have.not && have.field == c.field {
			r.conditions[i].set = packet.Union(have.set, c.set)
			return
		}
	}
	r.conditions = append(r.conditions, c)
}

// does is about something else than a condition.
func does(form string, verb redirect.Verb, read func(*draft, []string) error,
	tables ...redirect.Table) phrase {
	return phrase{says(form), read, verb, tables}
}

// draft is a rule that is being read.
type draft struct {
	rule     rule
	listing  *listing
	protocol redirect.Protocol // AnyProtocol: no single one
	ported   bool              // something is about ports
	not      bool              // what is being read is negated
}

// What is rewritten: two options of one module, and an order other than iptables-save's.
var (
	bothOwners = regexp.MustCompile(`(-m owner (?:! )?--uid-owner \S+) ((?:! )?--gid-owner)`)
	markFirst  = regexp.MustCompile(`(--tproxy-mark \S+) (--on-port \S+)`)
)

// read reads what stands behind the chain.
func (d *draft) read(text string) error {
	text = strings.Join(strings.Fields(text), " ")
	text = bothOwners.ReplaceAllString(text, "$1 -m owner $2")
	text = markFirst.ReplaceAllString(text, "$2 $1")
	said := map[int]bool{}
	for text != "" {
		i := slices.IndexFunc(phrases, func(p phrase) bool { return p.form.MatchString(text) })
		if i < 0 {
			return fmt.Errorf("%.40q: unknown, or lacks something", text)
		}
		p, table := phrases[i], tables[d.listing.table]
		switch {
		case p.verb != 0 && d.rule.verb != 0 || said[i] && !strings.HasPrefix(text, "-m"):
			return fmt.Errorf("%.40q: given twice", text)
		case p.tables != nil && !slices.Contains(p.tables, table):
			return fmt.Errorf("%.40q: not evaluated in table %s", text, d.listing.table)
		}
		found := p.form.FindStringSubmatch(text)
		if err := p.read(d, found); err != nil {
			return fmt.Errorf("%.40q: %w", text, err)
		}
		d.rule.verb, said[i] = cmp.Or(p.verb, d.rule.verb), true
		text = text[len(found[0]):]
	}
	ported := d.ported || d.rule.verb == redirect.Redirect || d.rule.verb == redirect.TProxy
	if ported && d.protocol != redirect.TCP && d.protocol != redirect.UDP {
		return errors.New("ports need -p tcp or -p udp")
	}
	return nil
}

func nothing(*draft, []string) error { return nil }

// ofProtocol reads a module that has to be about the protocol of -p.
func ofProtocol(d *draft, found []string) error {
	if found[1] != strings.ToLower(d.protocol.String()) {
		return errors.New("needs the same -p before it")
	}
	return nil
}

// jump knows that the name of a target is that of no chain, though there may be one.
func jump(d *draft, found []string) error {
	targets := []string{"REDIRECT", "TPROXY", "MARK", "CONNMARK", "CT"}
	c := d.listing.chains[d.listing.place(found[1])]
	if c == nil || c.hook || slices.Contains(targets, found[1]) {
		return errors.New("want a chain of the table, or a known target with all it needs")
	}
	d.rule.chain = c
	return nil
}

// setNumber sets the port or the zone, and what TPROXY may have behind it.
func setNumber(d *draft, found []string) error {
	n, err := number(found[1], 16)
	d.rule.number = uint16(n)
	if err == nil && len(found) > 2 && found[2] != "" {
		err = setMark(d, found[1:])
	}
	return err
}

func setMark(d *draft, found []string) error {
	n, err := number(found[1], 32)
	d.rule.mark = &n
	return err
}

// parser returns the set that a value stands for.
type parser func(d *draft, value string) (packet.Set, error)

// network reads an address, alone or with a length.
func network(d *draft, s string) (packet.Set, error) {
	p, err := netip.ParsePrefix(s)
	if a, alone := netip.ParseAddr(s); alone == nil && a.Zone() == "" {
		p, err = a.Prefix(a.BitLen())
	}
	if f := d.listing.family; err != nil || redirect.FamilyOf(p.Addr()) != f {
		return packet.Set{}, wanted("an "+f.String()+" network", s)
	}
	return packet.Networks(p), nil
}

func nic(_ *draft, s string) (packet.Set, error) {
	return packet.Names(redirect.Interface(s)), nil
}

// protocols are the numbers of those that iptables knows by name without the help of the host.
var protocols = map[string]string{"all": "0", "icmp": "1", "tcp": "6", "udp": "17", "esp": "50",
	"ah": "51", "icmpv6": "58", "ipv6-icmp": "58", "sctp": "132"}

func protocol(d *draft, s string) (packet.Set, error) {
	n, err := number(cmp.Or(protocols[strings.ToLower(s)], s), 8)
	if !d.not {
		d.protocol = redirect.Protocol(n)
	}
	if n == 0 {
		return packet.Range(0, math.MaxUint8), err
	}
	return packet.Range(n, n), err
}

// ports reads a port, or two of which one may be missing.
func ports(d *draft, s string) (packet.Set, error) {
	d.ported = true
	if strings.HasPrefix(s, ":") {
		s = "0" + s
	}
	if strings.HasSuffix(s, ":") {
		s += "65535"
	}
	return numbers(s, ":", 16)
}

func ids(_ *draft, s string) (packet.Set, error) { return numbers(s, "-", 32) }

func mark(_ *draft, s string) (packet.Set, error) { return numbers(s, " ", 32) } // no range

func ctstate(_ *draft, s string) (packet.Set, error) {
	for _, one := range redirect.States {
		if strings.EqualFold(one.String(), s) {
			return packet.Numbers(one), nil
		}
	}
	return packet.Set{}, wanted("new, established, related or invalid", s)
}

// numbers reads a number, or two with a sign between them.
func numbers(s, sign string, bits int) (packet.Set, error) {
	from, to, two := strings.Cut(s, sign)
	if !two {
		to = from
	}
	first, err1 := number(from, bits)
	last, err2 := number(to, bits)
	if first > last {
		err2 = wanted("the lower number first", s)
	}
	return packet.Range(first, last), cmp.Or(err1, err2)
}

// number reads a number as C does: 0x begins a hexadecimal one, 0 an octal one.
func number(s string, bits int) (uint32, error) {
	n, err := strconv.ParseUint(s, 0, bits)
	if err != nil || strings.ContainsAny(s, "_oO") || strings.HasPrefix(strings.ToLower(s), "0b") {
		return 0, wanted(fmt.Sprintf("a number of %d bits", bits), s)
	}
	return uint32(n), nil
}

func wanted(what, value string) error { return fmt.Errorf("%.40q: want %s", value, what) }
