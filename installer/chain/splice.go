package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A network's file is edited as text, not decoded and encoded again: what is not our entry keeps
// its bytes. encoding/json would sort the keys, write numbers anew (1500.0, 1e9, those beyond
// float64), escape <, > and &, drop all but one of two equal keys, and undo the layout. None of
// that changes what a runtime does, but the file is somebody else's: its owner, who compares it or
// finds it by its digest, would see a change that is not ours and write the file again, without our
// entry. encoding/json only says where values begin and end.

// span is where a value stands in a document.
type span struct{ from, to int }

func (s span) of(doc []byte) []byte { return doc[s.from:s.to] }

// plugins finds the elements of the top-level list "plugins". If the key is there twice, the last
// one counts, as in libcni.
func plugins(doc []byte) ([]span, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	if err := open(d, '{'); err != nil {
		return nil, err
	}
	list := span{-1, -1}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := next(d)
		if err != nil {
			return nil, err
		}
		if key == "plugins" {
			list = value
		}
	}
	if list.from < 0 {
		return nil, errors.New(`no "plugins"`)
	}
	d = json.NewDecoder(bytes.NewReader(list.of(doc)))
	if err := open(d, '['); err != nil {
		return nil, err
	}
	var all []span
	for d.More() {
		s, err := next(d)
		if err != nil {
			return nil, err
		}
		all = append(all, span{list.from + s.from, list.from + s.to})
	}
	return all, nil
}

func open(d *json.Decoder, delim json.Delim) error {
	t, err := d.Token()
	if err == nil && t != delim {
		err = fmt.Errorf("have %v, want %v", t, delim)
	}
	return err
}

func next(d *json.Decoder) (span, error) {
	var raw json.RawMessage
	err := d.Decode(&raw)
	end := int(d.InputOffset())
	return span{end - len(raw), end}, err
}

// appendOurs puts our entry after the last plugin, laid out like it.
func appendOurs(doc, ours []byte) ([]byte, error) {
	all, err := plugins(doc)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("no plugin to be chained to")
	}
	last := all[len(all)-1]
	gap := doc[len(bytes.TrimRight(doc[:last.from], " \t\r\n")):last.from]
	text, err := laidOut(ours, last.of(doc))
	if err != nil {
		return nil, err
	}
	return slices.Concat(doc[:last.to], []byte(","), gap, text, doc[last.to:]), nil
}

// laidOut writes a JSON object as the neighbour is written: on one line, or with its indentation
// and its ends of lines.
func laidOut(object, neighbour []byte) ([]byte, error) {
	var b bytes.Buffer
	at := bytes.LastIndexByte(neighbour, '\n')
	if at < 0 {
		err := json.Compact(&b, object)
		return b.Bytes(), err
	}
	prefix := blanks(string(neighbour[at+1:]))
	indent := "  "
	if strings.HasPrefix(prefix, "\t") {
		indent = "\t"
	}
	first := bytes.TrimLeft(neighbour[1:], " \t\r")
	if bytes.HasPrefix(first, []byte("\n")) {
		first = bytes.TrimLeft(first, "\r\n")
		if more, ok := strings.CutPrefix(blanks(string(first)), prefix); ok {
			indent = more
		}
	}
	if err := json.Indent(&b, object, prefix, indent); err != nil {
		return nil, err
	}
	if at > 0 && neighbour[at-1] == '\r' {
		return bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte("\r\n")), nil
	}
	return b.Bytes(), nil
}

// blanks returns the white space that a line begins with.
func blanks(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

// removeOurs takes our entries out of a list that has others.
func removeOurs(f File) ([]byte, error) {
	for {
		n, err := f.parse()
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(n.inline, entry.ours)
		if at < 0 {
			return f.Data, nil
		}
		all, err := plugins(f.Data)
		if err != nil {
			return nil, err
		}
		switch {
		case at > 0:
			f.Data = cut(f.Data, all[at-1].to, all[at].to)
		case len(all) > 1:
			f.Data = cut(f.Data, all[0].from, all[1].from)
		default:
			return nil, n.chainable()
		}
	}
}

func cut(doc []byte, from, to int) []byte { return slices.Concat(doc[:from], doc[to:]) }

// settled reports whether our entry is in a list as it shall be: once, the last, and the wanted
// value however it is written.
func settled(f File, ours []byte) bool {
	n, err := f.parse()
	if err != nil {
		return false
	}
	first := slices.IndexFunc(n.inline, entry.ours)
	return first >= 0 && first == len(n.inline)-1 && same(n.inline[first].data, ours)
}

// same compares JSON values.
func same(a, b []byte) bool {
	va, errA := value(a)
	vb, errB := value(b)
	return errA == nil && errB == nil && reflect.DeepEqual(va, vb)
}

func value(data []byte) (any, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err := d.Decode(&v)
	return v, err
}

// pretty writes a JSON object as a file of its own.
func pretty(object []byte) ([]byte, error) {
	var b bytes.Buffer
	err := json.Indent(&b, bytes.TrimSpace(object), "", "  ")
	return append(b.Bytes(), '\n'), err
}
