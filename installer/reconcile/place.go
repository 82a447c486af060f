package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/platforms"
)

// Place is where things are on the node.
type Place struct {
	Known       bool               // the platform is more than a guess
	Platform    platforms.Platform // kubeadm's as long as it is not Known
	Evidence    string             // how the platform was found out
	Conf        node.Conf          // the runtime's conf directory
	Multus      node.Conf          // Multus'; it may not exist
	Credentials node.Credentials   // a directory in Conf
	Plugin      string             // the plugin's binary
	Sockets     []string           // the runtime's may be one of them, or none is there
	Declared    string             // the Node's containerRuntimeVersion; "" until it was read
}

// autoPlatform stands for the platform that the Node object shows.
const autoPlatform = "auto"

// locate finds out where things are. Without a Node object, auto is the commonest of platforms.
func locate(cfg Settings, object *corev1.Node) Place {
	auto := cfg.Dirs.Platform == autoPlatform
	p := Place{Known: object != nil || !auto}
	switch {
	case !auto:
		p.Platform, _ = platforms.Named(cfg.Dirs.Platform) // the flag takes no other word
		p.Evidence = "--platform"
	case object != nil:
		p.Platform, p.Evidence = node.Detect(object)
	default:
		p.Platform, _ = platforms.Named("kubeadm")
		p.Evidence = "no API server was asked"
	}
	p.Conf.Path = cmp.Or(cfg.Dirs.Conf, p.Platform.ConfDir)
	p.Multus.Path = cmp.Or(cfg.Dirs.Multus, p.Platform.MultusConfDir, "/etc/cni/multus/net.d")
	p.Credentials.Dir = filepath.Join(p.Conf.Path, names.CredentialsDir)
	p.Plugin = filepath.Join(cmp.Or(cfg.Dirs.Bin, p.Platform.BinDir), names.Plugin)
	p.Sockets = node.Sockets(p.Platform, object)
	if cfg.RuntimeSocket != "" {
		p.Sockets = []string{platforms.WithoutLink(cfg.RuntimeSocket)}
	}
	if object != nil {
		p.Declared = object.Status.NodeInfo.ContainerRuntimeVersion
	}
	return p
}

func (p Place) binDir() string { return filepath.Dir(p.Plugin) }

// provide makes the directories that are missing, where they are no guess. Later on it is left to
// whoever deleted one to make it again: he may be about to.
func (r *Reconciler) provide() {
	where := r.known.Where
	if !where.Known {
		return
	}
	for _, dir := range []string{where.Conf.Path, where.binDir()} {
		if err := node.Provide(dir); err != nil {
			r.log.Warn("missing directory not made", zap.Error(err))
		}
	}
}

// looksLike names the platform that a node seems to be of, if that one keeps things elsewhere.
func (p Place) looksLike(object *corev1.Node) (name, why string) {
	if object == nil {
		return "", ""
	}
	looks, why := node.Detect(object)
	if looks.ConfDir == p.Platform.ConfDir && looks.BinDir == p.Platform.BinDir {
		return "", ""
	}
	return looks.Name, why
}

// readMultus reads Multus' directory, which the chart mounts for the way standalone alone.
func (p Place) readMultus() (chain.Dir, error) {
	dir, err := p.Multus.Read()
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, node.ErrDeleted) {
		err = fmt.Errorf("the way is standalone, since Multus is in the chain: %w, or not "+
			"mounted into the agent's pod: "+
			"set the chart's way to standalone, and its multusConfDir where Multus reads another "+
			"directory", err)
	}
	return dir, err
}
