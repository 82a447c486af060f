// Package onnode has what only a pod's node knows: what the chain says for all pods, and what was
// recorded of those that are redirected. It is read here, or by this program in the node's agent.
//
//	facts := onnode.Read(onnode.Usual(), uids)
//	agent, err := onnode.Agents{Client: client, Config: config}.On(ctx, pod.Node)
//	facts, err := agent.Facts(ctx, uids)
package onnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/contract/installation"
	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
)

// FactsVerb is the command by which a node is asked for Facts, with uids behind it.
const FactsVerb = "node-facts"

// Dirs are the directories of a node.
type Dirs struct {
	Run  string // names.RunDir
	Conf string // of the CNI configuration; "" is where the installation says
}

// Usual are those of a node unless others are configured.
func Usual() Dirs { return Dirs{Run: names.RunDir} }

// Facts are what a node knows of some pods.
type Facts struct {
	Entry json.RawMessage `json:"entry,omitempty"` // the plugin's, in the chain
	File  string          `json:"file,omitempty"`  // that has it
	// Records are those of the pods, by the ids of their sandboxes.
	Records []record.Record `json:"records,omitempty"`
	Unread  []string        `json:"unread,omitempty"` // what could not be read, and why
}

// Read reads what this node knows of the pods with some uids.
func Read(d Dirs, uids []string) Facts {
	var f Facts
	records, err := record.Dir(filepath.Join(d.Run, names.Records)).List()
	if err != nil {
		f.Unread = append(f.Unread, err.Error())
	}
	for _, r := range records {
		if slices.Contains(uids, r.Pod.UID) {
			f.Records = append(f.Records, r)
		}
	}
	if err := f.readEntry(d); err != nil {
		f.Unread = append(f.Unread, err.Error())
	}
	return f
}

// readEntry looks for the entry where the installation has put it.
func (f *Facts) readEntry(d Dirs) error {
	there, err := installation.Read(d.Run)
	if err != nil {
		return err
	}
	dirs := []string{d.Conf}
	if d.Conf == "" {
		dirs = []string{there.Multus, there.ConfDir, names.ConfDir}
	}
	var looked []string
	for _, dir := range dirs {
		if dir == "" || slices.Contains(looked, dir) {
			continue
		}
		looked = append(looked, dir)
		if err := f.readDir(dir, 1); err != nil || f.Entry != nil {
			return err
		}
	}
	return fmt.Errorf("no file of %s has an entry of %s: is it installed on this node?",
		strings.Join(looked, ", "), names.Plugin)
}

// maxFile is how much is read of a file of the chain.
const maxFile = 1 << 20

func (f *Facts) readDir(dir string, depth int) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		// A drop-in is in a directory that has the network's name.
		if file.IsDir() && depth > 0 && file.Name() != names.CredentialsDir {
			err := f.readDir(filepath.Join(dir, file.Name()), depth-1)
			if err != nil || f.Entry != nil {
				return err
			}
		}
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(file.Name())) ||
			!file.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, file.Name())
		data, err := bounded.File(path, maxFile)
		if err != nil {
			return err
		}
		if entry, err := Entry(data); err == nil {
			var compact bytes.Buffer
			if json.Compact(&compact, entry) == nil {
				f.Entry, f.File = compact.Bytes(), path
				return nil
			}
		}
	}
	return nil
}

// Entry returns the plugin's entry in a file of a network's configuration: the whole file, or the
// one of our type in a chain.
func Entry(file []byte) ([]byte, error) {
	var list struct {
		Type    string            `json:"type"`
		Plugins []json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(file, &list); err != nil {
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	if list.Type == names.Plugin {
		return file, nil
	}
	for _, one := range list.Plugins {
		var entry struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(one, &entry) == nil && entry.Type == names.Plugin {
			return one, nil
		}
	}
	return nil, errors.New("want a plugin of type " + names.Plugin + ", or a chain with one")
}
