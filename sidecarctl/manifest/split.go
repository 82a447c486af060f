package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// byteOrderMark stands before the first document of some editors' files.
const byteOrderMark = "\uFEFF"

// splitJSON cuts a file of JSON objects behind each of them.
func splitJSON(data []byte) ([][]byte, error) {
	var parts [][]byte
	from := 0
	for decoder := json.NewDecoder(bytes.NewReader(data)); ; {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		at := int(decoder.InputOffset())
		switch {
		case errors.Is(err, io.EOF):
			if len(parts) > 0 {
				last := len(parts) - 1
				parts[last] = data[from-len(parts[last]):]
			}
			return parts, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errors.New("not valid JSON: it ends in the middle of an object")
		case err != nil:
			begin := len(data) - len(bytes.TrimLeft(data[at:], " \t\r\n"))
			return nil, fmt.Errorf("not valid JSON: in the object that begins at line %d: %w",
				bytes.Count(data[:begin], []byte("\n"))+1, err)
		}
		parts = append(parts, data[from:at])
		from = at
	}
}

// splitYAML cuts a file of YAML before each line that starts with --- and behind each that starts
// with ... What belongs to no document, such as comments, is part of the one behind it.
func splitYAML(data []byte) [][]byte {
	var parts [][]byte
	from, begun := 0, false
	for i := 0; i < len(data); {
		line := data[i:nextLine(data, i)]
		if marks(line, "---") {
			if begun {
				parts = append(parts, data[from:i])
				from = i
			}
			begun = true
		}
		i += len(line)
		if marks(line, "...") {
			parts = append(parts, data[from:i])
			from, begun = i, false
		} else if !isPrologue(line) {
			begun = true
		}
	}
	return append(parts, data[from:])
}

// marks reports whether a line starts with a mark of three characters that stands alone.
func marks(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || isSpace(rest[0]) || breakLen(rest, 0) > 0)
}

// isPrologue reports whether a line may stand before a document: a directive, a comment, nothing.
func isPrologue(line []byte) bool {
	trimmed := bytes.TrimSpace(line)
	return len(trimmed) == 0 || trimmed[0] == '#' || line[0] == '%'
}
