//go:build e2e

package deployments_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An archive is an OCI image layout in a tar file.
type archive map[string][]byte

func open(t *testing.T, file string) archive {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return unpack(t, f)
}

func unpack(t *testing.T, r io.Reader) archive {
	t.Helper()
	files, all := tar.NewReader(r), archive{}
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[header.Name], err = io.ReadAll(files); err != nil {
			t.Fatal(err)
		}
	}
}

// A descriptor points to a part of an image.
type descriptor struct {
	Digest   string `json:"digest"`
	Platform struct {
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// read reads a part.
func (a archive) read(t *testing.T, d descriptor, into any) []byte {
	t.Helper()
	data, ok := a["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
	if !ok {
		t.Fatalf("there is no %s", d.Digest)
	}
	if into != nil {
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

// index returns the digest of the whole, and the images of it.
func (a archive) index(t *testing.T) (string, []descriptor) {
	t.Helper()
	var top, index struct {
		Manifests []descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(a["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json: %v %s", err, a["index.json"])
	}
	a.read(t, top.Manifests[0], &index)
	return top.Manifests[0].Digest, index.Manifests
}

// makeImage builds the images in a copy of the tree, and returns the agent's archive; the other one
// is beside it.
func makeImage(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if out, err := command("sh", "-c", `tar -C .. --exclude=./bin -cf - . | tar -C "$0" -xf -`,
		folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := command("make", "-C", folder, "image").CombinedOutput(); err != nil {
		t.Fatalf("make image: %v\n%s", err, out)
	}
	return filepath.Join(folder, "bin/sidecar-cni.oci.tar")
}

// TestMakeImage builds the images in two folders, and looks into them.
func TestMakeImage(t *testing.T) {
	folders := []string{filepath.Dir(makeImage(t)), filepath.Dir(makeImage(t))}
	for name, want := range map[string]content{
		"sidecar-cni": {"/sidecar-cni-installer", []string{"sidecar-cni 0555 0",
			"sidecar-cni-injector 0555 0",
			"sidecar-cni-installer 0555 0", "sidecarctl 0555 0"}},
		"sidecarctl": {"/sidecarctl", []string{"sidecarctl 0555 0"}},
	} {
		var digests []string
		var image archive
		for _, folder := range folders {
			image = open(t, filepath.Join(folder, name+".oci.tar"))
			digest, _ := image.index(t)
			digests = append(digests, digest)
		}
		if digests[0] != digests[1] {
			t.Errorf("%s: two builds, two digests: %v", name, digests)
		}
		_, images := image.index(t)
		var architectures []string
		for _, d := range images {
			architectures = append(architectures, d.Platform.Architecture)
			contents(t, image, d, want)
		}
		if diff := cmp.Diff([]string{"amd64", "arm64"}, architectures); diff != "" {
			t.Errorf("%s: architectures (-want +have):\n%s", name, diff)
		}
	}
}

// A content is what an image starts, and its files with mode and owner.
type content struct {
	entrypoint string
	files      []string
}

// mostOfAnArchitecture is what the compressed layers of one architecture may come to. The injector
// is in the agent's image since each node has that already when a pod's validation is to start.
const mostOfAnArchitecture = 30 << 20

// contents looks at the image of an architecture.
func contents(t *testing.T, image archive, d descriptor, want content) {
	t.Helper()
	var manifest struct {
		Config descriptor   `json:"config"`
		Layers []descriptor `json:"layers"`
	}
	image.read(t, d, &manifest)
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		} `json:"config"`
	}
	image.read(t, manifest.Config, &config)
	for _, label := range []string{"title", "description", "licenses", "source", "version",
		"revision"} {
		if config.Config.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("want the label org.opencontainers.image.%s: %v", label, config.Config.Labels)
		}
	}
	if diff := cmp.Diff([]string{want.entrypoint}, config.Config.Entrypoint); diff != "" ||
		config.Config.User != "65532:65532" {
		t.Errorf("it runs as %q (-want +have):\n%s", config.Config.User, diff)
	}
	var have []string
	size := 0
	for _, l := range manifest.Layers {
		layer := image.read(t, l, nil)
		size += len(layer)
		plain, err := gzip.NewReader(bytes.NewReader(layer))
		if err != nil {
			t.Fatal(err)
		}
		files := tar.NewReader(plain)
		for {
			header, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			have = append(have, fmt.Sprintf("%s %04o %d", header.Name, header.Mode&0o7777,
				header.Uid))
		}
	}
	if size > mostOfAnArchitecture {
		t.Errorf("%s for %s: %d bytes compressed, want %d at most", want.entrypoint,
			d.Platform.Architecture, size, mostOfAnArchitecture)
	}
	if diff := cmp.Diff(want.files, have); diff != "" {
		t.Errorf("files (-want +have):\n%s", diff)
	}
}

// TestEveryRightIsNeeded has the agent try out its backend with the rights that the chart gives it,
// and with each of them but one.
func TestEveryRightIsNeeded(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Fatal("this needs root on Linux")
	}
	for backend, wanted := range map[string][]string{
		"nftables":        {"NET_ADMIN", "CHOWN"},
		"iptables-nft":    {"NET_ADMIN", "CHOWN", "SYS_CHROOT"},
		"iptables-legacy": {"NET_ADMIN", "CHOWN", "SYS_CHROOT", "NET_RAW"},
	} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			d := scenario{"", "mesh",
				[]string{"repair.mode=off", "backend=" + backend}}.daemonSet(t)
			var rights []string
			for _, r := range agent(t, d).SecurityContext.Capabilities.Add {
				rights = append(rights, string(r))
			}
			if diff := cmp.Diff(wanted, rights); diff != "" {
				t.Errorf("rights (-want +have):\n%s", diff)
			}
			if err := probe(t, backend, rights); err != nil {
				t.Errorf("with all of its rights: %v", err)
			}
			for i, right := range rights {
				if probe(t, backend, slices.Delete(slices.Clone(rights), i, i+1)) == nil {
					t.Errorf("%s is of no use", right)
				}
			}
		})
	}
}

// TestAFileOfSomebodyElse has the agent meet one that others may not read, with the rights of
// repair.mode off and with those of the default.
func TestAFileOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"off": "belongs to uid 1234 and has mode 0600",
		"repair": ""} {
		var rights []string
		for _, r := range agent(t,
			scenario{"", "mesh", []string{"repair.mode=" + mode}}.daemonSet(t)).
			SecurityContext.Capabilities.Add {
			rights = append(rights, string(r))
		}
		dir := t.TempDir()
		belongs(t, filepath.Join(dir, "10-pods.conflist"), withoutUs, 0o600)
		err := bounded(t, rights, "run", "--dry-run", "--conf-dir="+dir,
			"--api-server=https://kube.example", "--plugin-binary=/bin/true")
		if want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "DAC_READ_SEARCH")) {
			t.Errorf("repair.mode=%s: %v, want %q", mode, err, want)
		}
	}
}

// TestADirectoryOfSomebodyElse is how Kubespray leaves the plugins' directory: root without
// DAC_OVERRIDE cannot write in it.
func TestADirectoryOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"": "the directory belongs to uid 1234 and has " +
		"mode 0755", "extraCapabilities={DAC_OVERRIDE}": ""} {
		var rights []string
		for _, r := range agent(t, scenario{"", "mesh", strings.Fields(value)}.daemonSet(t)).
			SecurityContext.Capabilities.Add {
			rights = append(rights, string(r))
		}
		dir := t.TempDir()
		belongs(t, filepath.Join(dir, "10-pods.conflist"), withUs, 0o644)
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 1234, 1234)); err != nil {
			t.Fatal(err)
		}
		err := bounded(t, rights, "uninstall", "--conf-dir="+dir)
		if want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "extraCapabilities to {DAC_OVERRIDE}")) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}

const (
	withoutUs = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"}]}`
	withUs    = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"},{"type":"sidecar-cni"}]}`
)

// belongs writes a file that is somebody's.
func belongs(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file, []byte(text), mode),
		os.Chown(file, 1234, 2345)); err != nil {
		t.Fatal(err)
	}
}

// probe runs a pass that changes nothing, and takes a node out whose network belongs to somebody,
// which it still has to then.
func probe(t *testing.T, backend string, rights []string) error {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "10-pods.conflist")
	belongs(t, file, withUs, 0o644)
	path, err := installer()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "--dry-run", "--conf-dir=" + dir, "--backend=" + backend,
		"--api-server=https://kube.example", "--plugin-binary=" + path}
	if strings.HasPrefix(backend, "iptables") {
		args = append(args, "--host-root=/")
	}
	if err := errors.Join(bounded(t, rights, args...),
		bounded(t, rights, "uninstall", "--conf-dir="+dir)); err != nil {
		return err
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(file, &stat); err != nil || stat.Uid != 1234 || stat.Gid != 2345 ||
		stat.Mode&0o777 != 0o644 {
		return fmt.Errorf("%s: %w, uid %d, gid %d, mode %o", file, err, stat.Uid, stat.Gid,
			stat.Mode)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != withoutUs {
		return fmt.Errorf("%s: %w, %s", file, err, text)
	}
	return nil
}

// bounded runs the installer in a network namespace of its own and with few rights.
func bounded(t *testing.T, rights []string, args ...string) error {
	t.Helper()
	path, err := installer()
	if err != nil {
		t.Fatal(err)
	}
	bounds := "-all"
	for _, right := range rights {
		bounds += ",+" + strings.ToLower(right)
	}
	all := append([]string{"--net", "--mount", "setpriv", "--no-new-privs",
		"--bounding-set=" + bounds, "--inh-caps=-all", path}, args...)
	all = append(all, "--bin-dir="+t.TempDir(), "--run-dir="+t.TempDir(),
		"--cache-dir="+t.TempDir(), "--multus-conf-dir="+t.TempDir(),
		"--platform=kubeadm", "--runtime-socket=/nowhere.sock")
	if out, err := exec.Command("unshare", all...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
