// Package cri asks a node's container runtime, on its socket, what it is and what it has loaded. It
// changes nothing.
//
//	runtime, err := cri.Ask(ctx, "/run/containerd/containerd.sock", "")
//	known, runs := runtime.Runs(names.Plugin)
package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// timeout is how long the runtime may take. It is local, and answers at once or is in trouble.
const timeout = 5 * time.Second

// uidLabel is the kubelet's label on each sandbox: the uid of its pod.
const uidLabel = "io.kubernetes.pod.uid"

// networkReady is the type of the condition of the runtime's network.
const networkReady = "NetworkReady"

// Ask asks the runtime itself, on its socket. Read only: it changes nothing. With the uid of
// a pod it also asks whether that one is in a sandbox of this runtime, which Runtime.RunsPod says.
//
// containerd reports its directories and its chain. CRI-O, up to 1.34 at least, reports neither.
func Ask(ctx context.Context, socket, podUID string) (Runtime, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := dial(socket)
	defer c.close()
	version, err := c.call(ctx, "Version", nil)
	if err != nil {
		return Runtime{}, fmt.Errorf("ask runtime at %s for its version: %w", socket, err)
	}
	status, err := c.call(ctx, "Status", message{}.number(1, 1)) // verbose
	if err != nil {
		return Runtime{}, fmt.Errorf("ask runtime at %s for its status: %w", socket, err)
	}
	r := Runtime{Name: version.text(2), Version: version.text(3)}
	r.read(status)
	if podUID != "" {
		r.RunsPod, err = c.runsPod(ctx, podUID)
	}
	if err != nil {
		return Runtime{}, fmt.Errorf("ask runtime at %s for the agent's sandbox: %w", socket, err)
	}
	return r, nil
}

// runsPod reports whether a pod has a sandbox that is ready. What comes back is compared: not every
// runtime has to filter.
func (c client) runsPod(ctx context.Context, uid string) (bool, error) {
	list, err := c.call(ctx, "ListPodSandbox", sandboxesOf(uid))
	return slices.ContainsFunc(list.all(1), func(sandbox message) bool {
		return sandbox.first(2).text(2) == uid && sandbox.value(3) == 0
	}), err
}

// sandboxesOf asks for a pod's sandboxes that are ready, which is the state 0.
func sandboxesOf(uid string) message {
	label := message{}.bytes(1, []byte(uidLabel)).bytes(2, []byte(uid))
	return message{}.bytes(1, message{}.bytes(2, message{}.number(1, 0)).bytes(3, label))
}

func (r *Runtime) read(status message) {
	for _, c := range status.first(1).all(1) {
		if c.text(1) == networkReady {
			r.NetworkReady, r.Message = c.value(2) != 0, c.text(4)
		}
	}
	info := map[string]string{}
	for _, entry := range status.all(2) {
		info[entry.text(1)] = entry.text(2)
	}
	r.LastLoad = info["lastCNILoadStatus"]
	// What is missing or has another form stays unknown.
	var config struct {
		CNI struct {
			ConfDir string   `json:"confDir"`
			BinDir  string   `json:"binDir"`  // containerd 1
			BinDirs []string `json:"binDirs"` // containerd 2

			MaxConfNum *int `json:"maxConfNum"`
		} `json:"cni"`
	}
	_ = json.Unmarshal([]byte(info["config"]), &config)
	r.ConfDir, r.BinDirs = config.CNI.ConfDir, config.CNI.BinDirs
	r.ManyNetworks = config.CNI.MaxConfNum != nil && *config.CNI.MaxConfNum != 1
	if dir := config.CNI.BinDir; dir != "" && !slices.Contains(r.BinDirs, dir) {
		r.BinDirs = append(r.BinDirs, dir)
	}
	loaded, known := parseChain([]byte(info["cniconfig"]))
	if !known {
		return
	}
	// What is in use counts more than what is configured.
	r.Chain, r.ConfDir, r.BinDirs = []byte(info["cniconfig"]), loaded.PluginConfDir,
		loaded.PluginDirs
}
