//go:build linux

package nftables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// place is what a message is about, for people.
type place struct {
	chain     string
	rule      int // from 1; 0: the chain itself, or the table
	statement *statement
}

func (p place) String() string {
	switch {
	case p.rule > 0:
		return fmt.Sprintf("chain %s: rule %d, %q (%s)", p.chain, p.rule, p.statement.why,
			p.statement.brief())
	case p.chain != "":
		return "chain " + p.chain
	}
	return "table inet " + TableName
}

// refusedError is the first message of a transaction that the kernel did not take. What it says
// about those behind it follows from that.
type refusedError struct {
	about place
	cause error
}

func (e *refusedError) Error() string { return fmt.Sprintf("%s: %v", e.about, e.cause) }

func (e *refusedError) Unwrap() error { return e.cause }

// explain adds to the kernel's answer what can be done about it.
func explain(err error) error {
	var refused *refusedError
	isRule := errors.As(err, &refused) && refused.about.rule > 0
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: this needs CAP_NET_ADMIN in the namespace", err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("%w: this kernel has no nftables: load the module nf_tables or choose "+
			"another backend", err)
	case isRule && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP)):
		return fmt.Errorf("%w: this kernel lacks what the rule needs: load the module %s or "+
			"choose another backend",
			err, refused.about.statement.modules())
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: this kernel lacks what the chain needs: load the modules "+
			"nf_tables and nft_chain_nat or choose another backend", err)
	}
	return err
}

// brief is the line without its comment, and no more of it than somebody would read: lists can be
// long.
func (s *statement) brief() string {
	const most = 200
	line := strings.Join(s.words, " ")
	if len(line) > most {
		line = line[:most/2] + " ... " + line[len(line)-most/2:]
	}
	return line
}

// modules names the kernel modules that the line needs beside nf_tables itself.
func (s *statement) modules() string {
	var names []string
	for _, e := range s.exprs {
		switch e.name {
		case "redir", "tproxy", "ct":
			if name := "nft_" + e.name; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return "nf_tables"
	}
	return strings.Join(names, ", ")
}
