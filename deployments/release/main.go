// Release builds what is published of sidecarctl: an archive for each platform, their checksums,
// and the manifest by which krew installs it for kubectl.
//
//	go run ./deployments/release -version 0.1.0 -out bin/dist
//
// Be aware: archives have the time of the commit and are the same whoever builds them, with one
// version of Go.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxBinary is what a program may come to, in bytes. A program that finds a method by its name at
// run time, as text/template does, is 6 MB larger: the linker keeps all methods of all types.
const maxBinary = 25_000_000

// platform is an operating system and an architecture, by Go's names.
type platform struct{ os, arch string }

var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

func (p platform) String() string { return p.os + "_" + p.arch }

// binary is the program's name there.
func (p platform) binary() string {
	if p.os == "windows" {
		return "sidecarctl.exe"
	}
	return "sidecarctl"
}

// release is what is to be written.
type release struct {
	version string
	out     string
	time    time.Time // of all files
	license []byte
}

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "what is released, such as 0.1.0")
	flag.StringVar(&r.out, "out", "bin/dist", "where it is written; what is there is replaced")
	flag.Parse()
	if err := r.run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

var versions = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

func (r *release) run(ctx context.Context, w io.Writer) error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("-version %q: want a version such as 0.1.0", r.version)
	}
	var err error
	if r.license, err = os.ReadFile("LICENSE"); err != nil {
		return fmt.Errorf("read the license, from the top of the tree: %w", err)
	}
	if r.time, err = commitTime(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	return r.write(w, func(p platform) ([]byte, error) { return build(ctx, p) })
}

// commitTime is SOURCE_DATE_EPOCH, else the time of the last commit.
func commitTime(ctx context.Context) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("ask git for the time of the commit: %w", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: want seconds since 1970: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// write writes archives of what build returns, and what is about them.
func (r *release) write(w io.Writer, build func(platform) ([]byte, error)) error {
	var sums bytes.Buffer
	var packages []published
	for _, p := range platforms {
		program, err := build(p)
		if err != nil {
			return err
		}
		if len(program) >= maxBinary {
			return fmt.Errorf("sidecarctl for %s has %d bytes: want less than %d", p, len(program),
				maxBinary)
		}
		name, content, err := r.archive(p, program)
		if err != nil {
			return fmt.Errorf("pack sidecarctl for %s: %w", p, err)
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(content))
		if err := r.file(name, content); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, name)
		packages = append(packages, published{p, name, sum})
		fmt.Fprintf(w, "%-40s %6d KiB, program %6d KiB\n", name, len(content)>>10,
			len(program)>>10)
	}
	if err := r.file("checksums.txt", sums.Bytes()); err != nil {
		return err
	}
	manifest, err := krew(r.version, packages)
	if err != nil {
		return err
	}
	return r.file(pluginName+".yaml", manifest)
}

func (r *release) file(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// build returns the program for a platform.
func build(ctx context.Context, p platform) ([]byte, error) {
	folder, err := os.MkdirTemp("", "sidecarctl-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	program := filepath.Join(folder, p.binary())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program,
		"./sidecarctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build sidecarctl for %s: %w\n%s", p, err, out)
	}
	return os.ReadFile(program)
}
