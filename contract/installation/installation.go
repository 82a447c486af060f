// Package installation is what the agent that is in charge of a node writes down about where it put
// things, for whoever uninstalls it and for whoever looks for a fault.
//
//	there, err := installation.Read(names.RunDir)
package installation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Installation is the one that is in charge.
type Installation struct {
	ID string `json:"id"` // "" if it is not known

	// Directories on the node.
	ConfDir string `json:"confDir"`       // of the chain that has our entry
	BinDir  string `json:"binDir"`        // of the plugin
	Multus  string `json:"multusConfDir"` // of Multus' configuration, if that has our entry

	Socket string `json:"runtimeSocket"` // "" if it was not known which of several it is
}

// Path is where it is written down, in the directory names.RunDir.
func Path(runDir string) string { return filepath.Join(runDir, "installation") }

// Read returns the installation that was in charge last; nothing if there was none since the
// node has started.
func Read(runDir string) (Installation, error) {
	var i Installation
	data, err := os.ReadFile(Path(runDir))
	if errors.Is(err, fs.ErrNotExist) {
		return i, nil
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the path is in the message already
	}
	if err == nil {
		err = json.Unmarshal(data, &i)
	}
	if err != nil {
		return Installation{}, fmt.Errorf("read %s: %w", Path(runDir), err)
	}
	return i, nil
}
