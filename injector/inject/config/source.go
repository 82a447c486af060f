package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/yamltree"
)

const maxDocument = 3 << 20 // bytes; etcd takes half of that

// document is a source, read.
type document struct {
	where string         // in messages
	data  []byte         // the value of the key, if it is a ConfigMap's
	tree  podtree.Object // of the data; nil if there is none
	whole podtree.Object // the ConfigMap, if the source is one
	wrong bool           // it could not be read, which is a mistake already
}

// open reads a source, whose data is under a key if it is a whole ConfigMap. A source without a
// name is called by the fallback.
func (l *loader) open(s Source, key, fallback string) document {
	d := document{where: s.Name, data: s.Data}
	if d.where == "" {
		d.where = fallback
	}
	if err := d.read(key); err != nil {
		l.mistake(d.where, err)
		d.wrong = true
	}
	return d
}

// openValues opens the values; without a source of their own, those of the injector's ConfigMap.
func (l *loader) openValues(s Source, injector document) document {
	if s.Data != nil || podtree.Get(injector.whole, "data", "values") == nil {
		return l.open(s, "values", "values")
	}
	d := document{
		where: strings.TrimSuffix(injector.where, ": data.config"),
		whole: injector.whole,
	}
	if err := d.take("values"); err != nil {
		l.mistake(d.where, err)
		d.wrong = true
	}
	return d
}

func (d *document) read(key string) error {
	tree, err := yamltree.Decode(d.data, maxDocument)
	if err != nil {
		return err
	}
	kind, version := podtree.String(tree, "kind"), podtree.String(tree, "apiVersion")
	switch {
	case kind == "ConfigMap":
		d.whole = tree
		return d.take(key)
	case kind != "" && version != "":
		return fmt.Errorf("kind: want a ConfigMap or the value of its key %s, got %q; write it "+
			"by kubectl get configmap NAME -o yaml", key, kind)
	}
	d.tree = tree
	return nil
}

// take reads the value of a key of the ConfigMap.
func (d *document) take(key string) error {
	data := podtree.Map(d.whole, "data")
	value, ok := data[key]
	if !ok {
		return fmt.Errorf("ConfigMap %q has no key %s in data, only %s", d.name(), key,
			list(slices.Sorted(maps.Keys(data))))
	}
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("data.%s of ConfigMap %q: want text, as a ConfigMap has it; write %s: |",
			key, d.name(), key)
	}
	d.where += ": data." + key
	d.data = []byte(text)
	tree, err := yamltree.Decode(d.data, maxDocument)
	d.tree = tree
	return err
}

func (d *document) name() string { return podtree.String(d.whole, "metadata", "name") }

// list writes names for people.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}

var errNoConfiguration = errors.New("it is empty; want the value of key config of ConfigMap " +
	"istio-sidecar-injector, with policy and template or templates")
