// Package xtables reads rules as iptables-save prints them and as iptables-restore is given them,
// and says what becomes of packets.
//
//	tables, err := xtables.Read(ipv4, ipv6)
//	fate, question := tables.Fate(class)
//
// It is written from what iptables and the kernel do and shares no code with the dialect that
// writes such rules, so that each can be held against the other. What it does not know is an error.
//
// Be aware: it knows what redirects a pod. REDIRECT and TPROXY need a port, marks have no mask,
// users are numbers. Tables and hooks that cannot redirect must let everything pass. Packets are
// not fragments, and nat is not asked for those that TPROXY took, though the kernel would.
package xtables

import (
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// Tables is the rules of both families.
type Tables struct {
	// Routed lists the marks whose packets the policy routing delivers within the pod. No listing
	// has them: who calls Fate sets them before.
	Routed []uint32

	hooks map[place]*chain // those that a listing has
}

type place struct {
	family redirect.Family
	table  redirect.Table
	hook   redirect.Hook
}

type chain struct {
	table redirect.Table // 0: one that is not evaluated
	name  string
	hook  bool // entered by packets; else by jumps only
	asked bool // its rules are evaluated
	drops bool // the policy of a hook
	rules []*rule
}

type rule struct {
	text       line
	number     int           // of the line
	conditions []condition   // all of them must hold
	hook       redirect.Hook // from which alone the kernel lets it be reached, or NoHook
	verb       redirect.Verb // 0: it only counts packets
	to         string        // the name of the chain that it jumps to
	chain      *chain        // the same
	port, zone uint16
	mark       *uint32 // nil: not changed
}

type line string

func (l line) String() string { return string(l) }

// condition holds if one of its tests does.
type condition []test

// test asks whether the value of a field is in a set, or with not outside of it.
type test struct {
	field packet.Field
	set   packet.Set
	not   bool
}

// A packet has two interfaces for rules. Where it has not come in, or does not leave, the name is
// empty.
const (
	in  = packet.Interface
	out = packet.State + 1
)

// Read reads the listings of both families; an empty one has no rules. The error names the line.
func Read(ipv4, ipv6 string) (*Tables, error) {
	t := &Tables{hooks: map[place]*chain{}}
	for i, text := range []string{ipv4, ipv6} {
		l := &listing{family: redirect.Families[i], hooks: t.hooks, done: map[string]bool{}}
		if err := l.read(text); err != nil {
			return nil, fmt.Errorf("read %s rules: %w", l.family, err)
		}
	}
	return t, nil
}
