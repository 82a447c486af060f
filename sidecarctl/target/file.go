package target

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// maxKinds is how many kinds an error lists.
const maxKinds = 8

// FromFile returns the pods and the pod templates of a manifest, in their order: YAML or JSON, of
// any number of documents and Lists. name is the file's, for messages. Objects of other kinds are
// passed over; a file without any pod is an error, as is a mistake in one of them.
//
// What has a pod template is found by where the template is, whatever its kind and version. A
// namespace that is written goes before that of o.
func FromFile(r io.Reader, name string, o Options) ([]Pod, error) {
	pods, err := fromFile(r, o)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", foreign.Cut(name), err)
	}
	return pods, nil
}

func fromFile(r io.Reader, o Options) ([]Pod, error) {
	data, err := readAll(r)
	if err != nil {
		return nil, err
	}
	documents, err := decode(data)
	if err != nil {
		return nil, err
	}
	f := finder{options: o}
	for i, document := range documents {
		if err := f.document(document); err != nil && len(documents) > 1 {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		} else if err != nil {
			return nil, err
		}
	}
	if len(f.pods) == 0 {
		return nil, errors.New(f.nothing())
	}
	return f.pods, nil
}

// readAll reads a manifest. A directory is told from a file before it is read: what
// reading one gives is another error on each system.
func readAll(r io.Reader) ([]byte, error) {
	if file, ok := r.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if info, err := file.Stat(); err == nil && info.IsDir() {
			return nil, errors.New("it is a directory; name one of its files, " +
				"or pass several through standard input")
		}
	}
	data, err := bounded.Read(r, bounded.Manifest)
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the path is in the message already
	}
	if _, large := errors.AsType[bounded.TooLarge](err); large {
		err = fmt.Errorf("%w; take out the pods that it is about", err)
	}
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("it is empty; want a Pod, or an object with a pod template")
	}
	return data, nil
}

// nothing says what is in a file that has no pod.
func (f *finder) nothing() string {
	const want = "; want a Pod, or an object with a pod template, as a Deployment"
	kinds := f.others
	if len(kinds) == 0 {
		return "there is no object in it" + want
	}
	more := ""
	if len(kinds) > maxKinds {
		more = fmt.Sprintf(" and %d more", len(kinds)-maxKinds)
		kinds = kinds[:maxKinds]
	}
	return "there is no pod in it, only " + strings.Join(kinds, ", ") + more + want
}
