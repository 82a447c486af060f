// Package kernelrules reads the rules of nftables in a network namespace, whoever wrote them, with
// their counters and handles, and those of legacy iptables. Those of iptables-nft are among the
// first. No program is run.
//
//	tables, err := kernelrules.Read()
//	for _, t := range tables {
//		fmt.Print(t)
//	}
//
// Be aware:
//   - It reads the namespace of the calling thread. What leads into a pod's is package podns.
//   - The rules of legacy tables have no handles. The priorities of their chains are those that
//     each kernel gives them.
//   - What our own rules consist of is written as nft lists it. Of what else there is in rules, the
//     kernel's name for it is written, in brackets.
//   - Whoever may write rules in the namespace decides how many there are. What is read is bounded;
//     more than that is an error.
package kernelrules

import (
	"fmt"
	"strings"
)

// Table is a table of nftables.
type Table struct {
	Family string  `json:"family"`          // as nft calls it: inet, ip, ip6, ...
	Name   string  `json:"name"`            // as its author chose it
	Flags  string  `json:"flags,omitempty"` // dormant, owner, persist as nft lists them, or legacy
	Chains []Chain `json:"chains"`          // in the order in which the kernel lists them
}

// Chain is a chain of a table.
type Chain struct {
	Name  string `json:"name"`           // its own within the table
	Base  *Base  `json:"base,omitempty"` // left out: entered by jumps only
	Rules []Rule `json:"rules"`          // in the order in which they are tried
}

// Base is what a chain has that packets enter by themselves.
type Base struct {
	Type     string `json:"type"`     // filter, nat or route
	Hook     string `json:"hook"`     // as nft calls it, or a number
	Priority int32  `json:"priority"` // the lowest comes first
	Policy   string `json:"policy"`   // for what no rule decides: accept or drop
}

// Rule is a rule of a chain.
type Rule struct {
	Handle  uint64 `json:"handle,omitempty"`  // by which nft deletes it; 0: it is of legacy iptables
	Text    string `json:"text"`              // what it does, without counter and comment
	Comment string `json:"comment,omitempty"` // of its author; the reason, if it is ours
	Ours    bool   `json:"ours,omitempty"`    // it is in our table, or has our comment

	// What it has met, if it has a counter.
	Counter *Counter `json:"counter,omitempty"`
}

// Counter counts what a rule has met.
type Counter struct {
	Packets uint64 `json:"packets"` // the first of each connection only, in chains of type nat
	Bytes   uint64 `json:"bytes"`   // of these packets
}

// String is the table as nft lists it with handles.
func (t Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", t.Family, t.Name)
	if t.Flags != "" {
		fmt.Fprintf(&b, "\tflags %s\n", t.Flags)
	}
	for i, c := range t.Chains {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if c.Base != nil {
			fmt.Fprintf(&b, "\t\t%s\n", c.Base)
		}
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func (b *Base) String() string {
	return fmt.Sprintf("type %s hook %s priority %d; policy %s;", b.Type, b.Hook, b.Priority,
		b.Policy)
}

// counterMark stands in a text where the rule has its counter.
const counterMark = "counter"

func (r Rule) String() string {
	text := r.Text
	if r.Counter != nil {
		counted := fmt.Sprintf("counter packets %d bytes %d", r.Counter.Packets, r.Counter.Bytes)
		text = strings.Replace(text, counterMark, counted, 1)
	}
	if r.Comment != "" {
		text += ` comment "` + r.Comment + `"`
	}
	if r.Handle != 0 {
		text += fmt.Sprintf(" # handle %d", r.Handle)
	}
	return text
}
