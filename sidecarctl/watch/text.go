package watch

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// Writer writes events as they come: as lines of text, as lines of JSON, or as documents of YAML.
type Writer struct {
	w      io.Writer
	format view.Format
}

// NewWriter returns a writer of a format.
func NewWriter(w io.Writer, f view.Format) *Writer { return &Writer{w, f} }

// Write writes one event.
func (w *Writer) Write(e Event) error {
	var data []byte
	var err error
	switch w.format {
	case view.JSON:
		data, err = json.Marshal(e)
		data = append(data, '\n')
	case view.YAML:
		data, err = yaml.Marshal(e)
		data = append([]byte("---\n"), data...)
	default:
		data = []byte(e.text())
	}
	if err == nil {
		_, err = w.w.Write(data)
	}
	return err
}

const (
	clock  = "15:04:05.000"
	indent = len(clock) + len(" +")
)

// text is an event as people read it. What does not fit on a line stands on lines below it.
func (e Event) text() string {
	at := e.Time.UTC().Format(clock)
	switch e.Kind {
	case Began, Existing, Ended:
		return e.Connection.text(at, e.Kind)
	case Lost:
		return lines(at, "!", number(e.Lost, "event")+" lost: they came faster than they were read")
	case Done:
		return e.Summary.text(at)
	default:
		return lines(at, "!", view.Clean(e.Text))
	}
}

func (s *Summary) text(at string) string {
	text := fmt.Sprintf("%s began, %d ended, %s lost", number(s.Began, "connection"), s.Ended,
		number(s.Lost, "event"))
	if s.Forgotten > 0 {
		text += fmt.Sprintf("; the ends of %d are not shown, since too many were open", s.Forgotten)
	}
	return lines(at, "=", text)
}

func (c *Connection) text(at string, kind Kind) string {
	mark := map[Kind]string{Began: "+", Existing: "=", Ended: "-"}[kind]
	from := c.From.String()
	if c.From.Who == Peer {
		from += " " + c.Source.Addr().String()
	}
	text := fmt.Sprintf("%s%-5d %-18s %s %s", mark, c.ID, from, view.Clean(c.Protocol), c.To)
	if kind == Ended {
		return lines(at, text, c.ending())
	}
	return lines(at, text, c.way())
}

// way is where a connection went, as far as that is not where its sender said.
func (c *Connection) way() string {
	switch {
	case c.Listener != "":
		return fmt.Sprintf("──▶ %d (%s)", c.WentTo.Port(), view.Clean(c.Listener))
	case c.To != c.WentTo:
		return "──▶ " + c.WentTo.String()
	case c.Direct && c.From.Who != Proxy:
		return "not redirected"
	}
	return ""
}

func (c *Connection) ending() string {
	text := view.Clean(c.Outcome)
	if c.Milliseconds > 0 {
		text += " after " + (time.Duration(c.Milliseconds) * time.Millisecond).String()
	}
	if c.Receiver != nil {
		text += ", received by " + c.Receiver.String()
	}
	if c.Sent != nil && c.Received != nil {
		text += fmt.Sprintf(", sent %d B, received %d B", c.Sent.Bytes, c.Received.Bytes)
	}
	return text
}

func (p Party) String() string {
	if p.UID == nil {
		return view.Clean(string(p.Who))
	}
	return fmt.Sprintf("%s (uid %d)", view.Clean(string(p.Who)), *p.UID)
}

func number(n uint64, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// lines joins a time, what follows it, and words, which stand on further lines where they have to.
func lines(at, first, rest string) string {
	var b strings.Builder
	b.WriteString(at)
	column := len(at)
	for i, word := range append([]string{first}, strings.Fields(rest)...) {
		width := utf8.RuneCountInString(word)
		if i > 0 && column+1+width > view.Width {
			b.WriteString("\n" + strings.Repeat(" ", indent-1))
			column = indent - 1
		}
		b.WriteString(" " + word)
		column += 1 + width
	}
	return b.String() + "\n"
}
