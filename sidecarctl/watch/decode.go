package watch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine is longer than any line of a Writer.
const maxLine = 16 << 10

// ErrCut is the error of a stream that ends before its last event.
var ErrCut = errors.New("the events end in the middle: the connection to the node was lost, or " +
	"the agent was stopped")

// Decode reads what a Writer has written as JSON, and calls f with each event. Kinds that it does
// not know, since the writer is newer, are passed over.
func Decode(r io.Reader, f func(Event) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	done := false
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("read event %d: %w", n, err)
		}
		known, err := e.check()
		if err != nil {
			return fmt.Errorf("read event %d: %w", n, err)
		}
		if !known {
			continue
		}
		if err := f(e); err != nil {
			return err
		}
		done = e.Kind == Done
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("read events: a line has more than %d KiB, the agent may be of another "+
			"version", maxLine>>10)
	} else if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	if !done {
		return ErrCut
	}
	return nil
}

// check reports whether an event is of a kind that is known, and refuses one that lacks what its
// kind has.
func (e Event) check() (known bool, err error) {
	switch e.Kind {
	case Began, Existing, Ended:
		if e.Connection == nil {
			err = fmt.Errorf("event %q has no connection", e.Kind)
		}
	case Done:
		if e.Summary == nil {
			err = fmt.Errorf("event %q has no summary", e.Kind)
		}
	case Lost, Note:
	default:
		return false, nil
	}
	return true, err
}
