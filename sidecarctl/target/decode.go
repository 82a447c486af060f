package target

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v2"
	kjson "sigs.k8s.io/json"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// decode returns the documents of a file as JSON's types, without the empty ones. What begins as
// JSON is tried as JSON: YAML does not read all of it, and reads it slower. It may be YAML all the
// same, as JSON documents with --- between them are.
//
// YAML is read by the library that kubectl reads it by, so that a word which is not a string to
// kubectl, as yes, is none here.
func decode(data []byte) ([]any, error) {
	var syntax error
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		documents, err := fromJSON(data)
		if !isSyntax(err) {
			return documents, err
		}
		syntax = err
	}
	documents, err := fromYAML(data)
	if syntax != nil && isSyntax(err) {
		err = syntax
	}
	if isSyntax(err) && bytes.Contains(data, []byte("{{")) {
		return nil, fmt.Errorf("%w; a template of a chart has to be rendered first, "+
			"by helm template", err)
	}
	return documents, err
}

// syntaxError says that a file is not what it was read as.
type syntaxError struct {
	format string
	cause  error
}

func (e *syntaxError) Error() string {
	cause := strings.TrimPrefix(strings.TrimPrefix(e.cause.Error(), "yaml: "), "json: ")
	return "not valid " + e.format + ": " + foreign.Line(cause)
}

func (e *syntaxError) Unwrap() error { return e.cause }

func isSyntax(err error) bool {
	var syntax *syntaxError
	return errors.As(err, &syntax)
}

// fromJSON reads objects one behind the other.
func fromJSON(data []byte) ([]any, error) {
	var documents []any
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		switch {
		case errors.Is(err, io.EOF):
			return documents, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, &syntaxError{"JSON", errors.New("it ends in the middle of an object")}
		case err != nil:
			line := bytes.Count(data[:decoder.InputOffset()], []byte("\n")) + 1
			return nil, &syntaxError{"JSON",
				fmt.Errorf("in the object that begins at line %d: %w", line, err)}
		}
		document, err := oneJSON(raw)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
}

// oneJSON refuses a key that is there twice: which of the two counts is for each reader to say.
func oneJSON(raw []byte) (any, error) {
	var document any
	twice, err := kjson.UnmarshalStrict(raw, &document, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil, &foreign.Error{Text: "not valid JSON: " + foreign.Line(err.Error()), Cause: err}
	}
	if len(twice) > 0 {
		return nil, &foreign.Error{Text: foreign.Line(twice[0].Error()) + "; keep one of them",
			Cause: twice[0]}
	}
	return document, nil
}

func fromYAML(data []byte) ([]any, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	// A key that overrides one merged in is one that is there twice to this library. So duplicates
	// are not looked for in the rare file that merges.
	decoder.SetStrict(!bytes.Contains(data, []byte("<<:")))
	left := budget(bounded.Manifest)
	var documents []any
	for {
		var document any
		err := decoder.Decode(&document)
		var mistakes *yaml.TypeError
		switch {
		case errors.Is(err, io.EOF):
			return documents, nil
		case errors.As(err, &mistakes) && len(mistakes.Errors) > 0:
			return nil, &foreign.Error{Cause: err,
				Text: foreign.Line(mistakes.Errors[0]) + "; keep one of them"}
		case err != nil:
			return nil, &syntaxError{"YAML", err}
		case document == nil:
			continue
		}
		value, err := left.convert(document, 0)
		if err != nil {
			return nil, err
		}
		documents = append(documents, value)
	}
}
