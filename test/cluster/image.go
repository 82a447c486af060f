package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// pauseImage has a name that no registry has.
const pauseImage = "cluster.local/pause:1"

// An Image is what containers are made from: mostly a static program and nothing else.
type Image struct {
	Name string // with a registry and a tag, as pods name it
	// from paths in the image to files of this machine, whose modes they have
	Files      map[string]string
	Entrypoint []string
	User       string
}

// Program builds a static program of a folder or package of this module and returns its path.
func Program(t testing.TB, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", stripped, "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// archive writes the image in the form of docker save: one layer, what to run in it, and a table of
// contents.
func (i Image) archive(w io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{"Entrypoint": i.Entrypoint, "User": i.User,
			"Env": []string{"PATH=" + systemPath}},
		"rootfs": map[string]any{"type": "layers",
			"diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	contents, err := json.Marshal([]any{map[string]any{"Config": "config.json",
		"RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	for _, f := range []struct {
		name    string
		content []byte
	}{{"manifest.json", contents}, {"config.json", config}, {"layer.tar", layer}} {
		if err := add(archive, &tar.Header{Name: f.name, Mode: 0o644}, f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (i Image) layer() ([]byte, error) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/",
		Mode: 0o1777}); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		content, err := os.ReadFile(i.Files[name])
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(i.Files[name])
		if err != nil {
			return nil, err
		}
		if err := add(archive, &tar.Header{Name: strings.TrimPrefix(name, "/"),
			Mode: int64(info.Mode().Perm())}, content); err != nil {
			return nil, err
		}
	}
	return layer.Bytes(), archive.Close()
}

func add(archive *tar.Writer, header *tar.Header, content []byte) error {
	header.Size = int64(len(content))
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}
