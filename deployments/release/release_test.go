package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// fake writes a release of programs that are not built.
func fake(t *testing.T) (folder string) {
	t.Helper()
	r := release{version: "1.2.3-rc.1", out: t.TempDir(), time: time.Unix(1700000000, 0).UTC(),
		license: []byte("license")}
	err := r.write(io.Discard, func(p platform) ([]byte, error) {
		return []byte("program of " + p.String()), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.out
}

func readFile(t *testing.T, elements ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// unpack lists the files of an archive: mode, name, what is in it.
func unpack(t *testing.T, file string) []string {
	t.Helper()
	var all []string
	data := readFile(t, file)
	if strings.HasSuffix(file, ".zip") {
		archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.File {
			content, err := archive.Open(f.Name)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(content)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%s %s", f.Name, text))
		}
		return all
	}
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(plain)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil || header.Typeflag != tar.TypeReg {
			t.Fatalf("%v, want plain files only: %+v", err, header)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%04o %s %s", header.Mode, header.Name, text))
	}
}

func TestArchives(t *testing.T) {
	t.Parallel()
	folder := fake(t)
	for _, p := range platforms {
		file, want := "sidecarctl_1.2.3-rc.1_"+p.String()+".tar.gz", []string{"0644 LICENSE license",
			"0755 sidecarctl program of " + p.String(),
			"0755 kubectl_complete-sidecar_cni " + string(completion)}
		if p.os == "windows" {
			file, want = "sidecarctl_1.2.3-rc.1_"+p.String()+".zip", []string{"LICENSE license",
				"sidecarctl.exe program of " + p.String()}
		}
		if diff := cmp.Diff(want, unpack(t, filepath.Join(folder, file))); diff != "" {
			t.Errorf("%s (-want +have):\n%s", file, diff)
		}
		sum := fmt.Sprintf("%x  %s\n", sha256.Sum256(readFile(t, folder, file)), file)
		if !strings.Contains(string(readFile(t, folder, "checksums.txt")), sum) {
			t.Errorf("checksums.txt: want %s", sum)
		}
	}
}

func TestTwoReleasesAreOne(t *testing.T) {
	t.Parallel()
	one, other := fake(t), fake(t)
	files, err := os.ReadDir(one)
	if err != nil || len(files) != len(platforms)+2 {
		t.Fatalf("%v %v", files, err)
	}
	for _, f := range files {
		if !bytes.Equal(readFile(t, one, f.Name()), readFile(t, other, f.Name())) {
			t.Errorf("%s differs", f.Name())
		}
	}
}

func TestTooLargeAProgramIsRefused(t *testing.T) {
	t.Parallel()
	r := release{version: "1.2.3", out: t.TempDir()}
	err := r.write(io.Discard, func(platform) ([]byte, error) {
		return make([]byte, maxBinary), nil
	})
	if err == nil || !strings.Contains(err.Error(), "linux_amd64 has 25000000 bytes") {
		t.Errorf("error %v", err)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "v1.2.3", "1.2", "1.2.3/..", "1.2.3-", "latest"} {
		r := release{version: version, out: "/nowhere"}
		if err := r.run(t.Context(), io.Discard); err == nil ||
			!strings.Contains(err.Error(), "want a version") {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// What krew wants of a manifest: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
// Names are held to what it accepts, and nothing is there that it does not know.
func TestKrewManifest(t *testing.T) {
	t.Parallel()
	folder := fake(t)
	var have struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			Version          string `json:"version"`
			Homepage         string `json:"homepage"`
			ShortDescription string `json:"shortDescription"`
			Description      string `json:"description"`
			Caveats          string `json:"caveats"`
			Platforms        []struct {
				Selector struct {
					MatchLabels struct {
						OS   string `json:"os"`
						Arch string `json:"arch"`
					} `json:"matchLabels"`
				} `json:"selector"`
				URI    string `json:"uri"`
				SHA256 string `json:"sha256"`
				Bin    string `json:"bin"`
			} `json:"platforms"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(readFile(t, folder, "sidecar-cni.yaml"), &have); err != nil {
		t.Fatal(err)
	}
	for what, ok := range map[string]bool{
		"apiVersion":       have.APIVersion == "krew.googlecontainertools.github.com/v1alpha2",
		"kind":             have.Kind == "Plugin",
		"name":             regexp.MustCompile(`^[\w-]+$`).MatchString(have.Metadata.Name),
		"version":          have.Spec.Version == "v1.2.3-rc.1",
		"homepage":         strings.HasPrefix(have.Spec.Homepage, "https://"),
		"shortDescription": len(have.Spec.ShortDescription) > 0 && len(have.Spec.ShortDescription) <= 50,
		"description":      have.Spec.Description != "",
		"caveats":          strings.Contains(have.Spec.Caveats, "pods/exec"),
		"platforms":        len(have.Spec.Platforms) == len(platforms),
	} {
		if !ok {
			t.Errorf("%s: %+v", what, have)
		}
	}
	for i, p := range have.Spec.Platforms {
		uri, err := url.Parse(p.URI)
		if err != nil || uri.Scheme != "https" {
			t.Fatalf("uri %q: %v", p.URI, err)
		}
		file := path.Base(uri.Path)
		if sum := fmt.Sprintf("%x", sha256.Sum256(readFile(t, folder, file))); sum != p.SHA256 {
			t.Errorf("%s has %s, the manifest says %s", file, sum, p.SHA256)
		}
		labels := p.Selector.MatchLabels
		if (platform{labels.OS, labels.Arch}) != platforms[i] ||
			!strings.Contains(file, labels.OS+"_"+labels.Arch) {
			t.Errorf("%s is for %+v", file, labels)
		}
		if listed := strings.Join(unpack(t, filepath.Join(folder, file)), "\n"); !strings.Contains(
			listed, p.Bin+" program") {
			t.Errorf("%s has no %s:\n%s", file, p.Bin, listed)
		}
	}
}

// What speaks to a kernel is built for Linux alone, and the clientset is not linked anywhere.
func TestWhatIsLinked(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"linux", "darwin", "windows"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../sidecarctl")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", system, err)
		}
		for name := range strings.Lines(string(out)) {
			name = strings.TrimSpace(name)
			kernel := strings.Contains(name, "netlink") ||
				strings.HasPrefix(name, "github.com/google/nftables") ||
				strings.HasPrefix(name, "github.com/coreos/go-iptables") ||
				strings.HasPrefix(name, "github.com/containernetworking/")
			if kernel && system != "linux" || name == "k8s.io/client-go/kubernetes" {
				t.Errorf("%s: %s is linked", system, name)
			}
		}
	}
}
