package platforms_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/installer/platforms"
)

func TestPlatforms(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range platforms.All {
		names = append(names, p.Name)
		for _, path := range []string{p.ConfDir, p.BinDir, p.RuntimeSocket} {
			if !filepath.IsAbs(path) || filepath.Clean(path) != path {
				t.Errorf("%s: path %q", p.Name, path)
			}
		}
		if got, ok := platforms.Named(p.Name); got != p || !ok {
			t.Errorf("%s: %+v", p.Name, got)
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(names)) != 15 {
		t.Errorf("names: %q", names)
	}
	if p, ok := platforms.Named("nomad"); ok {
		t.Errorf("%+v", p)
	}
}
