package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/installation"
	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/cri"
	"github.com/sidecar-cni/sidecar-cni/installer/platforms"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

// look is one look at a node: what is known before the rows are made.
type look struct {
	options Options
	files   files

	process    process // the agent's
	processErr error   // why none is known

	runtime    cri.Runtime
	runtimeErr error // it was not asked, or has not answered

	confDir, binDir, multusDir, runDir, socket string

	conf        chain.Dir // what is in confDir
	confErr     error
	state       chain.State
	entry       netconf.Conf // the plugin's entry; the defaults if there is none
	found       bool         // there is one
	configured  string       // the backend of the entry, else of the agent's flag; "" if neither
	agentSocket string

	// try tries a backend out, and returns what it lacks.
	try func(ctx context.Context, backend string) ([]redirect.Lack, error)
}

// Look looks at the node that this program runs on. What cannot be read is a row, too.
func Look(ctx context.Context, o Options) Report {
	l := newLook(ctx, o)
	return l.report(ctx)
}

func (l *look) report(ctx context.Context) Report {
	r := Report{Node: cmp.Or(l.process.flag("node-name"), os.Getenv("NODE_NAME"), hostName()),
		Preflight: l.options.Preflight}
	r.Rows = append(r.Rows, l.machine()...)
	modules, rows := l.kernel(ctx)
	r.Modules = modules
	r.Rows = append(r.Rows, rows...)
	r.Rows = append(r.Rows, l.runtimeRows()...)
	r.Rows = append(r.Rows, l.chainRows()...)
	if !l.options.Preflight {
		r.Rows = append(r.Rows, l.plugin())
		r.Rows = append(r.Rows, l.credentials(ctx)...)
		r.Rows = append(r.Rows, l.agent(ctx)...)
		r.Rows = append(r.Rows, l.podFiles(), l.records(), l.versions())
	} else {
		r.Rows = append(r.Rows, l.directories()...)
	}
	r.Rows = append(r.Rows, l.guard(ctx))
	return r
}

// newLook finds out where things are: what is said, then what the agent was told, what it has left
// in the run directory, what the runtime says, and what is usual.
func newLook(ctx context.Context, o Options) *look {
	l := &look{options: o, files: files{root: cmp.Or(o.Root, "/")}}
	l.try = l.tryOut
	l.process, l.processErr = l.files.findAgent(ctx, cmp.Or(o.RunDir, names.RunDir))
	l.files.inAgent = l.inAgent()
	if root := l.process.flag("host-root"); root != "" && l.files.inAgent {
		l.files.host = l.files.at(root)
	}
	l.runDir = cmp.Or(o.RunDir, names.RunDir)
	there, _ := installation.Read(l.files.at(l.runDir)) // one that cannot be read says nothing
	platform, known := platforms.Named(cmp.Or(o.Platform, l.process.flag("platform")))
	l.socket = cmp.Or(o.Socket, l.process.flag("runtime-socket"), there.Socket,
		platform.RuntimeSocket)
	if !known {
		platform = l.guess()
		l.socket = cmp.Or(l.socket, platform.RuntimeSocket)
	}
	l.socket = platforms.WithoutLink(l.socket)
	l.runtime, l.runtimeErr = l.askRuntime(ctx)
	firstBin := ""
	if len(l.runtime.BinDirs) > 0 {
		firstBin = l.runtime.BinDirs[0]
	}
	l.confDir = cmp.Or(o.ConfDir, l.process.flag("conf-dir"), there.ConfDir, l.runtime.ConfDir,
		platform.ConfDir)
	l.binDir = cmp.Or(o.BinDir, l.process.flag("bin-dir"), there.BinDir, firstBin, platform.BinDir)
	l.multusDir = cmp.Or(l.process.flag("multus-conf-dir"), there.Multus, platform.MultusConfDir)
	l.readChain()
	l.agentSocket = filepath.Join(l.runDir, names.AgentSocket)
	if l.found {
		l.agentSocket = l.entry.AgentSocket
	}
	return l
}

// inAgent reports whether this process runs in the agent's container, whose files are not the
// node's but for what is mounted.
func (l *look) inAgent() bool {
	if l.process.pid == 0 {
		return false
	}
	const mounts = "/proc/%d/ns/mnt"
	own, err := os.Readlink("/proc/self/ns/mnt")
	its, err2 := os.Readlink(l.files.at(fmt.Sprintf(mounts, l.process.pid)))
	if err != nil || err2 != nil || own != its {
		return false
	}
	first, err := os.Readlink(l.files.at(fmt.Sprintf(mounts, 1)))
	return l.process.pid == 1 || err != nil || first != own // else the agent is in no container
}

// guess goes by the socket that is there. kubeadm's directories are those of most platforms.
func (l *look) guess() platforms.Platform {
	usual, _ := platforms.Named("kubeadm")
	candidates := slices.Concat([]platforms.Platform{usual}, platforms.All)
	for _, socket := range []string{platforms.CRIOSocket, platforms.DockerSocket,
		platforms.K3sDockerSocket} {
		other := usual
		other.RuntimeSocket = socket
		candidates = append(candidates, other)
	}
	for _, p := range candidates {
		if _, err := os.Stat(l.files.at(p.RuntimeSocket)); err == nil {
			return p
		}
	}
	return usual
}

func (l *look) askRuntime(ctx context.Context) (cri.Runtime, error) {
	if _, err := os.Stat(l.files.at(l.socket)); err != nil {
		return cri.Runtime{}, err
	}
	return cri.Ask(ctx, l.files.at(l.socket), "")
}

func (l *look) machine() []verdict.Row {
	name := "an unknown system"
	release, _ := l.files.readHost("/etc/os-release") // without it there is no name
	for line := range strings.SplitSeq(string(release), "\n") {
		if value, found := strings.CutPrefix(line, "PRETTY_NAME="); found {
			name = strings.Trim(value, `"`)
		}
	}
	rows := []verdict.Row{fine("host", fmt.Sprintf("Linux %s, %s", l.release(), name))}
	if os.Geteuid() != 0 {
		rows = append(rows, unknown("rights", "this is not root, which alone can read the chain's "+
			"credentials, the runtime's socket and namespaces", "run it by sudo"))
	}
	return append(rows, l.security())
}

// security says what else may refuse the agent something.
func (l *look) security() verdict.Row {
	const about = "security modules"
	loaded := cmp.Or(l.files.text("/sys/kernel/security/lsm"), "not readable")
	if l.files.text("/sys/fs/selinux/enforce") == "1" {
		return warning(about, "SELinux is enforcing ("+loaded+")", "set the chart's seLinuxType "+
			"to a type that may write to the node's directories and enter pods' namespaces, as "+
			"spc_t may; see docs/security.md")
	}
	if l.files.text("/sys/module/apparmor/parameters/enabled") == "Y" {
		return fine(about, "AppArmor is on; the chart's agent runs unconfined where it enters "+
			"namespaces ("+loaded+")")
	}
	return fine(about, "none that is known to be in the way ("+loaded+")")
}

func (l *look) release() string {
	if release := l.files.text("/proc/sys/kernel/osrelease"); release != "" {
		return release
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "this node"
	}
	return name
}

func fine(about, what string) verdict.Row {
	return verdict.Row{About: about, Verdict: verdict.OK, What: what}
}

func wrong(about, what, remedy string) verdict.Row {
	return verdict.Row{About: about, Verdict: verdict.Wrong, What: what, Remedy: remedy}
}

func warning(about, what, remedy string) verdict.Row {
	return verdict.Row{About: about, Verdict: verdict.Warning, What: what, Remedy: remedy}
}

// unread is about what was not read: whether it is wrong nobody knows who may not read it.
func unread(about, what string, err error, remedy string) verdict.Row {
	if errors.Is(err, fs.ErrPermission) {
		return unknown(about, what, "run this as root")
	}
	return wrong(about, what, remedy)
}

func unknown(about, what, remedy string) verdict.Row {
	return verdict.Row{About: about, Verdict: verdict.Unknown, What: what, Remedy: remedy}
}
