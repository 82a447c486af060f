package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CachedUses counts the results in libcni's cache, /var/lib/cni, whose configuration has a plugin
// of a type: attachments for which a runtime may yet call it. One that cannot be read is an error,
// beside the number of the others.
func CachedUses(cacheDir, pluginType string) (int, error) {
	dir := filepath.Join(cacheDir, "results")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("read cached results in %s: %w", dir, unnamed(err))
	}
	uses := 0
	var errs []error
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		use, err := cachedUse(filepath.Join(dir, e.Name()), pluginType)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("read cached result %s: %w", e.Name(), unnamed(err)))
		}
		if use {
			uses++
		}
	}
	return uses, errors.Join(errs...)
}

// cachedUse reads one. libcni before 0.7 kept no configuration.
func cachedUse(path, pluginType string) (bool, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	var cached struct {
		Config []byte `json:"config"`
	}
	if err := json.Unmarshal(data, &cached); err != nil {
		return false, err
	}
	if len(cached.Config) == 0 {
		return false, nil
	}
	var conf struct {
		Type    string
		Plugins []struct{ Type string }
	}
	if err := json.Unmarshal(cached.Config, &conf); err != nil {
		return false, fmt.Errorf("its configuration: %w", err)
	}
	for _, p := range conf.Plugins {
		if p.Type == pluginType {
			return true, nil
		}
	}
	return conf.Type == pluginType, nil
}
