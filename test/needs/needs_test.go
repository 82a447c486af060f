// Package needs tests the script that says what make's targets need of the machine.
package needs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a folder of programs, which is all that the script finds on its PATH.
type machine struct {
	t   *testing.T
	dir string
}

func newMachine(t *testing.T, programs ...string) machine {
	m := machine{t, t.TempDir()}
	for _, name := range programs {
		m.program(name, "")
	}
	return m
}

func (m machine) program(name, script string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// needs returns the lines that the script writes, and whether it succeeds.
func (m machine) needs(args ...string) (string, bool) {
	m.t.Helper()
	args = append([]string{"./needs.sh"}, args...)
	cmd := exec.CommandContext(m.t.Context(), "/bin/bash", args...)
	cmd.Env = []string{"PATH=" + m.dir}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err == nil
}

var ofTest = []string{
	"git", "ip", "nft", "iptables-nft", "iptables-legacy", "conntrack", "modprobe", "strace", "ps",
	"mount", "unshare", "flock", "containerd", "runc",
}

func TestWhatIsMissingIsNamedInOneLine(t *testing.T) {
	t.Parallel()
	const goes = "make image needs Go 1.26.0 or newer on the PATH, from https://go.dev/dl"
	for name, row := range map[string]struct {
		there  []string
		target string
		want   string
	}{
		"nothing":          {append([]string{"go"}, ofTest...), "test", ""},
		"only for another": {append([]string{"go"}, ofTest...), "demo", ""},
		"all of it": {[]string{"go"}, "test", "make test needs " + strings.Join(ofTest, ", ") +
			": install them, or run make test INSTALL=1\n"},
		"one of them": {
			append([]string{"go"}, ofTest[1:]...), "test",
			"make test needs git: install them, or run make test INSTALL=1\n"},
		"more for another": {
			append([]string{"go"}, ofTest...), "image",
			"make image needs make, buildah: install them, or run make image INSTALL=1\n"},
		"Go": {[]string{"git", "make", "buildah"}, "image", goes + "\n"},
		"Go and more": {
			[]string{"git", "make"}, "image",
			goes + ", and buildah, which make image INSTALL=1 installs\n"},
	} {
		got, ok := newMachine(t, row.there...).needs(row.target)
		if got != row.want || ok != (row.want == "") {
			t.Errorf("%s: success %t, got\n%swant\n%s", name, ok, got, row.want)
		}
	}
}

// The managers are not those of the machine: the script is told what they would have installed.
func TestWhatIsMissingIsInstalled(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		manager string
		brings  []string
		want    string
		ok      bool
	}{
		"Debian": {"apt-get", []string{"buildah", "make"}, "installing make buildah\n", true},
		"Fedora": {"dnf", []string{"buildah", "make"}, "installing make buildah\n", true},
		"a package that lacks its program": {
			"apt-get", []string{"make"},
			"installing make buildah\n" +
				"make image needs buildah, and the installed buildah does not have it\n", false},
		"no manager": {
			"zypper", nil,
			"make image needs make, buildah: install them; " +
				"INSTALL=1 needs apt-get or dnf\n", false},
	} {
		m := newMachine(t, "go", "git")
		script := `case "$*" in *install*make*buildah) ;; *) exit 0;; esac` + "\n"
		for _, program := range row.brings {
			script += "/bin/ln -s /bin/true " + filepath.Join(m.dir, program) + "\n"
		}
		m.program(row.manager, script)
		if os.Geteuid() != 0 && row.manager != "zypper" {
			row.ok = false
			row.want = "make image needs make, buildah: INSTALL=1 installs them as root only\n"
		}
		if got, ok := m.needs("--install", "image"); got != row.want || ok != row.ok {
			t.Errorf("%s: success %t, got\n%swant\n%s", name, ok, got, row.want)
		}
	}
}

// Each distribution's own names are asked for.
func TestPackagesHaveTheNamesOfTheDistribution(t *testing.T) {
	t.Parallel()
	for manager, want := range map[string]string{
		"apt-get": "git iproute2 nftables iptables conntrack kmod strace procps mount util-linux " +
			"containerd runc",
		"dnf": "git iproute nftables iptables-nft iptables-legacy conntrack-tools kmod strace " +
			"procps-ng util-linux containerd runc",
	} {
		m := newMachine(t, "go")
		m.program(manager, "exit 1\n")
		got, _ := m.needs("--install", "test")
		if os.Geteuid() == 0 && got != "installing "+want+"\n" {
			t.Errorf("%s: got\n%swant\n%s", manager, got, want)
		}
	}
}
