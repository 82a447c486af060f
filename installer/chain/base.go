package chain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// marker is the key by which a list is known that wraps a single plugin; its value is the
// original's name. Runtimes pass over keys that they do not know.
const marker = "sidecarCNIWraps"

// wrapName is the list's name. It sorts after the original, or before it in the case of .json.
func wrapName(original string) string {
	return strings.TrimSuffix(original, path.Ext(original)) + ".conflist"
}

// asList writes a single plugin as a list: the object as it is, but for its indentation. The
// runtime merges no drop-ins into a single plugin, so it must not begin to.
func (n *network) asList() []byte {
	return fmt.Appendf(nil, "{\n  \"cniVersion\": %q,\n  \"name\": %q,\n  "+
		"\"loadOnlyInlinedPlugins\": true,\n  \"plugins\": [\n    %s\n  ]\n}\n",
		n.version, n.name, n.file.indented())
}

// indented is a single plugin as it stands in a list. In JSON a line never ends within a value.
func (f File) indented() []byte {
	return bytes.ReplaceAll(bytes.TrimSpace(f.Data), []byte("\n"), []byte("\n    "))
}

// mark says in a list that asList made which file it wraps.
func mark(list []byte, original string) []byte {
	return bytes.Replace(list, []byte("\n  \"plugins\""),
		fmt.Appendf(nil, "\n  %q: %q,\n  \"plugins\"", marker, original), 1)
}

// wrapped returns the name of the file that a list wraps, if it does.
func wrapped(list []byte) string {
	var keys map[string]json.RawMessage
	var name string
	if json.Unmarshal(list, &keys) != nil || json.Unmarshal(keys[marker], &name) != nil {
		return ""
	}
	return name
}

// without returns the directory as it would be if we had never been there. It is the same after any
// number of steps of any pass: so passes may be interrupted.
func (t tree) without() tree {
	base := t.clone()
	base.unwrap()
	delete(base, ownedName)
	networks := map[string]bool{}
	for _, name := range t.names() {
		f := t[name]
		switch {
		case isDropInOfOurs(name):
			delete(base, name)
			networks[path.Dir(name)] = true
		case base.has(name) && isList(name) && isConf(name) && f.carriesUs():
			if data, err := removeOurs(f); err == nil {
				f.Data = data
				base[name] = f
			}
		}
		if !isConf(name) {
			continue
		}
		if n, err := f.parse(); err == nil {
			networks[n.name] = true
		}
	}
	for name := range networks {
		if base[name].Mode.IsDir() && !base.inside(name) {
			delete(base, name)
		}
	}
	return base
}

// unwrap brings back the originals of wrapped files, unless their writers have been there since.
func (t tree) unwrap() {
	for _, saved := range t.names() {
		original, ok := strings.CutSuffix(saved, SavedSuffix)
		if !ok || !isConf(original) || !isSingle(original) {
			continue
		}
		list, there := t[wrapName(original)]
		if there && list.Err != nil {
			continue // it may be ours
		}
		if f := t[saved]; !t.has(original) && wrapped(list.Data) == original {
			f.Name = original
			t[original] = f
		}
		delete(t, saved)
	}
	for _, name := range t.confs() {
		original := wrapped(t[name].Data)
		if isList(name) && t.has(original) && isSingle(original) && wrapName(original) == name {
			delete(t, name)
		}
	}
}
