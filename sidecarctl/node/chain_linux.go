package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

// network is a file of a conf directory, as far as it matters here.
type network struct {
	Name    string            `json:"name"`
	Type    string            `json:"type"`
	Plugins []json.RawMessage `json:"plugins"`
}

// plugins are the entries of a file, by their types.
func (n network) plugins() []string {
	if n.Plugins == nil && n.Type != "" {
		return []string{n.Type}
	}
	var types []string
	for _, p := range n.Plugins {
		types = append(types, typeOf(p))
	}
	return types
}

func typeOf(entry []byte) string {
	var e struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(entry, &e) // what is no object has no type
	return e.Type
}

// readChain reads the conf directory, and evaluates it against the entry that is in it: what the
// agent would write, only the agent knows.
func (l *look) readChain() {
	l.conf, l.confErr = l.files.confDir(l.confDir)
	spec := chain.Spec{LoadsDropIns: l.runtime.LoadsDropIns(),
		ManyNetworks: l.runtime.ManyNetworks, SkipsBroken: l.runtime.SkipsBroken(),
		Way:   chain.Way(l.process.flag("way")),
		Entry: []byte(`{"type":"` + names.Plugin + `"}`)}
	spec.Standalone = l.process.flag("attachment")
	if l.confErr == nil {
		l.state = chain.Evaluate(l.conf, spec)
	}
	entry := l.entryAt()
	if l.state.Effective && l.state.Way == chain.Standalone {
		dir, err := l.files.confDir(l.multusDir)
		entry = contents(dir, chain.StandaloneName)
		if err != nil {
			l.state = chain.State{Reason: chain.NoMultus, Text: err.Error()}
		} else if entry == nil {
			l.state = chain.EvaluateStandalone(dir, spec)
		}
	} else if entry != nil && l.confErr == nil {
		spec.Entry = entry
		l.state = chain.Evaluate(l.conf, spec)
	}
	l.entry = netconf.Parse(entry)
	if entry == nil {
		l.entry = netconf.Parse([]byte(`{"type":"` + names.Plugin + `"}`))
	}
	l.found = entry != nil
	if backend := l.process.flag("backend"); backend != "" || entry != nil {
		l.configured = backend
		if entry != nil {
			l.configured = l.entry.Backend
		}
	}
}

// entryAt is our entry in what the runtime loads; nil if there is none.
func (l *look) entryAt() []byte {
	if l.state.Way == chain.DropIn {
		return contents(l.conf, filepath.Join(l.state.Network, chain.DropInName))
	}
	var n network
	_ = json.Unmarshal(contents(l.conf, l.state.Primary), &n) // the state says what is wrong
	for _, p := range n.Plugins {
		if typeOf(p) == names.Plugin {
			return p
		}
	}
	return nil
}

func contents(dir chain.Dir, name string) []byte {
	for _, f := range dir {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// runtimeRows say what the runtime has loaded.
func (l *look) runtimeRows() []verdict.Row {
	const about = "runtime"
	if l.runtimeErr != nil {
		return []verdict.Row{unknown(about, "the container runtime was not asked: "+
			l.runtimeErr.Error(), "name its CRI socket by --runtime-socket, and run this as root")}
	}
	r := l.runtime
	what := fmt.Sprintf("%s %s at %s", r.Name, r.Version, l.socket)
	if r.LoadsDropIns() {
		what += "; it loads drop-ins"
	}
	rows := []verdict.Row{fine(about, what)}
	if err := r.Refuses(l.confDir, l.binDir); err != nil {
		rows = append(rows, wrong("directories", err.Error(),
			"set the chart's platform, or its confDir and binDir"))
	}
	switch {
	case !r.NetworkReady && l.options.Preflight && l.state.Reason == chain.NoNetwork:
		rows = append(rows, warning("network", "the runtime has no network yet: "+r.Message,
			"install the cluster's network plugin"))
	case !r.NetworkReady:
		rows = append(rows, wrong("network", "the runtime has no network, and no pod starts: "+
			r.Message, "see the row chain; the runtime's log says what it could not load"))
	case r.LastLoad != "" && r.LastLoad != "OK":
		rows = append(rows, wrong("network", "the runtime could not load its configuration as it "+
			"is now: "+r.LastLoad, "mend the file that it names, in "+l.confDir))
	default:
		rows = append(rows, fine("network", "the runtime has one"))
	}
	return rows
}

// chainRows say what is in the conf directory, and who writes there.
func (l *look) chainRows() []verdict.Row {
	if l.options.Preflight && errors.Is(l.confErr, fs.ErrNotExist) {
		return []verdict.Row{warning("chain", l.confDir+" is not there: no network plugin has "+
			"written its configuration yet", "install the cluster's network plugin, or name the "+
			"runtime's own directory by --conf-dir or --platform")}
	}
	if l.confErr != nil {
		return []verdict.Row{unread("chain", "the directory of the CNI configuration cannot be "+
			"read: "+l.confErr.Error(), l.confErr, "name the runtime's own by --conf-dir, or "+
			"--platform")}
	}
	row := l.chainRow()
	if row.Verdict == verdict.OK && !l.options.Preflight && l.runtimeErr == nil {
		if known, runs := l.runtime.Runs(names.Plugin); known && !runs &&
			l.state.Way != chain.Standalone {
			row = wrong("chain", l.state.Primary+" has our entry, and the runtime has not loaded "+
				"it: "+l.runtime.LastLoad, "the agent's next pass makes it load; else touch the "+
				"file, or restart the runtime")
		}
	}
	rows := []verdict.Row{row}
	if l.found && len(l.entry.Mistakes) > 0 {
		rows = append(rows, wrong("entry", strings.Join(l.entry.Mistakes, "; "),
			"correct the chart's pluginConf; pods that are ours are refused meanwhile"))
	}
	return append(rows, l.writers()...)
}

func (l *look) chainRow() verdict.Row {
	const about = "chain"
	in := l.inEffect()
	switch reason := l.state.Reason; {
	case reason == chain.OtherMesh:
		return wrong(about, l.state.Text+in, "")
	case l.options.Preflight && l.state.Effective:
		return warning(about, "it is installed already: "+l.state.Text+in, "")
	case l.options.Preflight && (reason == chain.Absent || reason == chain.Outdated):
		return fine(about, "a plugin can be chained to "+l.state.Primary+in)
	case l.options.Preflight && reason == chain.NoNetwork:
		return warning(about, l.state.Text, "install the cluster's network plugin")
	case l.state.Effective:
		return fine(about, l.state.Text+in)
	}
	return unread(about, l.state.Text+in, l.denied(), "see why the agent does not mend it: the "+
		"rows agent and ready, and its log")
}

// denied is the error of a file of the conf directory that may not be read; nil if there is none.
func (l *look) denied() error {
	for _, f := range l.conf {
		if errors.Is(f.Err, fs.ErrPermission) {
			return f.Err
		}
	}
	return nil
}

// inEffect lists the plugins of the file that the runtime loads, in their order.
func (l *look) inEffect() string {
	var n network
	if json.Unmarshal(contents(l.conf, l.state.Primary), &n) != nil {
		return ""
	}
	types := n.plugins()
	for _, f := range l.conf {
		if l.runtime.LoadsDropIns() && filepath.Dir(f.Name) == n.Name &&
			filepath.Ext(f.Name) == ".conf" {
			types = append(types, typeOf(f.Data))
		}
	}
	return " (" + strings.Join(types, ", ") + ")"
}

// writers are the others whose files are in the directory, or whose plugins are beside ours.
func (l *look) writers() []verdict.Row {
	const about = "other writers"
	var rows []verdict.Row
	for _, f := range l.conf {
		if name, taken := strings.CutSuffix(f.Name, ".cilium_bak"); taken {
			rows = append(rows, wrong(about, "Cilium has taken "+name+" out of the directory",
				"set cni.exclusive=false in Cilium's configuration"))
		}
	}
	w, known := chain.WriterOf(contents(l.conf, l.state.Primary))
	if known && len(rows) == 0 {
		rows = append(rows, warning(about, l.state.Primary+" is written by "+w.Name+
			", which may write it anew", w.Remedy))
	}
	var others []string
	for _, name := range chain.OtherMeshes {
		if _, err := os.Stat(l.files.at(filepath.Join(l.binDir, name))); err == nil {
			others = append(others, name)
		}
	}
	if len(others) > 0 && l.state.Reason != chain.OtherMesh {
		rows = append(rows, warning(about, "another mesh's plugin is in "+l.binDir+
			", and not in the chain: "+strings.Join(others, ", "),
			"see whether an installation of it is left, which would put it into the chain again"))
	}
	for _, f := range l.conf {
		if slices.Contains(confFiles[:3], filepath.Ext(f.Name)) && !strings.Contains(f.Name, "/") &&
			f.Name != l.state.Primary && f.Err == nil {
			others = append(others, f.Name)
		}
	}
	if len(rows) == 0 && len(others) > 0 {
		rows = append(rows, fine(about, "beside "+l.state.Primary+" there are "+
			strings.Join(others, ", ")+", which the runtime does not load"))
	}
	return rows
}
