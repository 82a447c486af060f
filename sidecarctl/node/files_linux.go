package node

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
)

// maxFile is how large a file may be. None that is asked for is larger where all is well.
const maxFile = 4 << 20

// files are those of a node.
type files struct {
	root string // that of the file system as this process sees it
	host string // the host's, mounted elsewhere; "" if it is nowhere

	inAgent bool // root is that of the agent's container
}

// at is where a path of the node is, for what has its own name in the agent's container, too.
func (f files) at(path string) string { return filepath.Join(f.root, path) }

// read returns the contents of a file.
func (f files) read(path string) ([]byte, error) { return readFile(f.at(path)) }

// readHost does the same for what the agent's container has only with the host's root directory.
func (f files) readHost(path string) ([]byte, error) {
	switch {
	case f.host != "":
		return readFile(filepath.Join(f.host, path))
	case f.inAgent:
		return nil, &fs.PathError{Op: "read", Path: path, Err: fs.ErrNotExist}
	}
	return f.read(path)
}

// listHost returns the paths that match a pattern, on the node.
func (f files) listHost(pattern string) []string {
	root := f.root
	if f.host != "" {
		root = f.host
	} else if f.inAgent {
		return nil
	}
	found, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are ours
	for i, path := range found {
		found[i] = "/" + strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
	}
	return found
}

// text is the first line of a small file; "" if there is none.
func (f files) text(path string) string {
	data, err := f.read(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

func readFile(path string) ([]byte, error) { return bounded.File(path, maxFile) }

// confFiles are the endings of what is read in a conf directory.
var confFiles = []string{".conf", ".conflist", ".json", chain.SavedSuffix}

// confDir reads a conf directory for package chain, with the drop-ins in its sub-directories.
func (f files) confDir(path string) (chain.Dir, error) {
	root := f.at(path)
	top, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var dir chain.Dir
	for _, e := range top {
		if e.Name() == names.CredentialsDir {
			continue
		}
		one := confFile(root, e.Name())
		if one.Mode.IsDir() {
			var inside []fs.DirEntry
			inside, one.Err = os.ReadDir(filepath.Join(root, e.Name()))
			for _, i := range inside {
				dir = append(dir, confFile(root, filepath.Join(e.Name(), i.Name())))
			}
		}
		dir = append(dir, one)
	}
	return dir, nil
}

func confFile(root, name string) chain.File {
	path := filepath.Join(root, name)
	f := chain.File{Name: name}
	info, err := os.Stat(path)
	if err != nil {
		f.Err = err
		return f
	}
	f.Mode = info.Mode()
	if !f.Mode.IsDir() && slices.Contains(confFiles, filepath.Ext(name)) {
		f.Data, f.Err = readFile(path)
	}
	return f
}
