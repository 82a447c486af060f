package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
	socket      string // the runtime's; it need not be there
	runtime     node.Runtime
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
	p.socket = cmp.Or(s.runtimeSocket, p.platform.RuntimeSocket)
	if object != nil {
		p.runtime = node.RuntimeFromNode(object.Status.NodeInfo.ContainerRuntimeVersion)
	}
	return p
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

// credentialsDir is within the conf directory: what the plugin needs has to be there after a reboot, before the agent is.
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

// ask asks the runtime what it has. Without its socket there is nobody to ask: it is down, or not mounted.
func (p *place) ask(ctx context.Context) (node.Runtime, error) {
	if _, err := os.Stat(p.socket); err != nil {
		return node.Runtime{}, errNobody
	}
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	return node.AskRuntime(ctx, p.socket)
}

var errNobody = errors.New("the runtime's socket is not there")
