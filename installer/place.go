package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// platformWords are the values of --platform.
var platformWords = append([]string{"auto"}, platformNames()...)

func platformNames() []string {
	var names []string
	for _, p := range node.Platforms {
		names = append(names, p.Name)
	}
	return names
}

// place is where things are on the node.
type place struct {
	known       bool // the platform is more than a guess
	platform    node.Platform
	why         string // how the platform was found out
	conf        node.Conf
	multus      node.Conf
	credentials node.Credentials
	binary      string
	sockets     []string // the runtime's may be one of them, or none is there
	runtime     node.Runtime
	declared    string // the Node's containerRuntimeVersion; empty as long as it was not read
	podUID      string // of the agent's own pod; empty outside of one
}

// place finds out where things are. Without a Node object, auto is the commonest of platforms.
func (s *settings) place(object *corev1.Node) place {
	p := place{known: object != nil || s.platformName != "auto"}
	switch {
	case s.platformName != "auto":
		p.platform, _ = node.PlatformNamed(s.platformName) // the flag takes no other word
		p.why = "--platform"
	case object != nil:
		p.platform, p.why = node.Detect(object)
	default:
		p.platform, _ = node.PlatformNamed("kubeadm")
		p.why = "no API server was asked"
	}
	p.conf.Path = cmp.Or(s.confDir, p.platform.ConfDir)
	p.multus.Path = cmp.Or(s.multusDir, p.platform.MultusConfDir, "/etc/cni/multus/net.d")
	p.credentials.Dir = filepath.Join(p.conf.Path, credentialsDir)
	p.binary = filepath.Join(cmp.Or(s.binDir, p.platform.BinDir), pluginType)
	p.sockets, p.podUID = p.platform.Sockets(object), s.podUID
	if s.runtimeSocket != "" {
		p.sockets = []string{node.WithoutLink(s.runtimeSocket)}
	}
	if object != nil {
		p.declared = object.Status.NodeInfo.ContainerRuntimeVersion
		p.runtime = node.RuntimeFromNode(p.declared)
	}
	return p
}

// provide makes the directories that are missing, where they are no guess. Later on it is left to
// whoever deleted one to make it again: he may be about to.
func (i *installer) provide() {
	for _, dir := range []string{i.conf.Path, filepath.Dir(i.binary)} {
		if !i.known {
			return
		}
		if err := node.Provide(dir); err != nil {
			i.log.Warn("missing directory not made", zap.Error(err))
		}
	}
}

// looksLike names the platform that a node seems to be of, if that one keeps things elsewhere.
func (p *place) looksLike(object *corev1.Node) (name, why string) {
	if object == nil {
		return "", ""
	}
	looks, why := node.Detect(object)
	if looks.ConfDir == p.platform.ConfDir && looks.BinDir == p.platform.BinDir {
		return "", ""
	}
	return looks.Name, why
}

// readMultus reads Multus' directory, which the chart mounts for the way standalone alone.
func (p *place) readMultus() (chain.Dir, error) {
	dir, err := p.multus.Read()
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, node.ErrDeleted) {
		err = fmt.Errorf("the way is standalone, since Multus is in the chain: %w, or not mounted into the agent's pod: "+
			"set the chart's way to standalone, and its multusConfDir where Multus reads another directory", err)
	}
	return dir, err
}

// credentialsDir is within the conf directory: what the plugin needs has to be there after a
// reboot, before the agent is.
const credentialsDir = pluginType + ".d"

// source is where the plugin is copied from.
func (s *settings) source() string {
	if s.pluginBinary != "" {
		return s.pluginBinary
	}
	self, err := os.Executable()
	if err != nil {
		return pluginType
	}
	return filepath.Join(filepath.Dir(self), pluginType)
}
