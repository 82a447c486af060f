package node

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
)

// moduleFiles is what a node's files say about the modules of its kernel. No module is loaded to
// find out.
type moduleFiles struct {
	fixed    bool            // the kernel loads no modules: what it has is built in
	loaded   map[string]bool // by /proc/modules
	builtIn  map[string]bool // by modules.builtin
	onDisk   map[string]bool // by modules.dep
	listed   bool            // the node's /lib/modules could be read
	blocked  map[string]bool // by modprobe's configuration
	disabled bool            // kernel.modules_disabled: none is loaded until the next boot
}

func (f files) modules(release string) moduleFiles {
	m := moduleFiles{loaded: map[string]bool{}, blocked: map[string]bool{}}
	loaded, err := f.read("/proc/modules")
	m.fixed = err != nil
	for line := range strings.SplitSeq(string(loaded), "\n") {
		name, _, _ := strings.Cut(line, " ")
		m.loaded[name] = true
	}
	m.disabled = f.text("/proc/sys/kernel/modules_disabled") == "1"
	for _, dir := range []string{"/lib/modules", "/usr/lib/modules"} {
		dep, err := f.readHost(filepath.Join(dir, release, "modules.dep"))
		if err != nil {
			continue
		}
		m.listed, m.onDisk = true, moduleNames(dep)
		builtIn, _ := f.readHost(filepath.Join(dir, release, "modules.builtin")) // it is empty then
		m.builtIn = moduleNames(builtIn)
		break
	}
	for _, dir := range []string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"} {
		for _, path := range f.listHost(dir + "/modprobe.d/*.conf") {
			data, _ := f.readHost(path) // one that cannot be read says nothing
			m.block(string(data))
		}
	}
	return m
}

// moduleNames reads a list of files of modules, as in kernel/net/netfilter/nft_ct.ko.zst.
func moduleNames(list []byte) map[string]bool {
	names := map[string]bool{}
	for line := range strings.SplitSeq(string(list), "\n") {
		path, _, _ := strings.Cut(line, ":")
		if name, _, found := strings.Cut(filepath.Base(path), ".ko"); found {
			names[strings.ReplaceAll(name, "-", "_")] = true
		}
	}
	return names
}

// block reads modprobe's configuration. A module that is only on the blacklist is loaded all the
// same where it is asked for by its own name; those of nftables are asked for by an alias.
func (m moduleFiles) block(configuration string) {
	for line := range strings.SplitSeq(configuration, "\n") {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		name := strings.ReplaceAll(words[1], "-", "_")
		switch {
		case words[0] == "blacklist" && strings.HasPrefix(name, "nf"):
			m.blocked[name] = true
		case words[0] == "install" && len(words) > 2 &&
			slices.Contains([]string{"false", "true"}, filepath.Base(words[2])):
			m.blocked[name] = true
		}
	}
}

func (m moduleFiles) state(name string) State {
	switch {
	case m.loaded[name]:
		return Loaded
	case m.builtIn[name]:
		return BuiltIn
	case !m.listed:
		return Unseen
	case m.onDisk[name] && (m.disabled || m.blocked[name]):
		return Blocked
	case m.onDisk[name]:
		return Loadable
	}
	return Absent
}

// moduleList says where each module is that some backend may need.
func moduleList(from moduleFiles) []Module {
	var all []Module
	for _, name := range redirect.Backends {
		for _, needed := range backend.Modules(name) {
			i := slices.IndexFunc(all, func(m Module) bool { return m.Name == needed.Name })
			if i < 0 {
				i = len(all)
				all = append(all, Module{Name: needed.Name, State: from.state(needed.Name),
					For: needed.For})
			}
			all[i].Backends = append(all[i].Backends, name)
		}
	}
	return all
}

// in names the modules of a backend that are in one of the states.
func in(all []Module, backend string, states ...State) []string {
	var found []string
	for _, m := range all {
		if slices.Contains(m.Backends, backend) && slices.Contains(states, m.State) {
			found = append(found, m.Name)
		}
	}
	return found
}
