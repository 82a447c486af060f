// Package record keeps what ADD has done, one file an attachment, until DEL or the end of the pod:
// CHECK and the node agent verify a pod's rules against the policy that was programmed, not against
// what its annotations say today.
//
//	dir := record.Dir("/run/sidecar-cni/state")
//	err := dir.Write(record.Record{Attachment: record.Attachment{Container: id, Interface: "eth0"}, Policy: policy})
//	all, err := dir.List()
//
// Be aware: the directory is meant to be on a tmpfs, since namespaces do not outlive a boot either.
// So nothing is synced. A record says what a kernel was given; whether it still is so, only the
// kernel knows.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Record is what is known about a redirected pod.
type Record struct {
	// Names the record's file.
	Attachment

	Network  string          `json:"network"`  // whose GC collects the record; empty: none
	Netns    Netns           `json:"netns"`    // in which the rules are
	Pod      Pod             `json:"pod"`      // to which the namespace belongs
	Backend  string          `json:"backend"`  // that wrote the rules, one of redirect.Backends
	Revision string          `json:"revision"` // of the ruleset, see Revision
	Policy   redirect.Policy `json:"policy"`   // from which they were compiled; zero from Heads
}

// Attachment is what CNI calls a container's interface in a network: the key of a record.
type Attachment struct {
	// As the runtime passes them: CNI_CONTAINERID and CNI_IFNAME. See StandIn for who does not know
	// the container's id.
	Container string `json:"container"`
	Interface string `json:"interface"`
}

// MainInterface is the one of a pod's own network: container runtimes call it so, whatever the
// network is.
const MainInterface = "eth0"

// StandIn is the attachment under which a pod is recorded whose sandbox's id is not known. No
// runtime gives such ids.
func StandIn(uid string) Attachment {
	return Attachment{Container: "repair-" + uid, Interface: MainInterface}
}

// Netns is a network namespace: where it was, and which one it was. A path may come to lead to
// another.
type Netns struct {
	Path string `json:"path"` // as the runtime passed it, or of a process in /proc

	// As stat(2) reported them: another namespace has others while this one exists.
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// Pod says whose namespace it is.
type Pod struct {
	// As the API server has them.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Dir is the directory of the records.
type Dir string

const (
	suffix = ".json"
	// separator stands in no container's id and in no interface's name.
	separator = ":"
	// unfinished begins the name of a file that is being written, or was when its writer was
	// killed.
	unfinished = "."
)

// file returns the name of an attachment's file. What would lead out of the directory names
// nothing.
func (a Attachment) file() (string, error) {
	if a.Container == "" || a.Interface == "" || strings.HasPrefix(a.Container, unfinished) ||
		strings.ContainsAny(a.Container+a.Interface, "/\x00"+separator) {
		return "", fmt.Errorf("name record: container %q, interface %q: want an id and a name",
			a.Container, a.Interface)
	}
	return a.Container + separator + a.Interface + suffix, nil
}

// Write puts a record in place of an earlier one of the attachment. Readers see either, nothing in
// between.
func (d Dir) Write(r Record) error {
	draft, err := d.Draft(r)
	if err != nil {
		return err
	}
	return draft.Publish()
}

// A Draft is a record that is written, and that no reader sees yet. It knows its directory by a
// descriptor: who publishes it may have another root by then.
type Draft struct {
	dir        *os.Root
	temp, name string
}

// Draft writes a record, as far as that can fail for want of room or rights. Publish or Discard
// ends it.
func (d Dir) Draft(r Record) (Draft, error) {
	name, err := r.file()
	if err != nil {
		return Draft{}, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return Draft{}, fmt.Errorf("write record: %w", err)
	}
	temp, err := d.create(name)
	if err != nil {
		return Draft{}, fmt.Errorf("write record: %w", err)
	}
	_, err = temp.Write(data)
	dir, opened := os.OpenRoot(string(d))
	if err = errors.Join(err, temp.Close(), opened); err != nil {
		os.Remove(temp.Name())
		return Draft{}, fmt.Errorf("write record: %w", err)
	}
	return Draft{dir, filepath.Base(temp.Name()), name}, nil
}

// Publish puts the record in place of an earlier one.
func (d Draft) Publish() error {
	if err := d.dir.Rename(d.temp, d.name); err != nil {
		d.Discard()
		return fmt.Errorf("write record: %w", err)
	}
	_ = d.dir.Close() // it was only read
	return nil
}

// Discard forgets it. What cannot be deleted is no record, and Delete takes it along.
func (d Draft) Discard() {
	_ = d.dir.Remove(d.temp)
	_ = d.dir.Close()
}

// create makes a file that only root can read, and the directory if need be.
func (d Dir) create(name string) (*os.File, error) {
	pattern := unfinished + name + separator + "*"
	temp, err := os.CreateTemp(string(d), pattern)
	if !errors.Is(err, fs.ErrNotExist) {
		return temp, err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, err
	}
	return os.CreateTemp(string(d), pattern)
}

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// Read returns the record of an attachment. Without one the error is fs.ErrNotExist.
func (d Dir) Read(a Attachment) (Record, error) {
	name, err := a.file()
	if err != nil {
		return Record{}, err
	}
	r, err := d.read(name)
	if err == nil && r.Attachment != a {
		err = fmt.Errorf("read record %s: it is about container %q, interface %q", d.path(name),
			r.Container, r.Interface)
	}
	return r, err
}

func (d Dir) read(name string) (Record, error) {
	data, err := os.ReadFile(d.path(name))
	if err != nil {
		return Record{}, fmt.Errorf("read record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("read record %s: %w", d.path(name), err)
	}
	return r, nil
}

// List returns the records in the order of their containers' ids. One that cannot be read is an
// error, beside the others.
func (d Dir) List() ([]Record, error) {
	return d.list(func(*Record) {})
}

// Heads lists the records without their policies, of which each may be as large as what a pod may
// ask for.
func (d Dir) Heads() ([]Record, error) {
	return d.list(func(r *Record) { r.Policy = redirect.Policy{} })
}

func (d Dir) list(keep func(*Record)) ([]Record, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	var all []Record
	var errs []error
	for _, name := range names {
		if strings.HasPrefix(name, unfinished) || !strings.HasSuffix(name, suffix) {
			continue
		}
		r, err := d.read(name)
		switch {
		case err == nil:
			keep(&r)
			all = append(all, r)
		case !errors.Is(err, fs.ErrNotExist): // deleted meanwhile
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// OfContainer returns the records of a sandbox that can be read, one for each of its interfaces
// that was programmed.
func (d Dir) OfContainer(container string) []Record {
	names, err := d.names()
	if err != nil {
		return nil
	}
	var its []Record
	for _, name := range names {
		if !strings.HasPrefix(name, container+separator) || !strings.HasSuffix(name, suffix) {
			continue
		}
		if r, err := d.read(name); err == nil {
			its = append(its, r)
		}
	}
	return its
}

// Age is how long ago the record of an attachment was written. That of one that is gone is none.
func (d Dir) Age(a Attachment) time.Duration {
	name, err := a.file()
	if err != nil {
		return 0
	}
	info, err := os.Stat(d.path(name))
	if err != nil {
		return 0
	}
	return time.Since(info.ModTime())
}

// Delete removes the record of an attachment and reports whether there was one. What a killed
// writer left goes as well.
func (d Dir) Delete(a Attachment) (bool, error) {
	name, err := a.file()
	if err != nil {
		return false, err
	}
	names, err := d.names()
	if err != nil {
		return false, err
	}
	var errs []error
	there := false
	for _, one := range names {
		if one != name && !strings.HasPrefix(one, unfinished+name+separator) {
			continue
		}
		err := os.Remove(d.path(one))
		there = there || one == name && err == nil
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("delete record: %w", err))
		}
	}
	return there, errors.Join(errs...)
}

// names lists the files; a directory that nobody has made yet has none.
func (d Dir) names() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list records: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}
