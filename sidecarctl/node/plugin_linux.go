package node

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

// plugin says whether the runtime can run the plugin, and whether it is the agent's.
func (l *look) plugin() verdict.Row {
	const about = "plugin"
	path := filepath.Join(l.binDir, names.Plugin)
	info, err := os.Stat(l.files.at(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return wrong(about, path+" is not there", "see why the agent does not write it: the row "+
			"ready, and its log")
	case err != nil:
		return unknown(about, err.Error(), "run this as root")
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 || info.Size() == 0:
		return wrong(about, fmt.Sprintf("%s is no program that can be run: %s, %d bytes", path,
			info.Mode(), info.Size()), "remove it; the agent's next pass writes it anew")
	}
	if l.mounted(l.binDir)&unix.ST_NOEXEC != 0 {
		return wrong(about, path+" is on a file system that is mounted noexec",
			"let the runtime use another directory of plugins, and set the chart's binDir")
	}
	what := path + ofVersion(versionOf(l.files.at(path)))
	switch same, err := l.isAgents(path); {
	case errors.Is(err, errNoAgent):
		return fine(about, what+"; not compared with the agent's own: "+err.Error())
	case err != nil: // by kernels before 5.6, for one
		return unknown(about, what+"; not compared with the agent's own: "+err.Error(), "")
	case !same:
		return wrong(about, what+"; it is not the one that the agent has brought along",
			"remove it; the agent's next pass writes it anew")
	}
	return fine(about, what+", the agent's own")
}

var errNoAgent = errors.New("none is known to run")

// isAgents compares the plugin with the one in the agent's image.
func (l *look) isAgents(path string) (bool, error) {
	if l.process.pid == 0 {
		return false, errNoAgent
	}
	its := cmp.Or(l.process.flag("plugin-binary"), l.beside())
	one, err := digest(l.files.at(fmt.Sprintf("/proc/%d/root", l.process.pid)), its)
	if err != nil {
		return false, err
	}
	other, err := digest(l.files.root, path)
	return bytes.Equal(one, other), err
}

// beside is the plugin in the directory of the agent's program.
func (l *look) beside() string {
	exe, err := os.Readlink(l.files.at(fmt.Sprintf("/proc/%d/exe", l.process.pid)))
	if err != nil {
		return "/" + names.Plugin
	}
	return filepath.Join(filepath.Dir(exe), names.Plugin)
}

// maxProgram is how large a program may be.
const maxProgram = 256 << 20

// digest reads a program below a root directory. Links lead to what they mean there; a pipe, which
// could make who opens it wait for ever, is none.
func digest(root, path string) ([]byte, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxProgram {
		return nil, errors.New(path + " is no program")
	}
	h := sha256.New()
	_, err = io.Copy(h, io.LimitReader(file, maxProgram))
	return h.Sum(nil), err
}

// mounted are the flags of the file system that a directory is on; 0 if they are not known.
func (l *look) mounted(dir string) int64 {
	var s unix.Statfs_t
	if err := unix.Statfs(l.files.at(dir), &s); err != nil {
		return 0
	}
	return s.Flags
}

// directories say before an installation whether the agent could write there.
func (l *look) directories() []verdict.Row {
	var rows []verdict.Row
	for _, dir := range []struct{ about, path, set string }{
		{"conf directory", l.confDir, "confDir"}, {"plugin directory", l.binDir, "binDir"},
	} {
		info, err := os.Stat(l.files.at(dir.path))
		stat := unix.Stat_t{}
		_ = unix.Stat(l.files.at(dir.path), &stat) // then it belongs to root, or err says why not
		switch {
		case errors.Is(err, fs.ErrNotExist):
			rows = append(rows, warning(dir.about, dir.path+" is not there: the kubelet makes it "+
				"for the agent", "if the runtime uses another one, name it by --"+
				strings.ToLower(dir.set[:len(dir.set)-3])+"-dir and the chart's "+dir.set))
		case err != nil:
			rows = append(rows, unknown(dir.about, err.Error(), "run this as root"))
		case !info.IsDir():
			rows = append(rows, wrong(dir.about, dir.path+" is no directory",
				"set the chart's "+dir.set+" to the one that the runtime uses"))
		case l.mounted(dir.path)&unix.ST_RDONLY != 0:
			rows = append(rows, wrong(dir.about, dir.path+" is on a file system that is mounted "+
				"read only", "let the runtime use a directory that can be written, and set the "+
				"chart's "+dir.set))
		case stat.Uid != 0:
			rows = append(rows, wrong(dir.about, fmt.Sprintf("%s belongs to uid %d, and the agent "+
				"is root without the right to write in directories of others", dir.path, stat.Uid),
				"let root own it, or set the chart's extraCapabilities to {DAC_OVERRIDE}"))
		default:
			rows = append(rows, fine(dir.about, dir.path+" can be written"))
		}
	}
	return rows
}

// guard says whether the runtime has what the guard connects to, and whether that is connected.
func (l *look) guard(ctx context.Context) verdict.Row {
	const about = "guard"
	socket := cmp.Or(l.options.NRI, l.process.flag("nri-socket"), "/var/run/nri/nri.sock")
	if l.process.flag("guard") == "off" {
		return fine(about, "it is off, by the agent's flag --guard")
	}
	info, err := os.Stat(l.files.at(socket))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return unknown(about, err.Error(), "run this as root")
	case err != nil && l.process.flag("guard") == "refuse":
		return wrong(about, "the runtime has no socket of NRI at "+socket+", and --guard=refuse "+
			"wants one", "switch NRI on in the runtime's configuration: docs/platforms.md")
	case err != nil:
		return fine(about, "the runtime has no socket of NRI at "+socket+": there is no guard, "+
			"and everything else works")
	case info.Mode().Type() != fs.ModeSocket:
		return wrong(about, socket+" is no socket", "set the chart's guard.socket")
	}
	if l.process.pid == 0 {
		return fine(about, "the runtime has NRI at "+socket)
	}
	_, metrics, err := l.page(ctx, "metrics")
	switch {
	case err != nil:
		return fine(about, "the runtime has NRI at "+socket+"; whether the guard is connected, "+
			"the agent was not asked")
	case strings.Contains("\n"+metrics+"\n", "\nsidecar_cni_guard_connected 0\n"):
		return warning(about, "the guard is not connected to "+socket, "the agent's log says why; "+
			"see docs/guard.md")
	}
	return fine(about, "the guard is connected to "+socket)
}

// versions say whether the programs are of one version.
func (l *look) versions() verdict.Row {
	plugin := versionOf(l.files.at(filepath.Join(l.binDir, names.Plugin)))
	agent := l.process.version
	what := fmt.Sprintf("agent %s, plugin %s, sidecarctl %s", cmp.Or(agent, "unknown"),
		cmp.Or(plugin, "unknown"), cmp.Or(l.options.Version, "unknown"))
	if agent != "" && plugin != "" && agent != plugin {
		return warning("versions", what, "wait for the agent's next pass, which brings the plugin "+
			"up to date; else look at its log")
	}
	return fine("versions", what)
}
