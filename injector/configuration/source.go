package configuration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/daemon/follow"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
)

// The keys of the ConfigMaps, which are Istio's.
const (
	injectorKey = "config"
	valuesKey   = "values"
	meshKey     = "mesh"
)

// maxFile is a byte more than config.Load takes.
const maxFile = 3<<20 + 1

// A source is where the documents are.
type source interface {
	// run calls changed when they may have changed, until ctx ends.
	run(ctx context.Context, changed func())
	// read returns what they are now. The error wraps follow.ErrPending where that is not known
	// yet.
	read() (config.Sources, error)
}

func (o Options) source() (source, error) {
	switch {
	case o.Files != nil && o.ConfigMaps != nil:
		return nil, errors.New("load configuration: there are files and ConfigMaps; want one " +
			"of them")
	case o.Files != nil:
		return &files{*o.Files, o.Log}, nil
	case o.ConfigMaps != nil:
		return o.ConfigMaps.source(o.Log)
	}
	return nil, errors.New("load configuration: there are neither files nor ConfigMaps; want one " +
		"of them")
}

// files are the source in the file system.
type files struct {
	of  Files
	log *zap.Logger
}

func (f *files) run(ctx context.Context, changed func()) {
	paths := slices.DeleteFunc([]string{f.of.Injector, f.of.Mesh, f.of.Values},
		func(path string) bool { return path == "" })
	follow.Files(ctx, paths, f.log, changed)
}

func (f *files) read() (config.Sources, error) {
	var errs []error
	read := func(path string) config.Source {
		data, err := readFile(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("read configuration: %w", err))
		}
		return config.Source{Name: path, Data: data}
	}
	s := config.Sources{Injector: read(f.of.Injector), Mesh: read(f.of.Mesh),
		Values: read(f.of.Values)}
	return s, errors.Join(errs...)
}

// readFile returns nothing for "", and no more of a large file than is needed to refuse it.
func readFile(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// configMaps are the source in the cluster.
type configMaps struct {
	injector *follow.Object
	mesh     *follow.Object // nil: in the same as injector, if at all
}

func (c ConfigMaps) source(log *zap.Logger) (source, error) {
	injector, err := follow.ConfigMap(c.Client, c.Injector, log)
	if err != nil || c.Mesh == (types.NamespacedName{}) || c.Mesh == c.Injector {
		return &configMaps{injector: injector}, err
	}
	mesh, err := follow.ConfigMap(c.Client, c.Mesh, log)
	return &configMaps{injector: injector, mesh: mesh}, err
}

func (c *configMaps) run(ctx context.Context, changed func()) {
	var all errgroup.Group
	all.Go(func() error { c.injector.Run(ctx, changed); return nil })
	if c.mesh != nil {
		all.Go(func() error { c.mesh.Run(ctx, changed); return nil })
	}
	_ = all.Wait() // they have no errors
}

func (c *configMaps) read() (config.Sources, error) {
	var s config.Sources
	mine, err := c.injector.Data()
	if err == nil {
		s.Injector, err = pick(c.injector, mine, injectorKey)
		s.Values, _ = pick(c.injector, mine, valuesKey) // there may be none
		s.Mesh, _ = pick(c.injector, mine, meshKey)
	}
	if c.mesh == nil {
		return s, err
	}
	other, wrong := c.mesh.Data()
	if wrong == nil {
		s.Mesh, wrong = pick(c.mesh, other, meshKey)
	}
	return s, errors.Join(err, wrong)
}

// pick returns the document under a key of an object.
func pick(from *follow.Object, data map[string][]byte, key string) (config.Source, error) {
	s := config.Source{Name: fmt.Sprintf("%v, key %s", from, key), Data: data[key]}
	if _, ok := data[key]; ok {
		return s, nil
	}
	names := "it has none"
	if len(data) > 0 {
		names = "it has " + strings.Join(quoted(data), ", ")
	}
	return s, fmt.Errorf("read %v: want the key %s, %s", from, key, names)
}

func quoted(data map[string][]byte) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(data)) {
		names = append(names, strconv.Quote(name))
	}
	return names
}
