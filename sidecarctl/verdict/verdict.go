// Package verdict is what a command thinks of one thing: how it is, and what to do about it.
//
//	row := verdict.Row{About: "clock", Verdict: verdict.Wrong, What: "it is 2 h late",
//		Remedy: "start a time service on the node"}
package verdict

import (
	"slices"
	"unicode/utf8"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// Word is a verdict.
type Word string

// The verdicts.
const (
	OK      Word = "ok"
	Warning Word = "warning" // it works, and somebody should look after it
	Unknown Word = "unknown" // it could not be read
	Wrong   Word = "wrong"   // pods do not start, or start without redirection
)

// Row is about one thing.
type Row struct {
	About   string `json:"about"`            // the thing, in a word or two
	Verdict Word   `json:"verdict"`          // ok, warning, unknown or wrong
	What    string `json:"what"`             // what was found, in a sentence
	Remedy  string `json:"remedy,omitempty"` // what to do, if anything is
}

// Count returns how many rows have a verdict.
func Count(rows []Row, word Word) int {
	n := 0
	for _, r := range rows {
		if r.Verdict == word {
			n++
		}
	}
	return n
}

// narrow is how long the name of a thing may be to have the rest beside it.
const narrow = 28

// Text writes rows for people, each with its remedy in a line of its own. A row without a name is
// about the thing above it.
func Text(p *view.Page, rows []Row) {
	const indent = 2
	beside := true
	for _, r := range rows {
		beside = beside && utf8.RuneCountInString(view.Clean(r.About)) <= narrow
	}
	var cells [][]string
	for _, r := range rows {
		row := []string{string(r.Verdict), r.What}
		remedy := []string{"", "remedy: " + r.Remedy}
		if beside {
			row, remedy = slices.Insert(row, 0, r.About), slices.Insert(remedy, 0, "")
		} else if r.About != "" {
			p.Table(2*indent, cells)
			cells = nil
			p.Paragraph(indent, r.About)
		}
		cells = append(cells, row)
		if r.Remedy != "" {
			cells = append(cells, remedy)
		}
	}
	if beside {
		p.Table(indent, cells)
	} else {
		p.Table(2*indent, cells)
	}
}
