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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// timeout is how long the runtime may take. It is local, and answers at once or is in trouble.
const timeout = 5 * time.Second

// uidLabel is the kubelet's label on each sandbox: the uid of its pod.
const uidLabel = "io.kubernetes.pod.uid"

// Ask asks the runtime itself, on its socket. Read only: it changes nothing. With the uid of
// a pod it also asks whether that one is in a sandbox of this runtime, which Runtime.RunsPod says.
//
// containerd reports its directories and its chain. CRI-O, up to 1.34 at least, reports neither.
func Ask(ctx context.Context, socket, podUID string) (Runtime, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return Runtime{}, fmt.Errorf("ask runtime at %s: %w", socket, err)
	}
	defer func() { _ = conn.Close() }()
	client := api.NewRuntimeServiceClient(conn)
	version, err := client.Version(ctx, &api.VersionRequest{})
	if err != nil {
		return Runtime{}, fmt.Errorf("ask runtime at %s for its version: %w", socket, err)
	}
	status, err := client.Status(ctx, &api.StatusRequest{Verbose: true})
	if err != nil {
		return Runtime{}, fmt.Errorf("ask runtime at %s for its status: %w", socket, err)
	}
	r := Runtime{Name: version.GetRuntimeName(), Version: version.GetRuntimeVersion()}
	r.read(status)
	if podUID != "" {
		r.RunsPod, err = runsPod(ctx, client, podUID)
	}
	if err != nil {
		return Runtime{}, fmt.Errorf("ask runtime at %s for the agent's sandbox: %w", socket, err)
	}
	return r, nil
}

// runsPod reports whether a pod has a sandbox that is ready. What comes back is compared: not every
// runtime has to filter.
func runsPod(ctx context.Context, client api.RuntimeServiceClient, uid string) (bool, error) {
	list, err := client.ListPodSandbox(ctx,
		&api.ListPodSandboxRequest{Filter: &api.PodSandboxFilter{
			State:         &api.PodSandboxStateValue{State: api.PodSandboxState_SANDBOX_READY},
			LabelSelector: map[string]string{uidLabel: uid},
		}})
	return slices.ContainsFunc(list.GetItems(), func(s *api.PodSandbox) bool {
		return s.GetMetadata().GetUid() == uid && s.GetState() == api.PodSandboxState_SANDBOX_READY
	}), err
}

func (r *Runtime) read(status *api.StatusResponse) {
	for _, c := range status.GetStatus().GetConditions() {
		if c.GetType() == api.NetworkReady {
			r.NetworkReady, r.Message = c.GetStatus(), c.GetMessage()
		}
	}
	info := status.GetInfo()
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
