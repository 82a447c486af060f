// Package view writes what commands have to say: text of 80 columns for people, with colour where
// a terminal shows it, or JSON and YAML for programs.
//
//	out := view.New(os.Stdout, view.Text, colour)
//	err := out.Show(report) // of a type that has Text, and marshals itself
package view

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Width is how many columns text has.
const Width = 80

// Format is a form of output.
type Format string

// The formats.
const (
	Text Format = "text"
	JSON Format = "json"
	YAML Format = "yaml"
)

// Formats lists them.
var Formats = []Format{Text, JSON, YAML}

// Known refuses a format that is none.
func Known(f Format) error {
	if !slices.Contains(Formats, f) {
		return fmt.Errorf("--output %q: want text, json or yaml", string(f))
	}
	return nil
}

// Texter is something that people can read.
type Texter interface {
	Text(p *Page)
}

// Show writes what is to be shown in a format.
func Show(w io.Writer, f Format, colour bool, what Texter) error {
	var data []byte
	var err error
	switch f {
	case JSON:
		data, err = json.MarshalIndent(what, "", "  ")
		data = append(data, '\n')
	case YAML:
		data, err = yaml.Marshal(what)
	case Text:
		p := &Page{colour: colour}
		what.Text(p)
		data = []byte(p.b.String())
	default:
		return fmt.Errorf("output %q: want text, json or yaml", string(f))
	}
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// Page is what is written for people.
type Page struct {
	b      strings.Builder
	colour bool
}

// The styles of words.
const (
	plain  = ""
	bold   = "1"
	red    = "31"
	yellow = "33"
)

func (p *Page) styled(style, text string) string {
	if !p.colour || style == plain {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// Heading writes what a section is about.
func (p *Page) Heading(text string) { p.paragraph(bold, 0, text) }

// Comment writes a text as a comment of nft and of iptables-restore.
func (p *Page) Comment(text string) {
	for _, line := range Wrap(Clean(text), Width-2) {
		p.b.WriteString("# " + line + "\n")
	}
}

// Blank writes an empty line.
func (p *Page) Blank() { p.b.WriteByte('\n') }

// Paragraph writes a text that is broken at blanks, each line behind an indent.
func (p *Page) Paragraph(indent int, text string) { p.paragraph(plain, indent, text) }

// Wrong writes a text about what is wrong.
func (p *Page) Wrong(indent int, text string) { p.paragraph(red, indent, text) }

// Odd writes a text about what may be wrong.
func (p *Page) Odd(indent int, text string) { p.paragraph(yellow, indent, text) }

func (p *Page) paragraph(style string, indent int, text string) {
	for _, line := range Wrap(Clean(text), Width-indent) {
		p.b.WriteString(strings.Repeat(" ", indent) + p.styled(style, line) + "\n")
	}
}

// Row writes a name and, from a column on, what belongs to it, broken where it is too long.
func (p *Page) Row(indent int, name string, column int, text string) {
	name = strings.Repeat(" ", indent) + Clean(name)
	lines := Wrap(Clean(text), max(Width-column, 20))
	if len(lines) == 0 {
		lines = []string{""}
	}
	width := utf8.RuneCountInString(name)
	if width >= column { // a long name has a line of its own
		p.b.WriteString(name + "\n")
		name, width = "", 0
	}
	for i, line := range lines {
		if i > 0 {
			name, width = "", 0
		}
		padded := name + strings.Repeat(" ", column-width) + line
		p.b.WriteString(strings.TrimRight(padded, " ") + "\n")
	}
}

// Table writes rows whose cells stand below each other. The last cell of a row is broken where it
// is too long; where the others leave it too little room, it has lines of its own, and the one
// before it is broken.
func (p *Page) Table(indent int, rows [][]string) {
	const gap, least = 2, 24
	widths, column := widest(rows), indent
	for _, width := range widths {
		column += width + gap
	}
	beside := func(cells []string) string {
		line := ""
		for i, cell := range cells {
			cell = Clean(cell)
			line += cell + strings.Repeat(" ", widths[i]+gap-utf8.RuneCountInString(cell))
		}
		return strings.TrimRight(line, " ")
	}
	for _, row := range rows {
		last := len(row) - 1
		if column+least <= Width || last == 0 {
			p.Row(indent, beside(row[:last]), column, row[last])
			continue
		}
		if first := beside(row[:last-1]); first != "" {
			p.Row(indent, first, column-widths[last-1]-gap, row[last-1])
		} else {
			p.Paragraph(indent, row[last-1])
		}
		p.Paragraph(2*indent+gap, row[last])
	}
}

// widest are the widths of all columns but the last.
func widest(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(Clean(cell)))
		}
	}
	return widths
}

// Verbatim writes a text of ours as it is, for a program that reads it.
//
// Lines and their tabs stay; what else no terminal should see does not.
func (p *Page) Verbatim(text string) {
	for line := range strings.Lines(text) {
		line, ended := strings.CutSuffix(line, "\n")
		body := strings.TrimLeft(line, "\t")
		p.b.WriteString(line[:len(line)-len(body)] + Clean(body))
		if ended {
			p.b.WriteByte('\n')
		}
	}
}

// Wrap breaks a text at blanks. A word that is longer than a line is broken, too.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		for utf8.RuneCountInString(word) > width {
			runes := []rune(word)
			if line != "" {
				lines, line = append(lines, line), ""
			}
			lines, word = append(lines, string(runes[:width])), string(runes[width:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Clean makes control characters visible: a terminal obeys them, and authors of pods write them.
func Clean(text string) string {
	if strings.IndexFunc(text, unprintable) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unprintable(r) || r == utf8.RuneError {
			fmt.Fprintf(&b, "%q", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
