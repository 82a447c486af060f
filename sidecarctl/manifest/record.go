package manifest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	kjson "sigs.k8s.io/json"
)

const (
	// maxRecord is how long the annotation may be. The API server bounds all annotations of an
	// object together, to 256 KiB; kubectl apply writes most of them there twice.
	maxRecord = 32 << 10

	// maxUnpacked is how much a record may come to when it is read.
	maxUnpacked = 1 << 20
)

var errLong = fmt.Errorf("what was replaced is longer than %d KiB", maxRecord>>10)

// record is what an annotation holds. All records of a document are needed to give its text back.
type record struct {
	By       string    `json:"by"`       // the command that changed the pod
	Original []byte    `json:"original"` // SHA-256 of the document's text as its author wrote it
	Edits    []oldText `json:"edits"`
	Undo     *undo     `json:"undo"`
}

// oldText is what stood in the document. Where is counted in the text with the records empty.
type oldText struct {
	At   int    `json:"at"`
	Len  int    `json:"len,omitempty"` // of what stands there now
	Text string `json:"text,omitempty"`
}

func digest(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:]
}

// pack writes a record for an annotation, or returns errLong. What is packed twice is the same
// twice: there is no time in it.
func (r *record) pack() (string, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	if len(data) > maxUnpacked {
		return "", errLong
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return "", err
	}
	if _, err := w.Write(data); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	text := base64.StdEncoding.EncodeToString(b.Bytes())
	if len(text) > maxRecord {
		return "", errLong
	}
	return text, nil
}

// unpack reads an annotation.
func unpack(value any) (*record, error) {
	text, ok := value.(string)
	if !ok || len(text) > maxRecord {
		return nil, fmt.Errorf("want a string of at most %d KiB", maxRecord>>10)
	}
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("it is not base64")
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, errors.New("it is not gzip")
	}
	data, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	if err != nil || len(data) > maxUnpacked {
		return nil, errors.New("it cannot be unpacked")
	}
	var rec record
	unknown, err := kjson.UnmarshalStrict(data, &rec)
	// What puts a record in changes metadata, so what undoes it does.
	if err != nil || len(unknown) > 0 || rec.Undo == nil || rec.Undo.Keys["metadata"] == nil {
		return nil, errors.New("it is not JSON of the form that is written")
	}
	return &rec, nil
}

// oldTexts returns for each pod what undoes its edits, which are sorted.
func oldTexts(text []byte, edits []edit, pods int) [][]oldText {
	old := make([][]oldText, pods)
	moved := 0
	for _, one := range edits {
		old[one.pod] = append(old[one.pod], oldText{
			At: one.start + moved, Len: len(one.text), Text: string(text[one.start:one.end]),
		})
		moved += len(one.text) - (one.end - one.start)
	}
	return old
}

// original gives a document's text back, whose records are empty; nil if it has been changed since.
func original(text []byte, records []*record) []byte {
	var edits []edit
	for _, r := range records {
		for _, old := range r.Edits {
			if old.At < 0 || old.Len < 0 || old.At > len(text) || old.Len > len(text)-old.At {
				return nil
			}
			edits = append(edits, edit{span: span{old.At, old.At + old.Len}, text: old.Text})
		}
	}
	edits, err := sorted(edits, len(text))
	if err != nil {
		return nil
	}
	text = apply(text, edits)
	sum := digest(text)
	for _, r := range records {
		if !bytes.Equal(sum, r.Original) {
			return nil
		}
	}
	return text
}
