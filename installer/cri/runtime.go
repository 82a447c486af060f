package cri

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Runtime is what is known of a node's container runtime. What is not known is empty.
type Runtime struct {
	Name    string   // as the CRI has it: containerd, cri-o
	Version string   // as the runtime has it, such as v2.1.0
	ConfDir string   // what it is configured with
	BinDirs []string // in the order in which it looks for a plugin
	Chain   []byte   // what it has loaded: containerd's info["cniconfig"], JSON
	// LastLoad is what came of the last loading: containerd's lastCNILoadStatus, "OK" or an error.
	LastLoad     string
	NetworkReady bool   // its condition NetworkReady
	Message      string // why the network is not ready
	// ManyNetworks says that it loads more than the first network of its directory: containerd's
	// max_conf_num, 1 by default.
	ManyNetworks bool
	RunsPod      bool // whether the pod that Ask was given is in a sandbox of this runtime
}

// FromNode is what a Node object says: status.nodeInfo.containerRuntimeVersion, as in
// containerd://1.6.20.
func FromNode(containerRuntimeVersion string) Runtime {
	name, version, _ := strings.Cut(containerRuntimeVersion, "://")
	return Runtime{Name: name, Version: version}
}

// dropIns has the versions with which the runtimes' libcni merges drop-ins, 1.3.
var dropIns = map[string][2]int{"containerd": {2, 1}, "cri-o": {1, 33}}

// LoadsDropIns reports whether the runtime is known to merge drop-ins into a network. An unknown
// one is not.
func (r Runtime) LoadsDropIns() bool {
	first, known := dropIns[r.Name]
	var version [2]int
	// What follows the two numbers does not matter.
	_, err := fmt.Sscanf(strings.TrimPrefix(r.Version, "v"), "%d.%d", &version[0], &version[1])
	return known && err == nil && slices.Compare(version[:], first[:]) >= 0
}

// SkipsBroken reports whether the runtime passes over a file of its conf directory that it cannot
// load: CRI-O does, and containerd has no network then.
func (r Runtime) SkipsBroken() bool { return r.Name == "cri-o" }

// loadedChain is containerd's form.
type loadedChain struct {
	PluginDirs    []string
	PluginConfDir string
	Networks      []struct {
		Config struct {
			Plugins []struct{ Network struct{ Type string } }
		}
	}
}

func parseChain(data []byte) (c loadedChain, known bool) {
	err := json.Unmarshal(data, &c)
	return c, err == nil && c.PluginConfDir != ""
}

// Runs reports whether a plugin is in what the runtime has loaded, drop-ins included, if the
// runtime reports it.
func (r Runtime) Runs(pluginType string) (known, yes bool) {
	c, known := parseChain(r.Chain)
	for _, n := range c.Networks {
		for _, p := range n.Config.Plugins {
			if p.Network.Type == pluginType {
				return known, true
			}
		}
	}
	return known, false
}

// Refuses is the error of directories that the runtime does not use; it names the ones that it does
// use. What a runtime does not report, it does not refuse.
func (r Runtime) Refuses(confDir, binDir string) error {
	if r.ConfDir != "" && !samePlace(r.ConfDir, confDir) {
		return fmt.Errorf("use conf directory %s: %s reads %s: configure that one", confDir, r.Name,
			r.ConfDir)
	}
	uses := func(dir string) bool { return samePlace(dir, binDir) }
	if len(r.BinDirs) > 0 && !slices.ContainsFunc(r.BinDirs, uses) {
		return fmt.Errorf("use plugin directory %s: %s looks for plugins in %s: configure that one",
			binDir, r.Name, strings.Join(r.BinDirs, ", "))
	}
	return nil
}

// samePlace knows links, where they can be seen from here.
func samePlace(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
